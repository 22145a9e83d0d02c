package certify

import (
	"fmt"
	"math"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/latency"
)

// engine is one engine of the plan as the view describes it.
type engine struct {
	view    *fleet.Engine
	profile fleet.Profile // that curve, full and top are of
	holds   fleet.Model   // the same
	curve   latency.Model
	full    float64 // requests/s: the hard cap
	top     float64 // seconds: slope at the cap
	cap     float64 // requests/s: the hard cap, or what the ramp leaves of it
	price   float64 // seconds, from the plan's terms
}

// engines matches the plan's engines with the view's, and takes the prices and
// the engines' part of the bound from the recorded terms.
func (c *Checker) engines() error {
	x := &c.index
	if len(c.plan.Engines) != len(x.order) {
		return fmt.Errorf("%d engines where the view has %d", len(c.plan.Engines), len(x.order))
	}
	if len(c.engine) != len(x.order) {
		c.engine = make([]engine, len(x.order))
	}
	for i := range c.plan.Engines {
		p, v, e := &c.plan.Engines[i], &c.view.Engines[x.order[i]], &c.engine[i]
		if p.Name != v.Name {
			return fmt.Errorf("engine %q is not in the view, or not sorted by name", p.Name)
		}
		e.view = v
		if h := x.holds[i]; e.profile != v.Profile || e.holds != h {
			e.profile, e.holds, e.curve = v.Profile, h, latency.New(v.Profile)
			e.full = e.curve.Capacity()
			if h.TokenSeconds > 0 && v.Profile.Tokens > 0 {
				e.full = min(e.full, v.Profile.Tokens/h.TokenSeconds)
			}
			if h.SlotSeconds > 0 && v.Profile.Slots > 0 {
				e.full = min(e.full, v.Profile.Slots/h.SlotSeconds)
			}
			e.top = e.curve.At(e.full).Slope
		}
		if err := c.terms(e, p); err != nil {
			return fmt.Errorf("engine %q: %w", p.Name, err)
		}
	}
	c.base = sized(c.base, x.parts)
	for i := range c.engine {
		e, base := &c.engine[i], &c.base[x.part[i]]
		*base = max(*base, x.far[i]+e.view.Offset+e.view.Penalty+e.top+c.problem.RowChurn()+c.problem.EngineChurn())
	}
	return nil
}

// terms checks an engine's recorded terms. Latency and congestion must belong to
// one load, though not exactly to the plan's: prices are the solver's, and the
// weights were snapped after.
func (c *Checker) terms(e *engine, p *fleet.EngineLoad) error {
	e.cap = e.full
	if r := e.view.Ramp; r > 0 && near(p.Capacity, r*e.full, figureTolerance*e.full) {
		e.cap = r * e.full
	}
	if !near(p.Capacity, e.cap, figureTolerance*e.cap) {
		return fmt.Errorf("capacity is recorded as %v, is %v", p.Capacity, e.cap)
	}
	if !near(p.Penalty, e.view.Penalty, figureTolerance*e.view.Penalty) {
		return fmt.Errorf("penalty is recorded as %v, is %v", p.Penalty, e.view.Penalty)
	}
	if !(p.Cap >= 0) || math.IsInf(p.Cap, 1) {
		return fmt.Errorf("cap price %v is not a number of at least 0", p.Cap)
	}
	slope := p.Latency + p.Congestion
	if !(slope >= e.view.Profile.T0*(1-termTolerance) && slope <= e.top*(1+termTolerance)) {
		return fmt.Errorf("latency and congestion %v s belong to no load up to the cap", slope)
	}
	u := e.loadAt(slope, p.Load)
	if want := e.curve.Latency(u); !near(p.Latency, want, termTolerance*slope) {
		return fmt.Errorf("latency %v does not fit congestion %v", p.Latency, p.Congestion)
	}
	at := e.curve.At(u)
	e.price = at.Slope + p.Cap + e.view.Penalty
	// Phi lies above its tangent at u, and no load exceeds the cap.
	c.bound += at.Phi - at.Slope*u - p.Cap*e.cap
	return nil
}

// loadAt finds the load, between 0 and the cap, whose slope is given, near a
// guess.
func (e *engine) loadAt(slope, guess float64) float64 {
	low, high := 0.0, e.full
	u := high / 2
	if guess > 0 && guess < high {
		u = guess
	}
	for range 200 {
		at := e.curve.At(u)
		if math.Abs(at.Slope-slope) <= 1e-13*slope {
			break
		}
		if at.Slope < slope {
			low = u
		} else {
			high = u
		}
		// Newton where it stays inside, else halve.
		next := u + (slope-at.Slope)/at.Bend
		if !(next > low && next < high) {
			next = low + (high-low)/2
		}
		if next == u {
			break
		}
		u = next
	}
	return u
}

// loads compares recorded loads and caps with the recomputed loads, and adds
// what the engines cost.
func (c *Checker) loads() error {
	x := &c.index
	load := c.past.scratch(len(c.engine))
	for m, targets := range x.targets {
		for j, n := range targets {
			load[n] += c.flow[int(x.start[m])+j]
		}
	}
	for i := range c.engine {
		e, u := &c.engine[i], load[i]
		if recorded := c.plan.Engines[i].Load; !near(recorded, u, figureTolerance*e.cap) {
			return fmt.Errorf("engine %q: load is recorded as %v, weights give %v", e.view.Name, recorded, u)
		}
		c.excess = max(c.excess, u/e.cap-1)
		if !(u <= e.cap*(1+capTolerance)) {
			return fmt.Errorf("engine %q: load %v exceeds the cap %v", e.view.Name, u, e.cap)
		}
		c.objective += e.curve.Phi(u) + e.view.Penalty*u
	}
	return nil
}
