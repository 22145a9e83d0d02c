package baseline

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/wardrop-lb/wardrop/sim"
)

func TestSimpleRules(t *testing.T) {
	f := alone(3)
	b := f.router("round-robin")
	x, y, z := b.route(prompt()), b.route(prompt()), b.route(prompt())
	assert.ElementsMatch(t, []int{0, 1, 2}, []int{x, y, z})

	b = f.router("least-request")
	for range 9 {
		b.route(prompt())
	}
	assert.Equal(t, []int{3, 3, 3}, b.inFlight[0])
	b.inFlight[0] = []int{5, 1, 3}
	assert.Equal(t, 1, b.route(prompt()))

	b = f.router("p2c")
	b.inFlight[0] = []int{0, 0, 1000}
	worst := 0
	for range 300 {
		if b.serve(prompt()) == 2 {
			worst++
		}
	}
	assert.InDelta(t, 300/9, worst, 20, "only when both draws are of it")
}

func TestNearest(t *testing.T) {
	f := newFake(map[string]int{"a": 2, "b": 2}, []string{"a", "b"}, []float64{0.01, 0.1}, []float64{0.1, 0.01})
	b := f.router("nearest")
	for range 20 {
		b.route(prompt())
	}
	assert.Equal(t, []int{10, 10, 0, 0}, b.inFlight[0], "however full")
	f.down[0], f.drained[1] = true, true
	assert.Contains(t, []int{2, 3}, b.route(prompt()))
}

// TestWaterfall: a region is filled up to four fifths of its slots, then the next, and
// when all are full they exceed it alike.
func TestWaterfall(t *testing.T) {
	f := newFake(map[string]int{"a": 2, "b": 2, "c": 1}, []string{"a", "b", "c"},
		[]float64{0.01, 0.2, 0.1}, []float64{0.2, 0.01, 0.2}, []float64{0.1, 0.2, 0.01})
	b := f.router("waterfall")
	for range 16 {
		b.route(prompt())
	}
	assert.Equal(t, []int{8, 8, 0, 0, 0}, b.inFlight[0])
	for range 8 {
		b.route(prompt())
	}
	assert.Equal(t, []int{8, 8, 0, 0, 8}, b.inFlight[0], "c is nearer than b")
	f.now = time.Second
	f.reads(2, 10, 2, 1) // others have filled b
	f.reads(3, 10, 2, 1)
	for range 9 {
		b.route(prompt())
	}
	assert.Equal(t, []int{11, 11, 0, 0, 11}, b.inFlight[0], "all as full as one another")
	f.now = 2 * time.Second
	f.reads(2, 3, 0, 0.1)
	f.reads(3, 3, 0, 0.1)
	assert.Contains(t, []int{2, 3}, b.route(prompt()))
}

// TestLoadFollowsReadings: what the cluster sent since a reading came counts on top.
func TestLoadFollowsReadings(t *testing.T) {
	f := alone(1)
	b := f.router("waterfall")
	b.inFlight[0][0] = 3
	assert.InDelta(t, 3, b.load(0, 0), 0)
	f.now = time.Second
	f.reads(0, 7, 1, 0)
	assert.InDelta(t, 8, b.load(0, 0), 0)
	b.inFlight[0][0] = 5
	assert.InDelta(t, 10, b.load(0, 0), 0)
	b.inFlight[0][0] = 1
	assert.InDelta(t, 6, b.load(0, 0), 0)
}

// TestEndpointPicker: a prompt goes where its beginning went, unless that engine has
// the longest queue and a full cache.
func TestEndpointPicker(t *testing.T) {
	f := alone(4)
	b := f.router("endpoint-picker")
	seen := map[int]bool{}
	for i := range uint64(40) {
		seen[b.route(prompt(100+i, 1))] = true
	}
	assert.Len(t, seen, 4, "equals are taken at random")
	first := b.route(prompt(1, 2, 3, 4))
	for i := range uint64(20) {
		assert.Equal(t, first, b.route(prompt(1, 2, 3, 4, 10+i)))
	}
	f.reads(first, 10, 5, 0.4)
	assert.Equal(t, first, b.route(prompt(1, 2, 3, 4)), "3 > 2 + 0.8")
	f.reads(first, 10, 5, 0.6)
	assert.NotEqual(t, first, b.route(prompt(1, 2, 3, 4)), "3 < 2 + 1.2")
}

