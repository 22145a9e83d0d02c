package latency

import (
	"math"

	"github.com/wardrop-lb/wardrop/fleet"
)

// Pace is what was seen of an engine over a while, in means.
type Pace struct {
	Seconds  float64 // how long; > 0
	Arrived  float64 // requests/s that were sent there, by work
	Finished float64 // requests/s that came to their end, by work
	InEngine float64 // requests in the engine, running and waiting, by work
}

const (
	// slowdownLook is how far back, in seconds, the two windows look: one that is quick
	// and one that is sure.
	slowdownLook, slowdownLong = 10.0, 60.0
	// slowdownIdle is how many times faster an engine that has nothing is forgotten.
	slowdownIdle = 32
	// slowdownStays is how many times a request's stay a window is long at least: what
	// is in the engine follows what arrives by that.
	slowdownStays = 3
	// slowdownStretch bounds that: a window is so many times as long at most.
	slowdownStretch = 4
	// slowdownFade is the time in seconds in which the logarithm of a slowdown of which
	// nothing is seen any more falls to 1/e: a mark is never a latch.
	slowdownFade = 30
	// slowdownSure is how many standard errors a slowdown must lie beyond chance.
	slowdownSure = 3
	// slowdownLeast is the factor under which it is the profile that is not exact.
	slowdownLeast = 1.5
	slowdownMost  = 16 // beyond, an engine gets nothing whatever it is
)

// Slowdown finds out how many times slower than its profile an engine is. An engine
// that takes s times as long holds, at u requests/s, what one by its profile holds at s u;
// so with n requests in it, s is the load whose Phi is n, over u. u is the
// greater of what arrived and what finished: a crowd that has just come in has not
// finished yet, and one that is still there has arrived before.
//
// What is believed lies within what chance leaves open, in both windows. It
// falls towards 1 by itself, so that an engine of which nothing is seen, because it gets
// nothing, is tried again. The zero value is ready: no slowdown. Not safe for
// concurrent use.
type Slowdown struct {
	short, long paceSums
	log         float64 // of the factor, >= 0
}

// paceSums are fading sums over time; implied is of the load that would hold what is inside.
type paceSums struct{ seconds, arrived, finished, inside, implied float64 }

// Observe takes what was seen since the last call of an engine whose profile, as it
// should be, is m. Values that are not finite, or out of range, are left out.
func (s *Slowdown) Observe(m *Model, p Pace) {
	for _, x := range [...]float64{p.Arrived, p.Finished, p.InEngine} {
		if !(x >= 0 && x < huge) {
			return
		}
	}
	if !(p.Seconds > 0 && p.Seconds < huge) {
		return
	}
	s.log *= math.Exp(-p.Seconds / slowdownFade)
	if p.Arrived+p.Finished+p.InEngine == 0 {
		// What was seen before is no news, and soon forgotten.
		s.long.add(p, 0, slowdownLong/slowdownIdle)
		s.short.add(p, 0, slowdownLook/slowdownIdle)
		return
	}
	// However many are in it, no engine does more than it can. And it is the loads that
	// have a mean over time: that of what is inside is a crowd's that is long gone.
	implied := min(m.Load(p.InEngine), m.Saturation())
	s.long.add(p, implied, slowdownLong)
	s.short.add(p, implied, slowdownLook)
	// The short window last: it is the one that sees an engine recover.
	s.clamp(s.long.factor())
	s.clamp(s.short.factor())
}

// Factor is how many times slower than its profile the engine is, 1 to 16.
func (s *Slowdown) Factor() float64 { return math.Exp(s.log) }

// clamp moves the belief into what was measured.
func (s *Slowdown) clamp(low, high float64) {
	if low > math.Log(slowdownLeast) && low > s.log {
		s.log = min(low, math.Log(slowdownMost))
	}
	if high < s.log {
		s.log = max(high, 0)
	}
}

func (w *paceSums) add(p Pace, implied, look float64) {
	if u := max(w.arrived, w.finished); u > 0 {
		look = max(look, min(slowdownStays*w.inside/u, slowdownStretch*look))
	}
	fade := math.Exp(-p.Seconds / look)
	w.seconds = w.seconds*fade + p.Seconds
	w.arrived = w.arrived*fade + p.Arrived*p.Seconds
	w.finished = w.finished*fade + p.Finished*p.Seconds
	w.inside = w.inside*fade + p.InEngine*p.Seconds
	w.implied = w.implied*fade + implied*p.Seconds
}

// factor gives the range in which the logarithm of the factor lies; all numbers when
// there is nothing to tell it by.
func (w *paceSums) factor() (low, high float64) {
	requests, n := max(w.arrived, w.finished), w.inside/w.seconds
	if !(requests >= 1 && n > 0) {
		return math.Inf(-1), math.Inf(1)
	}
	measured := math.Log(w.implied / requests)
	// Counts err by their root. What is in the engine does too, and two looks at it
	// say the same until a request's stay has passed.
	looks := max(1, requests/(2*n))
	doubt := slowdownSure * math.Sqrt(1/requests+1/(n*looks))
	return measured - doubt, measured + doubt
}

// Slowed is the profile of an engine that takes factor times as long; factor >= 1.
func Slowed(p fleet.Profile, factor float64) fleet.Profile {
	p.T0, p.FirstToken, p.UMax = p.T0*factor, p.FirstToken*factor, p.UMax/factor
	return p
}

// Load is the load in requests/s at which the mean number of requests in the engine is n;
// 0 for an n that is not above 0.
func (m Model) Load(n float64) float64 {
	if !(n > 0) {
		return 0
	}
	// Phi is convex and at least T0 u: the chord from 0 bounds the load from above, and
	// Newton's method from there comes down to it.
	u := n / m.t0
	if edge := m.top.Phi; n > edge {
		// The parabola's root, in the form that loses no digits.
		d := n - edge
		return m.edge + 2*d/(m.top.Slope+math.Sqrt(m.top.Slope*m.top.Slope+2*m.top.Bend*d))
	}
	u = min(u, m.edge)
	for range 100 {
		at := At(&m, u)
		next := u - (at.Phi-n)/at.Slope
		if !(next < u) {
			break
		}
		u = next
	}
	return u
}
