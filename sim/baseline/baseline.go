package baseline

import (
	"math"
	"time"

	"github.com/wardrop-lb/wardrop/sim"
)

// Policies are all rules, by name.
func Policies() map[string]sim.Maker {
	return map[string]sim.Maker{
		"round-robin":   maker(roundRobin),
		"random":        maker(random),
		"least-request": maker(leastRequest),
		"p2c":           maker(twoChoices),
		"nearest":       maker(nearest),
		"waterfall":     maker(newWaterfall),

		"prequal":                 maker(newPrequal),
		"latency-feedback":        maker(newFeedback),
		"endpoint-picker":         maker(newEndpointPicker),
		"cache-aware":             maker(newCacheAware),
		"consistent-hash-bounded": maker(newHashBounded),
		"skywalker":               maker(newSkyWalker),
		"gorgo":                   maker(newGorgo),
	}
}

// retries is how often a request may go to another engine, as gateways have it by
// default.
const retries = 1

// rule is what one router does that another does not. Only pick is required.
type rule struct {
	// pick names one of the engines that a request may go to; candidates is never empty
	// and not to be kept.
	pick func(r *sim.Request, candidates []int) int
	// sent follows when the request has been counted among its engine's.
	sent func(r *sim.Request, engine int)
	// done tells how an attempt ended, when it is no longer counted.
	done func(r *sim.Request, o sim.Outcome)
}

// base is what rules have in common: who is up, and each cluster's own requests in
// flight.
type base struct {
	sim.Env
	rule     rule
	inFlight [][]int      // by cluster and engine
	turn     [][]int      // by cluster and model
	seen     [][]snapshot // by cluster and engine; nil until a rule asks for loads
	possible []int
}

// snapshot is what a cluster had in an engine when a reading came.
type snapshot struct {
	at  time.Duration
	own int
}

// maker makes routers of a rule.
func maker(build func(*base) rule) sim.Maker {
	return func(e sim.Env) sim.Router {
		b := newBase(e)
		b.rule = build(b)
		return b
	}
}

func newBase(e sim.Env) *base {
	f := e.Fleet()
	b := &base{Env: e}
	for range f.Clusters {
		b.inFlight = append(b.inFlight, make([]int, len(f.Engines)))
		b.turn = append(b.turn, make([]int, len(f.Models)))
	}
	return b
}

// candidates are the engines that serve a request's model and seem to be up, but for
// the one that has just failed it. Where none is left, those that failed or are being
// drained count, and in the end all.
func (b *base) candidates(r *sim.Request) []int {
	failed := -1
	if r.Attempts > 0 {
		failed = r.Engine
	}
	up := func(e int) bool { return b.Up(r.Cluster, e) }
	if c := b.those(r, func(e int) bool { return e != failed && !b.Drained(e) && up(e) }); len(c) > 0 {
		return c
	}
	if c := b.those(r, func(e int) bool { return !b.Drained(e) && up(e) }); len(c) > 0 {
		return c
	}
	if c := b.those(r, up); len(c) > 0 {
		return c
	}
	return b.Fleet().Serving[r.Model]
}

func (b *base) those(r *sim.Request, fit func(e int) bool) []int {
	b.possible = b.possible[:0]
	for _, e := range b.Fleet().Serving[r.Model] {
		if fit(e) {
			b.possible = append(b.possible, e)
		}
	}
	return b.possible
}

// Route implements sim.Router.
func (b *base) Route(r *sim.Request) (int, bool) {
	if r.Attempts > retries {
		return 0, false
	}
	e := b.rule.pick(r, b.candidates(r))
	b.inFlight[r.Cluster][e]++
	if b.rule.sent != nil {
		b.rule.sent(r, e)
	}
	return e, true
}

// FirstToken implements sim.Router.
func (b *base) FirstToken(*sim.Request) {}

// Done implements sim.Router.
func (b *base) Done(r *sim.Request, o sim.Outcome) {
	b.inFlight[r.Cluster][r.Engine]--
	if b.rule.done != nil {
		b.rule.done(r, o)
	}
}

// least gives the candidate of least cost; of several the one whose turn it is.
func (b *base) least(r *sim.Request, candidates []int, cost func(e int) float64) int {
	turn := &b.turn[r.Cluster][r.Model]
	*turn++
	best, lowest := -1, math.Inf(1)
	for i := range candidates {
		e := candidates[(*turn+i)%len(candidates)]
		if c := cost(e); best < 0 || c < lowest {
			best, lowest = e, c
		}
	}
	return best
}

func (b *base) any(candidates []int) int {
	return candidates[b.Random().IntN(len(candidates))]
}

// own is how many of a cluster's requests are in an engine.
func (b *base) own(cluster, engine int) float64 { return float64(b.inFlight[cluster][engine]) }

// load is the requests in an engine as the cluster can know: the newest reading, and
// by how much its own have become more or fewer since it came.
func (b *base) load(cluster, engine int) float64 {
	own := b.inFlight[cluster][engine]
	x, ok := b.Reading(cluster, engine)
	if !ok {
		return float64(own)
	}
	if b.seen == nil {
		f := b.Fleet()
		for range f.Clusters {
			b.seen = append(b.seen, make([]snapshot, len(f.Engines)))
		}
	}
	s := &b.seen[cluster][engine]
	if s.at != x.At {
		*s = snapshot{x.At, own}
	}
	return float64(max(own, x.Running+x.Waiting+own-s.own))
}