// TestCacheAware: more than half of a prompt binds it, unless the router's own requests
// are out of balance.
func TestCacheAware(t *testing.T) {
	f := alone(3)
	b := f.router("cache-aware")
	first := b.route(prompt(1, 2, 3, 4))
	assert.Equal(t, first, b.route(prompt(1, 2, 3, 9)))
	assert.NotEqual(t, first, b.route(prompt(1, 2, 8, 9)), "half is not more than half")
	b.inFlight[0] = make([]int, 3)
	b.inFlight[0][first] = 32
	assert.Equal(t, first, b.route(prompt(1, 2, 3, 4)), "a difference of 32 is in balance")
	assert.NotEqual(t, first, b.route(prompt(1, 2, 3, 4)), "33 is not")
	b.inFlight[0] = []int{400, 400, 400}
	b.inFlight[0][first] = 440
	assert.Equal(t, first, b.route(prompt(1, 2, 3, 4)), "a tenth more is in balance")
	assert.NotEqual(t, first, b.route(prompt(1, 2, 3, 4)))
}

// TestCacheAwareSpreads: without anything in common the engines take turns, though all
// are idle.
func TestCacheAwareSpreads(t *testing.T) {
	b := alone(3).router("cache-aware")
	count := make([]int, 3)
	for i := range uint64(30) {
		count[b.serve(prompt(i, 1))]++
	}
	assert.Equal(t, []int{10, 10, 10}, count)
}

// TestHashBounded: a session stays with its engine until that has more than 1.25 times
// the mean, and then goes to one other, always the same.
func TestHashBounded(t *testing.T) {
	f := alone(4)
	b := f.router("consistent-hash-bounded")
	session := func(id uint64) *sim.Request {
		r := prompt(1, 2)
		r.Session = id
		return r
	}
	home := b.serve(session(7))
	for range 5 {
		assert.Equal(t, home, b.serve(session(7)))
	}
	b.inFlight[0] = []int{100, 100, 100, 100}
	b.inFlight[0][home] = 133
	assert.Equal(t, home, b.serve(session(7)), "133 < 1.25 * 434/4")
	b.inFlight[0][home] = 150
	next := b.serve(session(7))
	assert.NotEqual(t, home, next)
	assert.Equal(t, next, b.serve(session(7)))

	count := make([]int, 4)
	b.inFlight[0] = make([]int, 4)
	for i := range uint64(400) {
		count[b.serve(session(i))]++
	}
	for _, n := range count {
		assert.InDelta(t, 100, n, 40)
	}
}

// TestHashBoundedSkipsTheSystemPrompt: what all prompts begin with does not decide.
func TestHashBoundedSkipsTheSystemPrompt(t *testing.T) {
	b := alone(4).router("consistent-hash-bounded")
	b.serve(prompt(1, 2, 90))
	b.serve(prompt(1, 2, 91))
	seen := map[int]bool{}
	for i := range uint64(20) {
		home := b.serve(prompt(1, 2, 3+i, 1))
		seen[home] = true
		assert.Equal(t, home, b.serve(prompt(1, 2, 3+i, 2)))
	}
	assert.Len(t, seen, 4)
}

// TestSelectivePushing: nothing is pushed to an engine with a queue, or that is full
// with what has been pushed, while another has room.
func TestSelectivePushing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFake(map[string]int{"a": 2, "b": 3}, []string{"a", "b"}, []float64{0.01, 0.1}, []float64{0.1, 0.01})
		b := f.router("skywalker")
		pushed := make([]int, 5) // since the last reading
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.IntRange(0, 9).Draw(t, "what") == 0 {
				f.now += time.Second
				for e := range 5 {
					f.reads(e, rapid.IntRange(0, 10).Draw(t, "running"), rapid.IntRange(0, 1).Draw(t, "waiting"), 0)
					pushed[e] = 0
				}
				for c := range 2 { // readings are noted when a request comes
					for e := range 5 {
						b.load(c, e)
					}
				}
			}
			r := prompt(rapid.Uint64Range(0, 3).Draw(t, "a"), rapid.Uint64Range(0, 3).Draw(t, "b"))
			room := func(e int) bool {
				x := f.readings[e]
				return x.Waiting == 0 && b.load(r.Cluster, e) < 10
			}
			any := false
			for e := range 5 {
				any = any || room(e)
			}
			had := make([]bool, 5)
			for e := range had {
				had[e] = room(e)
			}
			e := b.route(r)
			pushed[e]++
			if any {
				assert.True(t, had[e], "engine %d has a queue", e)
				assert.LessOrEqual(t, f.readings[e].Running+pushed[e], 10)
			}
		}
	})
}

