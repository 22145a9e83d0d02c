package baseline

import (
	"github.com/wardrop-lb/wardrop/enginemodel"
	"github.com/wardrop-lb/wardrop/sim"
)

// blockTokens is the size of the blocks that prompts come in.
const blockTokens = 64

// prefixIndex remembers which prompts' beginnings went to which engine. It holds no
// more than bound(engine) blocks of each, of 40 bytes and their part of a map; an
// engine that gets none takes nothing.
type prefixIndex struct {
	bound   func(engine int) int
	engines []*lru
}

func newPrefixIndex(f *sim.Fleet, bound func(engine int) int) *prefixIndex {
	return &prefixIndex{bound: bound, engines: make([]*lru, len(f.Engines))}
}

// match is how many of the leading blocks an engine has been sent.
func (x *prefixIndex) match(engine int, blocks []enginemodel.Block) int {
	if l := x.engines[engine]; l != nil {
		return l.match(blocks)
	}
	return 0
}

// tokens is how many prompt tokens that is.
func (x *prefixIndex) tokens(engine int, blocks []enginemodel.Block) int {
	if n := x.match(engine, blocks); n > 0 {
		return blocks[n-1].End
	}
	return 0
}

func (x *prefixIndex) add(engine int, blocks []enginemodel.Block) {
	if len(blocks) == 0 {
		return
	}
	l := x.engines[engine]
	if l == nil {
		l = newLRU(max(1, x.bound(engine)))
		x.engines[engine] = l
	}
	l.add(blocks)
}

// cacheBlocks is how many blocks fit in an engine's KV cache.
func cacheBlocks(f *sim.Fleet) func(engine int) int {
	return func(e int) int { return f.Engines[e].Tokens / blockTokens }
}

// lru holds the hashes of blocks, least recently used first out. Blocks of a prompt
// are touched from the last to the first, so that whoever has a block has all before
// it.
type lru struct {
	bound  int
	at     map[uint64]int32
	blocks []lruBlock
	newest int32
	oldest int32
}

type lruBlock struct {
	hash         uint64
	older, newer int32 // -1: none
}

func newLRU(bound int) *lru {
	return &lru{bound: bound, at: map[uint64]int32{}, newest: -1, oldest: -1}
}

// match looks for the last leading block that is held, by halving.
func (l *lru) match(blocks []enginemodel.Block) int {
	low, high := 0, len(blocks) // low are held, high+1 are not
	if high == 0 || !l.has(blocks[0].Hash) {
		return 0
	}
	for low < high {
		mid := (low + high + 1) / 2
		if l.has(blocks[mid-1].Hash) {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

func (l *lru) has(hash uint64) bool {
	_, ok := l.at[hash]
	return ok
}

func (l *lru) add(blocks []enginemodel.Block) {
	for i := len(blocks) - 1; i >= 0; i-- {
		l.touch(blocks[i].Hash)
	}
}

func (l *lru) touch(hash uint64) {
	i, held := l.at[hash]
	switch {
	case held:
		l.unlink(i)
	case len(l.blocks) < l.bound:
		i = int32(len(l.blocks))
		l.blocks = append(l.blocks, lruBlock{})
	default:
		i = l.oldest
		delete(l.at, l.blocks[i].hash)
		l.unlink(i)
	}
	if !held {
		l.at[hash] = i
	}
	l.blocks[i] = lruBlock{hash: hash, older: l.newest, newer: -1}
	if l.newest >= 0 {
		l.blocks[l.newest].newer = i
	} else {
		l.oldest = i
	}
	l.newest = i
}

func (l *lru) unlink(i int32) {
	b := &l.blocks[i]
	if b.older >= 0 {
		l.blocks[b.older].newer = b.newer
	} else {
		l.oldest = b.newer
	}
	if b.newer >= 0 {
		l.blocks[b.newer].older = b.older
	} else {
		l.newest = b.older
	}
}

// mix is the finalizer of splitmix64, to hash what is not a hash yet.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
