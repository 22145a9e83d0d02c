package route

import (
	"slices"

	"github.com/cespare/xxhash/v2"
)

// KeySource says what a request's affinity key was taken from.
type KeySource uint8

// The sources, in the order in which they are looked for.
const (
	KeyNone         KeySource = iota // no key: the request may go anywhere
	KeySession                       // x-session-id header
	KeyPromptCache                   // prompt_cache_key
	KeyConversation                  // conversation or previous_response_id
	KeyPrefix                        // the prompt's leading bytes
)

var keySources = [...]string{"none", "session", "prompt_cache_key", "conversation", "prefix"}

func (s KeySource) String() string { return keySources[s] }

// ParseKeySource reads what String gives; false for anything else.
func ParseKeySource(name string) (KeySource, bool) {
	i := slices.Index(keySources[:], name)
	return KeySource(max(i, 0)), i >= 0
}

// HashKey hashes an affinity key. Keys of different sources never meet by
// accident, nor do those of different models: a model's cache is its own.
func HashKey(source KeySource, model string, key []byte) uint64 {
	return hashKey(source, model, xxhash.Sum64(key))
}

// HashPrefix hashes a key that Popularity.Key gave.
func HashPrefix(model string, key uint64) uint64 { return hashKey(KeyPrefix, model, key) }

func hashKey(source KeySource, model string, key uint64) uint64 {
	return mix(key ^ mix(xxhash.Sum64String(model)+uint64(source)*phi))
}
