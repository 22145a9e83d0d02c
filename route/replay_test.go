package route

import (
	"bufio"
	"container/list"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/fleet"
)

// traced is one request of a trace: blocks are the ids of its chained prefix
// blocks, equal ids being one reusable block.
type traced struct {
	At     float64 // seconds
	Blocks []uint64
}

// conversations generates a trace in which everything begins with one system
// block, some documents are shared by a few, and conversations grow turn by turn.
func conversations(n int, rng *rand.Rand) []traced {
	type talk struct{ blocks []uint64 }
	next := uint64(1)
	fresh := func() uint64 { next++; return next }
	documents := make([][]uint64, 200)
	for i := range documents {
		for range 5 + rng.IntN(20) {
			documents[i] = append(documents[i], fresh())
		}
	}
	var talks []*talk
	var out []traced
	at := 0.0
	for range n {
		at += rng.ExpFloat64() / 20
		var t *talk
		if len(talks) > 300 && rng.Float64() < 0.7 {
			t = talks[len(talks)-1-rng.IntN(300)]
		} else {
			t = &talk{blocks: []uint64{0}}
			if rng.Float64() < 0.4 {
				t.blocks = append(t.blocks, documents[rng.IntN(len(documents))]...)
			}
			talks = append(talks, t)
		}
		for range 1 + rng.IntN(6) {
			t.blocks = append(t.blocks, fresh())
		}
		out = append(out, traced{at, slices.Clone(t.blocks)})
	}
	return out
}

// mooncake reads the public trace; its time stamps come in ticks of 3 s, over
// which the requests are spread.
func mooncake(t *testing.T, rng *rand.Rand) []traced {
	const path = "../../shared/traces/mooncake_conversation.jsonl"
	f, err := os.Open(path)
	if err != nil {
		t.Skip("the Mooncake trace is not there: TestReplay covers the same on a generated one")
	}
	defer func() { _ = f.Close() }()
	var out []traced
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var row struct {
			Timestamp float64
			HashIDs   []uint64 `json:"hash_ids"`
		}
		require.NoError(t, json.Unmarshal(s.Bytes(), &row))
		out = append(out, traced{row.Timestamp/1000 + 3*rng.Float64(), row.HashIDs})
	}
	require.NoError(t, s.Err())
	slices.SortStableFunc(out, func(a, b traced) int {
		switch {
		case a.At < b.At:
			return -1
		case a.At > b.At:
			return 1
		}
		return 0
	})
	return out
}

// cache is an engine's prefix cache: least recently used blocks go first.
type cache struct {
	size  int
	order *list.List
	where map[uint64]*list.Element
}

func newCache(size int) *cache {
	return &cache{size, list.New(), map[uint64]*list.Element{}}
}

// hits is how many leading blocks are there.
func (c *cache) hits(blocks []uint64) int {
	for i, b := range blocks {
		if c.where[b] == nil {
			return i
		}
	}
	return len(blocks)
}

func (c *cache) use(blocks []uint64) {
	for _, b := range slices.Backward(blocks) {
		if e := c.where[b]; e != nil {
			c.order.MoveToFront(e)
			continue
		}
		c.where[b] = c.order.PushFront(b)
	}
	for c.order.Len() > c.size {
		e := c.order.Back()
		delete(c.where, e.Value.(uint64))
		c.order.Remove(e)
	}
}

// bench replays a trace over engines whose load is the work of the last 30 s.
type replay struct {
	caches []*cache
	work   []float64 // by engine, in the window
	done   []float64 // by engine, over the whole trace
	window []event
	hit    int
	blocks int
}

type event struct {
	at     float64
	engine int
	work   float64
	end    func()
}

const windowSeconds = 30

func newReplay(engines, size int) *replay {
	r := &replay{work: make([]float64, engines), done: make([]float64, engines)}
	for range engines {
		r.caches = append(r.caches, newCache(size))
	}
	return r
}

// expire takes out what left the window.
func (r *replay) expire(at float64) {
	for len(r.window) > 0 && r.window[0].at < at-windowSeconds {
		e := r.window[0]
		r.window = r.window[1:]
		r.work[e.engine] -= e.work
		if e.end != nil {
			e.end()
		}
	}
}

// cost is a request's work at an engine: the blocks that miss, and a tenth for
// each that hits.
func (r *replay) cost(q traced, engine int) float64 {
	hits := r.caches[engine].hits(q.Blocks)
	return float64(len(q.Blocks)-hits) + 0.1*float64(hits)
}