// TestSkyWalkerKeepsPrefixesInTheRegion: the own region's engine that has the prompt,
// then the own region's least, then the nearest other's.
func TestSkyWalkerKeepsPrefixesInTheRegion(t *testing.T) {
	f := newFake(map[string]int{"a": 2, "b": 1, "c": 1}, []string{"a", "b", "c"},
		[]float64{0.01, 0.2, 0.1}, []float64{0.2, 0.01, 0.2}, []float64{0.1, 0.2, 0.01})
	b := f.router("skywalker")
	far := prompt(1, 2, 3)
	far.Cluster = 1
	assert.Equal(t, 2, b.route(far))
	first := b.route(prompt(1, 2, 3))
	assert.Contains(t, []int{0, 1}, first, "b has it, and is another region")
	assert.Equal(t, first, b.route(prompt(1, 2, 4)))
	assert.Equal(t, 1-first, b.route(prompt(8, 9)), "nobody has it: the less loaded")
	f.now = time.Second
	f.reads(first, 5, 1, 0)
	assert.Equal(t, 1-first, b.route(prompt(1, 2, 3)), "a queue")
	f.reads(1-first, 10, 3, 0)
	assert.Equal(t, 3, b.route(prompt(1, 2, 3)), "c is nearer than b")
	f.reads(2, 10, 1, 0)
	f.reads(3, 10, 1, 0)
	assert.Equal(t, first, b.route(prompt(1, 2, 3)), "nobody has room: as if all had")
}

// TestGorgo: an engine farther away is worth it when what it has saves more prefill
// than its distance costs, and not when it has work before that.
func TestGorgo(t *testing.T) {
	f := newFake(map[string]int{"a": 1, "b": 1}, []string{"a", "b"}, []float64{0, 0.010}, []float64{0.010, 0})
	b := f.router("gorgo")
	long := func(cluster int, n int) *sim.Request {
		var blocks []uint64
		for i := range n {
			blocks = append(blocks, uint64(i))
		}
		r := prompt(blocks...)
		r.Cluster = cluster
		return r
	}
	assert.Equal(t, 1, b.serve(long(1, 2)))
	assert.Equal(t, 1, b.serve(long(0, 2)), "12.8 ms of prefill are saved for 10 ms")
	assert.Equal(t, 0, b.serve(prompt(50)))
	busy := long(1, 1)
	assert.Equal(t, 1, b.route(busy))
	assert.Equal(t, 0, b.serve(long(0, 2)), "6.4 ms are before it")
	b.Done(busy, sim.Answered)
	assert.Equal(t, 0, b.serve(long(0, 2)), "both have it")
}

// TestFeedbackWeights: weights go half way to the inverse latencies at an update.
func TestFeedbackWeights(t *testing.T) {
	l := newLatencies([]int{3, 5, 8})
	l.record(3, 1)
	l.record(3, 1)
	l.record(5, 3)
	l.update() // the inverses of 3 and 5 are 1.5 and 0.5 times their mean
	assert.InDeltaSlice(t, []float64{1.25, 0.75, 1}, l.weights, 1e-9)
	assert.Equal(t, 3, l.draw([]int{3, 8}, 0.55))
	assert.Equal(t, 8, l.draw([]int{3, 8}, 0.56))
	for range 20 {
		l.record(3, 1)
		l.record(5, 1000)
		l.update()
	}
	assert.InDelta(t, feedbackLeast, l.weights[1], 1e-9)
}
