package enginemodel_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/enginemodel"
)

var measure = flag.Bool("measure", false, "compare Fast with Stepped at length")

// plan is a load to offer to several engines.
type plan struct {
	requests []enginemodel.Request
	at       []time.Duration
}

// newPlan draws n arrivals whose lengths are gamma distributed: their standard
// deviation is their mean over the root of shape. Repeated tokens of the prompt, if
// any, are half a system prompt that all share and half of one of 50 conversations.
func newPlan(n int, rate float64, prompt, output, repeated, shape int, seed uint64) *plan {
	rng := rand.New(rand.NewPCG(seed, 1))
	length := func(mean int) int {
		sum := 0.0
		for range shape {
			sum += rng.ExpFloat64() / float64(shape)
		}
		return 1 + int(sum*float64(mean))
	}
	p := &plan{}
	var at time.Duration
	for id := range n {
		at += time.Duration(rng.ExpFloat64() / rate * 1e9)
		r := enginemodel.Request{ID: uint64(id), Prompt: repeated + length(prompt), Output: length(output)}
		if repeated > 0 {
			r.Prefix = []enginemodel.Block{block(1, repeated/2), block(100+rng.Uint64N(50), repeated)}
		}
		p.requests = append(p.requests, r)
		p.at = append(p.at, at)
	}
	return p
}

// result is what a plan's requests met, in seconds.
type result struct {
	first, last           []float64
	throughput, generated float64 // requests and tokens a second while the second half arrives
	gauges                enginemodel.Gauges
}

func (p *plan) run(t testing.TB, e enginemodel.Simulated) *result {
	r := &result{first: make([]float64, len(p.at)), last: make([]float64, len(p.at))}
	var events []enginemodel.Event
	hear := func(now time.Duration) {
		events = e.Run(now, events[:0])
		for _, ev := range events {
			took := (ev.At - p.at[ev.ID]).Seconds()
			if ev.First() {
				r.first[ev.ID] = took
			}
			if ev.Last {
				r.last[ev.ID] = took
			}
		}
	}
	var half enginemodel.Gauges
	for i, q := range p.requests {
		for e.Next() <= p.at[i] {
			hear(e.Next())
		}
		if i == len(p.at)/2 {
			half = e.Gauges(p.at[i])
		}
		require.NoError(t, e.Add(q, p.at[i]))
	}
	end := p.at[len(p.at)-1]
	g, took := e.Gauges(end), (end - p.at[len(p.at)/2]).Seconds()
	r.throughput = float64(g.Finished-half.Finished) / took
	r.generated = float64(g.GenerationTokens-half.GenerationTokens) / took
	for e.Next() != enginemodel.Never {
		hear(e.Next())
	}
	r.gauges = e.Gauges(end)
	return r
}

func mean(x []float64) (sum float64) {
	for _, v := range x {
		sum += v / float64(len(x))
	}
	return sum
}

func quantile(x []float64, q float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[int(q*float64(len(x)-1))]
}

type gridEngine struct {
	name           string
	params         enginemodel.Params
	prompt, output int
}

func gridEngines(t *testing.T) []gridEngine {
	cache, slots := preset(t, "8b-h100"), preset(t, "8b-a100")
	cache.Blocks = 2500
	slots.MaxBatch = 64
	return []gridEngine{
		{"chat", preset(t, "8b-h100"), 512, 256},
		{"long prompts", preset(t, "8b-a100"), 6000, 300},
		{"little cache", cache, 512, 256},
		{"few slots", slots, 512, 256},
		{"70B", preset(t, "70b-4xa100"), 512, 256},
	}
}

// Fast is Stepped but for nanoseconds. These may change who is in which step, so that
// single requests fare otherwise; what many meet is the same.
func TestFastMeasuresWhatSteppedDoes(t *testing.T) {
	loads, n := []float64{0.3, 0.8, 0.95}, 250
	if *measure {
		loads, n = []float64{0.3, 0.5, 0.7, 0.8, 0.85, 0.9, 0.95}, 20000
	}
	for _, g := range gridEngines(t) {
		for _, repeated := range []int{0, 1024} {
			t.Run(fmt.Sprintf("%s, %d repeated", g.name, repeated), func(t *testing.T) {
				t.Parallel()
				profile := enginemodel.Profile(g.params, float64(g.prompt+repeated), float64(g.output), float64(repeated))
				for i, load := range loads {
					x := newPlan(n, load*saturation(profile), g.prompt, g.output, repeated, 4, uint64(i))
					s, err := enginemodel.NewStepped(g.params)
					require.NoError(t, err)
					compare(t, load, x.run(t, s), x.run(t, fast(t, g.params)))
				}
			})
		}
	}
}

func compare(t *testing.T, load float64, want, got *result) {
	off := func(a, b float64) float64 { return math.Abs(a/b - 1) }
	of := func(x func(*result) float64) float64 { return off(x(got), x(want)) }
	worst := max(of(func(r *result) float64 { return mean(r.first) }), of(func(r *result) float64 { return mean(r.last) }),
		of(func(r *result) float64 { return r.throughput }), of(func(r *result) float64 { return r.generated }))
	tail := max(of(func(r *result) float64 { return quantile(r.first, 0.99) }), of(func(r *result) float64 { return quantile(r.last, 0.99) }))
	g := want.gauges
	t.Logf("load %.2f: mean %.3f s, first token %.3f s, p99 %.3f s, preempted %d, hits %.0f %%; means off by %.4f %%, p99 by %.4f %%", load, mean(want.last), mean(want.first), quantile(want.last, 0.99),
		g.Preemptions, 100*float64(g.PrefixHits)/float64(max(1, g.PrefixQueries)), 100*worst, 100*tail)
	require.Less(t, worst, 0.002)
	require.Less(t, tail, 0.005)
	require.Equal(t, want.gauges.Finished, got.gauges.Finished)
	require.Equal(t, want.gauges.PromptTokens, got.gauges.PromptTokens)
	require.Equal(t, want.gauges.GenerationTokens, got.gauges.GenerationTokens)
}

func TestFastDoesNotAllocate(t *testing.T) {
	p := preset(t, "8b-h100")
	for _, sessions := range []int{0, 200} {
		rate := 0.6 * saturation(enginemodel.Profile(p, 512, 256, 0))
		x := player{offer: newOffer(5000, rate, 512, 256, sessions), engine: fast(t, p)}
		for range 10000 {
			x.play()
		}
		require.Zero(t, testing.AllocsPerRun(5000, x.play))
	}
}
