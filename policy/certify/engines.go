package certify

import (
	"errors"
	"fmt"
	"math"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/latency"
)

// engine is one engine of the plan as the view describes it. Load, caps and prices
// count requests by their work.
type engine struct {
	view    *fleet.Engine
	profile fleet.Profile // that curve, full, limits and top are of
	known   bool
	curve   latency.Model // of what its latency is worth
	full    float64       // work/s: the hard cap
	limits  limits        // on what its requests hold, where the mixture matters; else 0
	top     float64       // seconds: slope at the cap
	cap     float64       // work/s: the hard cap, or what the ramp leaves of it
	price   float64       // seconds per work, from the plan's terms
	limit   limits        // prices of the limits
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
		if !e.known || e.profile != v.Profile {
			c.describe(e, x.serves[i])
		}
		if err := errors.Join(c.terms(e, p), c.owned(e, p, x.serves[i])); err != nil {
			return fmt.Errorf("engine %q: %w", p.Name, err)
		}
	}
	c.base = sized(c.base, x.parts)
	for i := range c.engine {
		e, base := &c.engine[i], &c.base[x.part[i]]
		for _, m := range x.serves[i] {
			dearest := c.asks[m].work*e.top + c.own(e, x.serves[i], m)
			*base = max(*base, x.far[i]+e.view.Offset+e.view.Penalty+dearest+c.problem.RowChurn()+c.problem.EngineChurn())
		}
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
	if !(p.TokenPrice >= 0 && p.SlotPrice >= 0) || math.IsInf(p.TokenPrice+p.SlotPrice, 1) {
		return fmt.Errorf("prices %v and %v of its limits are not numbers of at least 0", p.TokenPrice, p.SlotPrice)
	}
	slope := p.Latency + p.Congestion
	if !(slope >= e.curve.Latency(0)*(1-termTolerance) && slope <= e.top*(1+termTolerance)) {
		return fmt.Errorf("latency and congestion %v s belong to no load up to the cap", slope)
	}
	u := e.loadAt(slope, p.Load)
	if want := e.curve.Latency(u); !near(p.Latency, want, termTolerance*slope) {
		return fmt.Errorf("latency %v does not fit congestion %v", p.Latency, p.Congestion)
	}
	at := e.curve.At(u)
	e.price, e.limit = at.Slope+p.Cap, limits{p.TokenPrice, p.SlotPrice}
	// Phi lies above its tangent at u, and no load exceeds the caps.
	c.bound += at.Phi - at.Slope*u - p.Cap*e.cap
	for r, price := range e.limit {
		if price > 0 && e.limits[r] == 0 {
			return fmt.Errorf("a limit has the price %v that is none of its own", price)
		}
		c.bound -= price * e.limits[r]
	}
	return nil
}

// loadAt finds the load, between 0 and the cap, whose slope is given, near a
// guess.
func (e *engine) loadAt(slope, guess float64) float64 {
	if slope <= e.curve.Latency(0) {
		return 0 // of a curve that begins flat Newton would not find where
	}
	low, high := 0.0, e.full
	u := high / 2
	if guess > 0 && guess < high {
		u = guess
	}
	for i := range 200 {
		at := e.curve.At(u)
		if math.Abs(at.Slope-slope) <= 1e-13*slope {
			break
		}
		if at.Slope < slope {
			low = u
		} else {
			high = u
		}
		// Newton where it stays inside, else halve; where that takes long, the curve is of
		// so high a power that Newton alone would creep.
		next := u + (slope-at.Slope)/at.Bend
		if !(next > low && next < high) || i > 20 && i%2 == 0 {
			next = low + (high-low)/2
		}
		if next == u {
			break
		}
		u = next
	}
	return u
}

// loads compares recorded loads, caps and limits with the recomputed ones, and adds
// what the engines cost.
func (c *Checker) loads() error {
	x := &c.index
	load, held := c.past.scratch(len(c.engine)), [len(limits{})][]float64{}
	for r := range held {
		c.held[r] = sized(c.held[r], len(c.engine))
		held[r] = c.held[r]
	}
	for m, targets := range x.targets {
		for j, n := range targets {
			e, flow := &c.engine[n], c.flow[int(x.start[m])+j]
			load[n] += flow * c.asks[m].work
			for r, h := range c.asks[m].holds {
				held[r][n] += flow * h
			}
			c.objective += flow * (e.view.Penalty + c.own(e, x.serves[n], int32(m)))
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
		for r, limit := range e.limits {
			if limit == 0 {
				continue
			}
			c.excess = max(c.excess, held[r][i]/limit-1)
			if !(held[r][i] <= limit*(1+capTolerance)) {
				return fmt.Errorf("engine %q: its requests hold %v %s, more than the limit %v", e.view.Name, held[r][i], limitNames[r], limit)
			}
		}
		c.objective += e.curve.Phi(u)
		c.bare += u * e.profile.T0
	}
	return nil
}