// serve gives a request to an engine.
func (r *replay) serve(q traced, engine int, end func()) {
	work := r.cost(q, engine)
	hits := r.caches[engine].hits(q.Blocks)
	r.caches[engine].use(q.Blocks)
	r.work[engine] += work
	r.done[engine] += work
	r.window = append(r.window, event{q.At, engine, work, end})
	r.hit += hits
	r.blocks += len(q.Blocks)
}

func (r *replay) result() (hitRate, maxOverMean float64) {
	sum := 0.0
	for _, w := range r.done {
		sum += w
	}
	return float64(r.hit) / float64(r.blocks), slices.Max(r.done) * float64(len(r.done)) / sum
}

// exactIndex knows every cache and takes the engine of least cost: the work that
// misses and the work ahead. It is what an index could do at best.
func exactIndex(trace []traced, engines, size int) (float64, float64) {
	r := newReplay(engines, size)
	for _, q := range trace {
		r.expire(q.At)
		best, cost := 0, 0.0
		for e, c := range r.caches {
			miss := float64(len(q.Blocks) - c.hits(q.Blocks))
			if x := miss + r.work[e]/4; e == 0 || x < cost {
				best, cost = e, x
			}
		}
		r.serve(q, best, nil)
	}
	return r.result()
}

func roundRobin(trace []traced, engines, size int) (float64, float64) {
	r := newReplay(engines, size)
	for i, q := range trace {
		r.expire(q.At)
		r.serve(q, i%engines, nil)
	}
	return r.result()
}

// byPicker routes by the production code: the key that key gives, the slot table
// and the bound. A request is picked by the size of its prompt, and in flight for
// as long as its work takes: what the cache holds is soon done.
func byPicker(trace []traced, engines, size int, eps float64, key func(q traced, now int64) uint64) (float64, float64) {
	s := &fleet.Snapshot{Cluster: "c", Rows: []fleet.SnapshotRow{{Model: "m"}}}
	for i := range engines {
		s.Engines = append(s.Engines, fleet.SnapshotEngine{Name: fmt.Sprint("engine-", i), Capacity: 1})
		s.Rows[0].Targets = append(s.Rows[0].Targets, fleet.Target{Engine: int32(i), Weight: 1 / float64(engines), Predicted: 1})
	}
	row := New(s, NewFlights(), eps, nil).Row("m")
	r := newReplay(engines, size)
	for _, q := range trace {
		r.expire(q.At)
		now := int64(q.At * 1e9)
		p := row.Pick(key(q, now), int64(10*len(q.Blocks)), now)
		e := p.At(0)
		charge := row.Targets()[e].Flight.Charge(int64(10*r.cost(q, e)), 0)
		r.serve(q, e, charge.Release)
	}
	return r.result()
}

func adaptive(engines int) func(traced, int64) uint64 {
	s := NewPopularity(engines)
	return func(q traced, now int64) uint64 {
		p := &Prefix{}
		for _, b := range q.Blocks {
			p.hashes = append(p.hashes, mix(b+phi))
		}
		key, _ := s.Key(p, engines, now)
		return key
	}
}

func firstBlock(q traced, _ int64) uint64 { return mix(q.Blocks[0] + phi) }

// checkReplay compares the adaptive key with an exact index, and shows the others
// beside.
func checkReplay(t *testing.T, trace []traced, eps, maxSpread float64) {
	for _, c := range []struct{ engines, size int }{{8, 4000}, {16, 2000}} {
		hit, spread := byPicker(trace, c.engines, c.size, eps, adaptive(c.engines))
		exact, exactSpread := exactIndex(trace, c.engines, c.size)
		robin, _ := roundRobin(trace, c.engines, c.size)
		first, firstSpread := byPicker(trace, c.engines, c.size, eps, firstBlock)
		t.Logf("%d engines of %d blocks: adaptive hit %.3f max/mean %.3f; exact index %.3f %.3f; first block %.3f %.3f; round robin %.3f",
			c.engines, c.size, hit, spread, exact, exactSpread, first, firstSpread, robin)
		require.GreaterOrEqual(t, hit, 0.97*exact)
		require.LessOrEqual(t, spread, maxSpread)
		require.Greater(t, hit, 1.5*robin)
	}
}

func TestReplay(t *testing.T) {
	checkReplay(t, conversations(12_000, rand.New(rand.NewPCG(1, 1))), 0.25, 1.25)
}

func TestReplayMooncake(t *testing.T) {
	checkReplay(t, mooncake(t, rand.New(rand.NewPCG(1, 1))), 0.5, 1.15)
}
