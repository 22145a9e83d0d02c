package baseline

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/wardrop-lb/wardrop/sim"
)

// poolOf is what a Prequal router has for the one model of the one cluster.
func poolOf(b *base, f *fake) (*prequal, *pool) {
	p := &prequal{base: b, pools: [][]pool{{{}}}, engines: [][]*history{make([]*history, len(f.fleet.Engines))}, may: make([]bool, len(f.fleet.Engines))}
	b.rule = rule{pick: p.pick, done: p.done}
	return p, &p.pools[0][0]
}

// answers puts probes into the pool.
func (o *pool) answers(at time.Duration, probes ...probe) {
	for _, x := range probes {
		x.at = at
		if x.uses == 0 {
			x.uses = 1000
		}
		o.add(x)
	}
}

// TestHotAndCold: the fastest of those with few requests, however fast the others are;
// when all have many, the one with the fewest.
func TestHotAndCold(t *testing.T) {
	o := &pool{}
	for range 90 {
		o.answers(0, probe{engine: 9, rif: 10})
	}
	o.answers(0, probe{engine: 0, rif: 2, latency: 3}, probe{engine: 1, rif: 9, latency: 1}, probe{engine: 2, rif: 30, latency: 0.1}, probe{engine: 9, rif: 10, latency: 2})
	assert.Equal(t, 1, o.probes[o.best()].engine)
	o.probes = nil
	o.answers(0, probe{engine: 0, rif: 40, latency: 1}, probe{engine: 1, rif: 20, latency: 3})
	assert.Equal(t, 1, o.probes[o.best()].engine)
}

// TestRemoval: the oldest and the worst in turn; the worst is the hottest, or when none
// is hot the slowest.
func TestRemoval(t *testing.T) {
	o := &pool{}
	for range 90 {
		o.answers(0, probe{engine: 9, rif: 10})
	}
	o.answers(0, probe{engine: 0, rif: 1}, probe{engine: 1, rif: 50}, probe{engine: 2, rif: 60}, probe{engine: 3, rif: 1, latency: 5}, probe{engine: 4, rif: 1, latency: 4})
	var gone []int
	for range 5 {
		had := map[int]bool{}
		for _, x := range o.probes {
			had[x.engine] = true
		}
		o.remove()
		for _, x := range o.probes {
			delete(had, x.engine)
		}
		for e := range had {
			gone = append(gone, e)
		}
	}
	assert.Equal(t, []int{9, 2, 0, 1, 3}, gone)
	o.remove()
	o.remove()
	assert.Empty(t, o.probes)
}

// TestPoolIsBounded: sixteen probes, one of an engine, none older than a second when
// one is picked, and the quantile is of the last 128.
func TestPoolIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := alone(rapid.IntRange(1, 60).Draw(t, "engines"))
		p, o := poolOf(newBase(f), f)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			e := rapid.IntRange(0, len(f.fleet.Engines)-1).Draw(t, "engine")
			f.reads(e, rapid.IntRange(0, 30).Draw(t, "running"), 0, 0)
			f.advance(time.Duration(rapid.IntRange(0, 300).Draw(t, "ms")) * time.Millisecond)
			p.serve(prompt())
			seen := map[int]bool{}
			for _, x := range o.probes {
				assert.False(t, seen[x.engine])
				assert.LessOrEqual(t, f.now-x.at, probeAge)
				seen[x.engine] = true
			}
			assert.LessOrEqual(t, len(o.probes), poolSize)
			assert.LessOrEqual(t, len(o.rifs), rifWindow)
			assert.Equal(t, slices.Sorted(slices.Values(o.rifs)), o.sorted)
		}
	})
}

// TestReuseBudget: with 100 engines an answer serves 2/1.52 requests in the mean.
func TestReuseBudget(t *testing.T) {
	f := alone(100)
	p, _ := poolOf(newBase(f), f)
	total := 0
	for range 10000 {
		total += p.budget(100)
	}
	assert.InDelta(t, 2/(0.84*3-1), float64(total)/10000, 0.03)
	assert.Greater(t, p.budget(16), 1000, "new answers replace old ones anyway")
}

// TestUsedProbesCount: a probe that is used counts one more, so that not all go to one.
func TestUsedProbesCount(t *testing.T) {
	f := alone(8)
	p, _ := poolOf(newBase(f), f)
	for range 50 {
		p.serve(prompt())
		f.advance(time.Millisecond)
	}
	f.deaf = map[int]bool{0: true, 1: true, 2: true, 3: true, 4: true, 5: true, 6: true, 7: true}
	count := map[int]int{}
	for range 8 {
		count[p.route(prompt())]++
	}
	for _, n := range count {
		assert.LessOrEqual(t, n, 4)
	}
}

// TestLatencyOfTheNearestLoads: an estimate is of requests that met about as many.
func TestLatencyOfTheNearestLoads(t *testing.T) {
	f := alone(1)
	p, _ := poolOf(newBase(f), f)
	assert.Zero(t, p.latency(0, 0, 5), "nothing known: to be tried")
	h := &history{}
	p.engines[0][0] = h
	for i := range 9 {
		h.record(sample{0, 2 + i%2, 1})
		h.record(sample{0, 20 + i%2, 7})
	}
	assert.InDelta(t, 1, p.latency(0, 0, 4), 0)
	assert.InDelta(t, 7, p.latency(0, 0, 40), 0)
	f.now = 2 * time.Minute
	assert.Zero(t, p.latency(0, 0, 4), "too long ago")
	for range 100 {
		h.record(sample{f.now, 1, 2})
	}
	assert.Len(t, h.samples, samplesMax)
}

// TestSinkhole: an engine that breaks everything off at once has nothing in flight and
// is fast, and is left alone all the same.
func TestSinkhole(t *testing.T) {
	f := alone(4)
	b := f.router("prequal")
	bad := 0
	for range 1000 {
		r := prompt()
		if e := b.route(r); e == 0 {
			bad++
			b.Done(r, sim.Failed)
		} else {
			f.reads(e, 5, 0, 0)
			b.Done(r, sim.Answered)
		}
		f.advance(5 * time.Millisecond)
	}
	assert.Positive(t, bad)
	assert.Less(t, bad, 20)
}
