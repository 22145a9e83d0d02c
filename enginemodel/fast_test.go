package enginemodel

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// pair drives a Fast and a Stepped through the same calls. Its steps take whole
// numbers of nanoseconds, so that nothing is rounded and the two are one engine.
type pair struct {
	fast    *Fast
	stepped *Stepped
	now     time.Duration
	id      uint64
	left    map[uint64]int // output tokens of those within
	events  [2][]Event
}

func newPair(t *rapid.T) *pair {
	p := Params{Base: 0.010, PerPrefillToken: 0.001, PerRequest: 0.001, PerContextToken: 0.000_010, FreePrefillTokens: 5}
	p.MaxBatch = rapid.IntRange(1, 8).Draw(t, "batch")
	p.MaxStepTokens = rapid.IntRange(p.MaxBatch, 80).Draw(t, "step tokens")
	p.BlockSize = rapid.SampledFrom([]int{1, 4, 16}).Draw(t, "block size")
	p.Blocks = rapid.IntRange(100, 600).Draw(t, "tokens") / p.BlockSize
	p.Frontend = rapid.SampledFrom([]float64{0, 0.020}).Draw(t, "frontend")
	p.NoPrefixCache = rapid.IntRange(0, 4).Draw(t, "cache") == 0
	fast, err := NewFast(p)
	require.NoError(t, err)
	stepped, err := NewStepped(p)
	require.NoError(t, err)
	return &pair{fast: fast, stepped: stepped, left: map[uint64]int{}}
}

// pass lets time go by. What happens at its end is sometimes left for later.
func (p *pair) pass(t *rapid.T, d time.Duration) {
	p.now += d
	also := time.Duration(rapid.IntRange(0, 1).Draw(t, "and what happens at its end"))
	for i, e := range []Simulated{p.fast, p.stepped} {
		for e.Next() < p.now+also {
			p.events[i] = e.Run(e.Next(), p.events[i])
		}
		if also == 1 {
			p.events[i] = e.Run(p.now, p.events[i])
		}
	}
}

func (p *pair) add(t *rapid.T) {
	p.id++
	r := Request{ID: p.id, Prompt: rapid.IntRange(1, 90).Draw(t, "prompt"), Output: rapid.IntRange(1, 60).Draw(t, "output")}
	r.Prefix = drawPrefix(t, r.Prompt)
	errs := [2]error{p.fast.Add(r, p.now), p.stepped.Add(r, p.now)}
	require.Equal(t, errs[0], errs[1])
	if errs[0] == nil {
		p.left[r.ID] = r.Output
	}
}

func (p *pair) cancel(t *rapid.T) {
	victim := rapid.Uint64Range(p.id-min(p.id, 12), p.id).Draw(t, "victim")
	_, there := p.left[victim]
	require.Equal(t, there, p.fast.Cancel(victim, p.now))
	require.Equal(t, there, p.stepped.Cancel(victim, p.now))
	delete(p.left, victim)
}

// agree fails unless both have said the same and are in the same state.
func (p *pair) agree(t *rapid.T) {
	require.Equal(t, p.events[1], p.events[0])
	for _, e := range p.events[0] {
		if e.Last {
			require.Equal(t, p.left[e.ID], e.Token)
			delete(p.left, e.ID)
		}
	}
	p.events = [2][]Event{p.events[0][:0], p.events[1][:0]}
	fast, stepped := p.fast.Gauges(p.now), p.stepped.Gauges(p.now)
	require.InDelta(t, stepped.KVUsage, fast.KVUsage, 1e-12)
	fast.KVUsage = stepped.KVUsage
	require.Equal(t, stepped, fast)
}

func TestFastIsStepped(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPair(t)
		t.Repeat(map[string]func(*rapid.T){
			"add":   p.add,
			"add 2": p.add,
			"cancel": func(t *rapid.T) {
				if rapid.IntRange(0, 2).Draw(t, "really") == 0 {
					p.cancel(t)
				}
			},
			"slow down": func(t *rapid.T) {
				factor := rapid.SampledFrom([]float64{1, 2, 3, -1}).Draw(t, "factor")
				p.fast.SetSlowdown(factor, p.now)
				p.stepped.SetSlowdown(factor, p.now)
			},
			"pass": func(t *rapid.T) {
				ms := rapid.OneOf(rapid.IntRange(0, 30), rapid.IntRange(0, 1000)).Draw(t, "ms")
				p.pass(t, time.Duration(ms)*time.Millisecond)
			},
			"pass until something": func(t *rapid.T) {
				next := rapid.SampledFrom([]Simulated{p.fast, p.stepped}).Draw(t, "whose").Next()
				if next != Never {
					p.pass(t, max(0, next-p.now))
				}
			},
			"": p.agree,
		})
		p.pass(t, time.Hour)
		p.agree(t)
		require.Empty(t, p.left, "every request finishes")
		g := p.fast.Gauges(p.now)
		require.Zero(t, g.Running+g.Waiting)
		require.Zero(t, g.KVUsage)
		require.Equal(t, Never, p.fast.Next())
	})
}

func TestAnEngineThatHardlyMovesIsThereForEver(t *testing.T) {
	p := Params{Base: 0.01, PerContextToken: 1e-6, MaxBatch: 4, MaxStepTokens: 64, Blocks: 100, BlockSize: 16}
	fast, err := NewFast(p)
	require.NoError(t, err)
	stepped, err := NewStepped(p)
	require.NoError(t, err)
	for _, e := range []Simulated{fast, stepped} {
		e.SetSlowdown(1e308, 0)
		require.NoError(t, e.Add(Request{ID: 1, Prompt: 10, Output: 3}, 0))
		require.Empty(t, e.Run(time.Second, nil))
		require.Greater(t, e.Next(), 100*time.Hour)
		require.NoError(t, e.Add(Request{ID: 2, Prompt: 10, Output: 3}, time.Minute))
		require.True(t, e.Cancel(1, time.Hour))
		require.Less(t, e.Next(), Never)
		require.Equal(t, 1, e.Gauges(time.Hour).Waiting)
	}
}

func TestFastRefusesWhatVLLMDoes(t *testing.T) {
	_, err := NewFast(Params{Base: 1, MaxBatch: 8, MaxStepTokens: 7, Blocks: 1, BlockSize: 1})
	require.ErrorIs(t, err, ErrStepTokens)
	_, err = NewFast(Params{})
	require.ErrorContains(t, err, "max batch")
}
