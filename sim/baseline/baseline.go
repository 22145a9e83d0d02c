package baseline

import (
	"github.com/wardrop-lb/wardrop/sim"
)

// Policies are all rules, by name.
func Policies() map[string]sim.Maker {
	return map[string]sim.Maker{
		"round-robin":   simple(roundRobin),
		"random":        simple(random),
		"least-request": simple(leastRequest),
		"p2c":           simple(twoChoices),
		"nearest":       simple(nearest),
		"waterfall":     simple(waterfall),
	}
}

// retries is how often a request may go to another engine, as gateways have it by
// default.
const retries = 1

// chooser names one of the engines that a request may go to; candidates is never
// empty.
type chooser func(b *base, r *sim.Request, candidates []int) int

// base is what rules have in common: who is up, and each cluster's own requests in
// flight.
type base struct {
	sim.Env
	choose   chooser
	inFlight [][]int // by cluster and engine
	turn     [][]int // by cluster and model
	possible []int
	tried    map[uint64]int // engine of a request's last attempt
}

func simple(c chooser) sim.Maker {
	return func(e sim.Env) sim.Router { return newBase(e, c) }
}

func newBase(e sim.Env, c chooser) *base {
	f := e.Fleet()
	b := &base{Env: e, choose: c, tried: map[uint64]int{}}
	for range f.Clusters {
		b.inFlight = append(b.inFlight, make([]int, len(f.Engines)))
		b.turn = append(b.turn, make([]int, len(f.Models)))
	}
	return b
}

// candidates are the engines that serve a request's model and seem to be up, but for
// the one that has just failed it; all of them where none is left.
func (b *base) candidates(r *sim.Request) []int {
	serving := b.Fleet().Serving[r.Model]
	b.possible = b.possible[:0]
	failed := -1
	if r.Attempts > 0 {
		failed = b.tried[r.ID]
	}
	for _, e := range serving {
		if e != failed && !b.Drained(e) && b.Up(r.Cluster, e) {
			b.possible = append(b.possible, e)
		}
	}
	if len(b.possible) == 0 {
		return serving
	}
	return b.possible
}

// Route implements sim.Router.
func (b *base) Route(r *sim.Request) (int, bool) {
	if r.Attempts > retries {
		delete(b.tried, r.ID)
		return 0, false
	}
	e := b.choose(b, r, b.candidates(r))
	b.inFlight[r.Cluster][e]++
	return e, true
}

// FirstToken implements sim.Router.
func (b *base) FirstToken(*sim.Request) {}

// Done implements sim.Router.
func (b *base) Done(r *sim.Request, o sim.Outcome) {
	b.inFlight[r.Cluster][r.Engine]--
	if o == sim.Failed || o == sim.Unreachable {
		b.tried[r.ID] = r.Engine
	} else if r.Attempts > 1 {
		delete(b.tried, r.ID)
	}
}

// least gives the candidate of least cost; of several the one whose turn it is.
func (b *base) least(r *sim.Request, candidates []int, cost func(e int) float64) int {
	turn := &b.turn[r.Cluster][r.Model]
	*turn++
	best, lowest := -1, 0.0
	for i := range candidates {
		e := candidates[(*turn+i)%len(candidates)]
		if c := cost(e); best < 0 || c < lowest {
			best, lowest = e, c
		}
	}
	return best
}

func roundRobin(b *base, r *sim.Request, candidates []int) int {
	turn := &b.turn[r.Cluster][r.Model]
	*turn++
	return candidates[*turn%len(candidates)]
}

func random(b *base, _ *sim.Request, candidates []int) int {
	return candidates[b.Random().IntN(len(candidates))]
}

// leastRequest is the router's own least number of requests in flight: SkyServe's
// default, smg's and litellm's least-busy.
func leastRequest(b *base, r *sim.Request, candidates []int) int {
	return b.least(r, candidates, func(e int) float64 { return float64(b.inFlight[r.Cluster][e]) })
}

// twoChoices is the better of two at random (Mitzenmacher 2001), Envoy's LEAST_REQUEST.
func twoChoices(b *base, r *sim.Request, candidates []int) int {
	x, y := random(b, r, candidates), random(b, r, candidates)
	if b.inFlight[r.Cluster][y] < b.inFlight[r.Cluster][x] {
		return y
	}
	return x
}

// nearest is the engine of least distance; of several the one with fewest requests.
func nearest(b *base, r *sim.Request, candidates []int) int {
	far := b.Fleet().Distance[r.Cluster]
	return b.least(r, candidates, func(e int) float64 {
		return far[e]*1e6 + float64(b.inFlight[r.Cluster][e])
	})
}

// full is the part of an engine's capacity from which on waterfall counts a region as
// full: Google's default target for spilling over.
const full = 0.8

// waterfall fills the nearest region up to its capacity and spills what is beyond into
// the next, as Google's waterfall by region does; its capacity is in requests in
// flight, as the region's newest readings have it.
func waterfall(b *base, r *sim.Request, candidates []int) int {
	far := b.Fleet().Distance[r.Cluster]
	best, lowest := -1, 0.0
	for pass := range 2 {
		for _, e := range candidates {
			x := &b.Fleet().Engines[e]
			used := b.load(r.Cluster, e) / (full * float64(x.Slots))
			if pass == 0 && used >= 1 {
				continue
			}
			if c := far[e] + 1e-3*used; best < 0 || c < lowest {
				best, lowest = e, c
			}
		}
		if best >= 0 {
			break
		}
	}
	return best
}

// load is the requests in an engine, as last read and what this cluster has sent since
// at the least.
func (b *base) load(cluster, e int) float64 {
	own := float64(b.inFlight[cluster][e])
	if x, ok := b.Reading(cluster, e); ok {
		return max(own, float64(x.Running+x.Waiting))
	}
	return own
}
