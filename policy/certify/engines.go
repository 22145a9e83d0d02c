package certify

import (
	"fmt"
	"math"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/latency"
)

// engine is one engine of the plan as the view describes it.
type engine struct {
	view   *fleet.Engine
	region int32
	curve  latency.Model
	cap    float64 // requests/s
	base   float64 // seconds: of its component, see policy.Problem
	price  float64 // seconds, from the plan's terms
}

// engines matches the plan's engines with the view's, and takes the prices and
// the engines' part of the bound from the recorded terms.
func (c *checker) engines() error {
	byName := make(map[string]*fleet.Engine, len(c.view.Engines))
	for i := range c.view.Engines {
		byName[c.view.Engines[i].Name] = &c.view.Engines[i]
	}
	c.serves, c.regions = map[string][]int32{}, map[string]int32{}
	if len(c.plan.Engines) != len(byName) {
		return fmt.Errorf("%d engines where the view has %d", len(c.plan.Engines), len(byName))
	}
	c.number = make(map[string]int32, len(byName))
	c.engine = make([]engine, len(byName))
	for i := range c.plan.Engines {
		p := &c.plan.Engines[i]
		v := byName[p.Name]
		if v == nil {
			return fmt.Errorf("engine %q is not in the view", p.Name)
		}
		if i > 0 && p.Name <= c.plan.Engines[i-1].Name {
			return fmt.Errorf("engine %q: not sorted by name", p.Name)
		}
		c.number[p.Name] = int32(i)
		if _, ok := c.regions[v.Region]; !ok {
			c.regions[v.Region] = int32(len(c.regions))
		}
		for _, m := range v.Models {
			c.serves[m] = append(c.serves[m], int32(i))
		}
		e := engine{view: v, region: c.regions[v.Region], curve: latency.New(v.Profile)}
		e.cap = e.curve.Capacity()
		if err := c.terms(&e, p); err != nil {
			return fmt.Errorf("engine %q: %w", p.Name, err)
		}
		c.engine[i] = e
	}
	c.bases()
	return nil
}

// terms checks an engine's recorded terms. Latency and congestion must belong to
// one load, though not exactly to the plan's: prices are the solver's, and the
// weights were snapped after.
func (c *checker) terms(e *engine, p *fleet.EngineLoad) error {
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
	if top := e.curve.At(e.cap).Slope; !(slope >= e.curve.At(0).Slope*(1-termTolerance) && slope <= top*(1+termTolerance)) {
		return fmt.Errorf("latency and congestion %v s belong to no load up to the cap", slope)
	}
	u := e.loadAt(slope)
	if want := e.curve.Latency(u); !near(p.Latency, want, termTolerance*slope) {
		return fmt.Errorf("latency %v does not fit congestion %v", p.Latency, p.Congestion)
	}
	at := e.curve.At(u)
	e.price = at.Slope + p.Cap + e.view.Penalty
	// Phi lies above its tangent at u, and no load exceeds the cap.
	c.bound += at.Phi - at.Slope*u - p.Cap*e.cap
	return nil
}

// loadAt finds the load, between 0 and the cap, whose slope is given.
func (e *engine) loadAt(slope float64) float64 {
	low, high := 0.0, e.cap
	u := high / 2
	for range 200 {
		at := e.curve.At(u)
		if math.Abs(at.Slope-slope) <= 1e-14*slope {
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

// bases finds, for each component of engines joined by models, the dearest
// request that could be admitted.
func (c *checker) bases() {
	far := map[string]float64{}
	for _, d := range c.view.Distances {
		far[d.Region] = max(far[d.Region], d.Seconds)
	}
	component := make([]int, len(c.engine))
	members := map[int][]int{}
	owner := map[string]int{} // model -> its component
	for i := range c.engine {
		component[i] = i
		members[i] = []int{i}
		for _, m := range c.engine[i].view.Models {
			other, ok := owner[m]
			if !ok {
				owner[m] = component[i]
				continue
			}
			other = component[other]
			mine := component[i]
			if other == mine {
				continue
			}
			if len(members[other]) < len(members[mine]) {
				other, mine = mine, other
			}
			for _, j := range members[mine] {
				component[j] = other
			}
			members[other] = append(members[other], members[mine]...)
			delete(members, mine)
		}
	}
	for _, list := range members {
		base := 0.0
		for _, i := range list {
			e := &c.engine[i]
			base = max(base, far[e.view.Region]+e.view.Offset+e.view.Penalty+e.curve.At(e.cap).Slope+c.problem.Lambda)
		}
		for _, i := range list {
			c.engine[i].base = base
		}
	}
}

// loads compares recorded loads and caps with the recomputed loads, and adds
// what the engines cost.
func (c *checker) loads() error {
	c.excess = math.Inf(-1)
	for i := range c.engine {
		e, u := &c.engine[i], c.load[i]
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
