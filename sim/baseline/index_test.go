package baseline

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

// TestIndexIsAnLRU: the index holds what a list does that forgets its last, and a
// prompt's blocks are forgotten from its end.
func TestIndexIsAnLRU(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bound := rapid.IntRange(1, 12).Draw(t, "bound")
		l := newLRU(bound)
		var naive []uint64 // newest first
		for range rapid.IntRange(1, 40).Draw(t, "prompts") {
			blocks := prompt(rapid.SliceOfN(rapid.Uint64Range(0, 2), 1, 6).Draw(t, "blocks")...).Prefix
			l.add(blocks)
			for i := len(blocks) - 1; i >= 0; i-- {
				naive = slices.DeleteFunc(naive, func(h uint64) bool { return h == blocks[i].Hash })
				naive = slices.Insert(naive, 0, blocks[i].Hash)
			}
			naive = naive[:min(len(naive), bound)]
			asked := prompt(rapid.SliceOfN(rapid.Uint64Range(0, 2), 0, 6).Draw(t, "asked")...).Prefix
			n := 0
			for n < len(asked) && slices.Contains(naive, asked[n].Hash) {
				n++
			}
			assert.Equal(t, n, l.match(asked))
			assert.Len(t, l.at, len(naive))
			assert.LessOrEqual(t, len(l.blocks), bound)
		}
	})
}

func TestIndexKnowsEachEngine(t *testing.T) {
	f := alone(2)
	x := newPrefixIndex(f.fleet, cacheBlocks(f.fleet))
	x.add(1, prompt(1, 2, 3).Prefix)
	assert.Equal(t, 0, x.match(0, prompt(1, 2).Prefix))
	assert.Equal(t, 2, x.match(1, prompt(1, 2, 4, 5).Prefix))
	assert.Equal(t, 3*blockTokens, x.tokens(1, prompt(1, 2, 3, 4).Prefix))
	assert.Equal(t, 0, x.tokens(1, prompt(2, 3).Prefix), "a prefix begins at the beginning")
	x.add(0, nil)
	assert.Nil(t, x.engines[0])
}
