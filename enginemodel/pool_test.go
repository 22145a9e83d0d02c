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
	for _, s := range p.index.slots {
		if !s.used {
			continue
		}
		n := p.nodes[s.value]
		require.Equal(t, s.key, n.hash)
		if n.refs > 0 {
			held += int(n.blocks)
			refs[n.parent]++
			require.Zero(t, order[s.value])
		} else {
			idle += int(n.blocks)
			require.NotZero(t, order[s.value])
		}
		if n.parent != 0 {
			parent := p.nodes[n.parent]
			there, ok := p.index.get(parent.hash)
			require.True(t, ok && there == n.parent, "a node without its parent")
			if parent.refs == 0 {
				require.Greater(t, order[n.parent], order[s.value], "the beginning goes before the end")
			}
		}
	}
	for _, s := range p.index.slots {
		if s.used {
			require.Equal(t, refs[s.value], int(p.nodes[s.value].refs))
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
		var x table[int]
		want := map[uint64]int{}
		key := rapid.Custom(func(t *rapid.T) uint64 {
			return rapid.Uint64Range(0, 30).Draw(t, "key") << rapid.SampledFrom([]int{0, 40}).Draw(t, "shift")
		})
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				k, v := key.Draw(t, "k"), rapid.Int().Draw(t, "v")
				x.put(k, v)
				want[k] = v
			},
			"remove": func(t *rapid.T) {
				k := key.Draw(t, "k")
				x.remove(k)
				delete(want, k)
			},
			"": func(t *rapid.T) {
				require.Equal(t, len(want), x.len)
				for k, v := range want {
					got, ok := x.get(k)
					require.True(t, ok)
					require.Equal(t, v, got)
				}
				k := key.Draw(t, "k")
				_, there := want[k]
				_, ok := x.get(k)
				require.Equal(t, there, ok)
			},
		})
	})
}
