package testengine

import (
	"hash/maphash"

	"github.com/wardrop-lb/wardrop/enginemodel"
)

// bytesPerToken is how much text counts as one token.
const bytesPerToken = 4

// textTokens is how many tokens a prompt has that is counted from its text.
func textTokens(prompt string) int { return 1 + len(prompt)/bytesPerToken }

var prefixSeed = maphash.MakeSeed()

// prefixOf cuts a prompt into the whole blocks that the cache compares: each hash
// covers all before it.
func prefixOf(prompt string, blockSize int) []enginemodel.Block {
	size := blockSize * bytesPerToken
	blocks := make([]enginemodel.Block, 0, len(prompt)/size)
	last := uint64(0)
	for end := size; end <= len(prompt); end += size {
		last = maphash.Comparable(prefixSeed, [2]uint64{last, maphash.String(prefixSeed, prompt[end-size:end])})
		blocks = append(blocks, enginemodel.Block{Hash: last, End: end / bytesPerToken})
	}
	return blocks
}
