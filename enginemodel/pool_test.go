package enginemodel

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// consistent fails unless the pool's counts are those of its nodes, every node's
// parent is there, and an idle node's parent is evicted after it.
func (p *pool) consistent(t require.TestingT, running []*sequence) {
	refs := make([]int, max(1, len(p.nodes)))
	private := 0
	for _, s := range running {
		private += s.blocks
		refs[s.leaf]++
	}
	held, order := 0, map[int32]int{}
	if len(p.nodes) > 0 {
		for i := p.nodes[0].next; i != 0; i = p.nodes[i].next {
			order[i] = len(order) + 1
		}
	}
	idle := 0
	for _, i := range p.index.slots {
		if i == 0 {
			continue
		}
		n := p.nodes[i]
		if n.refs > 0 {
			held += p.blocks(i)
			refs[n.parent]++
			require.Zero(t, order[i])
		} else {
			idle += p.blocks(i)
			require.NotZero(t, order[i])
		}
		if n.parent != 0 {
			require.Equal(t, n.parent, p.index.get(p.hashes, p.hashes[n.parent]), "a node without its parent")
			if p.nodes[n.parent].refs == 0 {
				require.Greater(t, order[n.parent], order[i], "the beginning goes before the end")
			}
		}
	}
	for _, i := range p.index.slots {
		if i != 0 {
			require.Equal(t, refs[i], int(p.nodes[i].refs))
		}
	}
	require.Equal(t, idle, p.idle)
	require.Len(t, order, p.unheld)
	require.Equal(t, p.total-private-held, p.free, "blocks counted once, whoever shares them")
	require.GreaterOrEqual(t, p.free, p.idle)
}

func TestPoolCountsEveryBlockOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 16).Draw(t, "size")
		p := newPool(Params{BlockSize: size, Blocks: rapid.IntRange(4, 40).Draw(t, "blocks")})
		var running []*sequence
		var newest *sequence // the last that was admitted, whether or not it is still there
		t.Repeat(map[string]func(*rapid.T){
			"admit": func(t *rapid.T) {
				s := &sequence{Request: Request{Prompt: rapid.IntRange(1, 200).Draw(t, "prompt")}}
				s.Prefix = drawPrefix(t, s.Prompt)
				s.target = s.Prompt
				reserve := rapid.IntRange(0, 1).Draw(t, "reserve")
				if p.admit(s, reserve) {
					require.Equal(t, blocks(s.target, size), s.blocks+s.shared)
					require.Less(t, s.context, s.target, "the last token is always computed")
					running = append(running, s)
					newest = s
				}
			},
			"grow": func(*rapid.T) {
				if len(running) > 0 && p.free > 0 {
					p.take(1)
					running[0].blocks++
				}
			},
			"release": func(t *rapid.T) {
				if len(running) == 0 {
					return
				}
				i := rapid.IntRange(0, len(running)-1).Draw(t, "who")
				s := running[i]
				p.release(s, s.target)
				running = append(running[:i], running[i+1:]...)
			},
			"break off": func(t *rapid.T) { // the newest, in the midst of its prompt
				if len(running) == 0 {
					return
				}
				s := running[len(running)-1]
				computed := s.target
				if s == newest {
					computed = rapid.IntRange(s.context, s.target).Draw(t, "computed")
				}
				p.release(s, computed)
				running = running[:len(running)-1]
			},
			"": func(t *rapid.T) { p.consistent(t, running) },
		})
	})
}

// drawPrefix draws blocks from a small tree of hashes, so that prompts share them.
func drawPrefix(t *rapid.T, prompt int) (prefix []Block) {
	hash, end := uint64(1), 0
	width := rapid.SampledFrom([]int{3, 16, 32}).Draw(t, "width")
	for end+width <= prompt && rapid.IntRange(0, 5).Draw(t, "go on") > 0 {
		end += width
		hash = hash*31 + uint64(width) + rapid.Uint64Range(0, 1).Draw(t, "branch")
		prefix = append(prefix, Block{Hash: hash, End: end})
	}
	return prefix
}

func TestTableIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x table
		keys := []uint64{0}
		want := map[uint64]int32{}
		key := rapid.Custom(func(t *rapid.T) uint64 {
			return rapid.Uint64Range(0, 30).Draw(t, "key") << rapid.SampledFrom([]int{0, 40}).Draw(t, "shift")
		})
		t.Repeat(map[string]func(*rapid.T){
			"flip": func(t *rapid.T) {
				k := key.Draw(t, "k")
				if want[k] != 0 {
					x.remove(keys, k)
					delete(want, k)
					return
				}
				want[k] = int32(len(keys))
				keys = append(keys, k)
				x.put(keys, want[k])
			},
			"": func(t *rapid.T) {
				require.Equal(t, len(want), x.len)
				for k, v := range want {
					require.Equal(t, v, x.get(keys, k))
				}
				k := key.Draw(t, "k")
				require.Equal(t, want[k], x.get(keys, k))
			},
		})
	})
}
