package optimal

import (
	"math"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/latency"
	"github.com/wardrop-lb/wardrop/policy/internal/table"
)

// state is where a row's weights come from.
type state uint8

const (
	idle   state = iota // it sends nothing: no solution says where
	stays               // the last plan's
	solved              // the optimum's
)

// result is the optimum of all components, added up as the network has it: by
// cell, and by engine and model.
type result struct {
	*tick
	cell       []float64  // by cell: fraction of what the row lets in
	flow       []float64  // by element of Serving: requests/s
	rowPrice   []float64  // by row: seconds of one more request
	groupPrice []float64  // by group: seconds on arrival
	shed       []shedding // by row
	trace      []shedding // by row: with what may be a trace of the interior method
	state      []state
	engine     []fleet.EngineLoad // by engine: terms and capacity
	stayed     bool               // some component keeps its last weights
}

// trifle is the fraction of a row below which a flow is the solver's rounding.
// It is less than capMargin, so that dropping it breaks no cap.
const trifle = 0.3 * capMargin

func (r *result) reset(t *tick) {
	r.tick, r.stayed = t, false
	tab := t.t
	r.cell = resize(r.cell, len(tab.Clusters)*tab.Groups())
	r.flow = resize(r.flow, tab.ServingCount())
	r.rowPrice = resize(r.rowPrice, len(tab.Rate))
	r.groupPrice = resize(r.groupPrice, tab.Groups())
	r.shed, r.trace = resize(r.shed, len(tab.Rate)), resize(r.trace, len(tab.Rate))
	r.state = resize(r.state, len(tab.Rate))
	r.engine = resize(r.engine, len(tab.Engines))
	clear(r.cell)
	clear(r.flow)
	clear(r.shed)
	clear(r.trace)
	clear(r.state)
	clear(r.rowPrice)
	for g := range r.groupPrice {
		r.groupPrice[g] = math.NaN()
	}
	for i, e := range tab.Engines {
		r.engine[i] = fleet.EngineLoad{
			Name: e.Name, Capacity: tab.Cap[i], Penalty: e.Penalty, Latency: tab.Curve[i].Latency(0), Own: tab.Owns[i],
		}
	}
}

// takeComponent adds one component's answer.
func (r *result) takeComponent(s *solver) {
	for _, e := range s.build.c.engines {
		r.engine[e].Capacity = capacity(r.t, e, s.ramp)
	}
	switch {
	case s.stays:
		s.stayer.take(r, &s.inner)
		r.stayed = true
	case s.solved:
		r.takeTerms(&s.inner)
		r.takeFlows(&s.build, &s.inner)
	}
}

// takeTerms records the prices.
func (r *result) takeTerms(s *interior) {
	for k := range s.count {
		own, congestion, cap := s.terms(k)
		for _, e := range s.members[s.memberStart[k]:s.memberStart[k+1]] {
			r.engine[e].Latency, r.engine[e].Congestion, r.engine[e].Cap = own, congestion, cap
		}
		if s.isWide(k) {
			r.takeLimits(s, k)
		}
	}
	for i, at := range s.row {
		work := r.t.Work[int(at)%len(r.t.Models)]
		r.rowPrice[at] = s.rowPrice[i] * work
		for g := s.first[i]; g < s.beyond[i]; g++ {
			r.groupPrice[s.groupOf[g]] = s.groupPrice[g] * work
		}
	}
}

// takeLimits records the prices of a wide class's extra limits, but for traces of
// the interior method.
func (r *result) takeLimits(s *interior, k int) {
	for i := int(s.extraStart[k]); i < int(s.extraStart[k+1]); i++ {
		price := s.dual[s.extras+i] * s.extraScale[i]
		slack := s.primal[s.extras+i] > 0.05*s.extraLimit[i]
		if dual := s.dual[s.extras+i]; dual < 1e-6*s.slope[k] || slack && dual < 1e-3*s.moment {
			price = 0
		}
		for _, e := range s.members[s.memberStart[k]:s.memberStart[k+1]] {
			if s.extraKind[i] == table.Tokens {
				r.engine[e].TokenPrice = price
			} else {
				r.engine[e].SlotPrice = price
			}
		}
	}
}

// terms are the seconds that a class's load causes: latency, congestion, and the
// cap's price.
func (s *interior) terms(k int) (own, congestion, cap float64) {
	curve, limit := &s.curve[k], s.limit[k]/s.count[k]
	u := s.load[k] / s.count[k]
	at := latency.Curve{Phi: s.phi[k], Slope: s.slope[k]}
	if u > limit {
		u = limit
		at = latency.At(curve, u)
	}
	cap = s.dual[s.caps+k]
	if s.primal[s.caps+k] > 0.05*s.limit[k] && cap < 1e-3*max(at.Slope, s.moment) {
		// The cap is slack, its price a trace of the interior method. The trace
		// belongs to the engine's price all the same: it is that of a load a little
		// higher.
		u, at = loadAt(curve, u, limit, at.Slope+cap)
		cap = 0
	}
	own = at.Slope
	if u > 0 {
		own = min(own, at.Phi/u)
	}
	return own, at.Slope - own, cap
}

// loadAt finds the load, up to the limit, at which a curve has a slope, from a load a
// little lower. A few of Newton's steps do, but where the curve is all but flat.
func loadAt(curve *latency.Model, u, limit, slope float64) (float64, latency.Curve) {
	low, high := u, limit
	at := latency.At(curve, u)
	for i := range 100 {
		if off := math.Abs(at.Slope - slope); off <= 1e-13*slope || i >= 4 && off <= 1e-9*slope {
			break
		}
		if at.Slope < slope {
			low = u
		} else {
			high = u
		}
		u = max(0, min(u+(slope-at.Slope)/at.Bend, limit))
		if i >= 4 && (i%2 == 0 || !(u > low && u < high)) {
			u = low + (high-low)/2
		}
		at = latency.At(curve, u)
	}
	return u, at
}

func (r *result) takeFlows(b *builder, s *interior) {
	for k := range s.count {
		r.takeClass(b, s, k)
	}
	models := int32(len(r.t.Models))
	for i, at := range s.row {
		cells := r.cell[r.t.Cell(at/models):]
		served, refused := 0.0, 0.0
		for a := int(s.arcStart[i]); a < int(s.arcStart[i+1]); a++ {
			x := s.primal[a]
			cells[s.groupOf[s.groupOfArc(i, a)]] = x
			served += x
		}
		for j := int(s.sideStart[i]); j < int(s.sideStart[i+1]); j++ {
			x := s.primal[s.sides+j]
			if g := int(s.sideGroup[j]); g < s.groups {
				cells[s.groupOf[g]] += x
				served += x
			} else {
				refused += x
			}
		}
		fraction := refused / (served + refused)
		r.trace[at] = r.shedding(int(at), fraction)
		if fraction >= 1e-5 || r.rowPrice[at]*(1+much) >= r.refusal(b.c, int(at)) {
			r.shed[at] = r.trace[at] // else it is too dear to be more than a trace
		}
		if served > trifle*refused && r.t.Admit(int(at), &r.trace[at]) > 0 && r.t.Admit(int(at), &r.shed[at]) > 0 {
			r.state[at] = solved // else nothing is let in, and the weights follow from nothing
		}
		for _, g := range s.groupOf[s.first[i]:s.beyond[i]] {
			cells[g] /= served
		}
	}
}

// takeClass gives each engine of a class its part of the flows.
func (r *result) takeClass(b *builder, s *interior, k int) {
	for _, e := range s.members[s.memberStart[k]:s.memberStart[k+1]] {
		i, link, hold := 0, int(s.linkStart[k]), int(s.holdStart[k])
		at := r.t.ServesAt(e)
		for j, m := range r.t.Serves(e) {
			for b.c.models[i] != m {
				i++
			}
			if !b.active[i] {
				continue
			}
			y := s.primal[s.links+link]
			if hold < int(s.holdStart[k+1]) && s.holdGroup[hold] == s.linkGroup[link] {
				y += s.primal[s.holds+hold]
				hold++
			}
			link++
			r.flow[at[j]] = y / s.count[k] / r.t.Work[m]
		}
	}
}

// shedding turns the fraction of a row that is refused into fractions of its
// priorities. The row's requests share engines and prices, so the least
// important ones go first, exactly.
func (r *result) shedding(row int, fraction float64) (shed shedding) {
	switch {
	case fraction < trifle:
		return shed
	case fraction > 1-trifle:
		fraction = 1
	}
	shed = table.ShedLowest(&r.t.Demand[row], fraction*r.t.Rate[row])
	admitted := (1 - fraction) * r.t.Rate[row]
	for k := range shed {
		if shed[k] < 1 && shed[k]*r.t.Demand[row][k] < trifle*admitted {
			shed[k] = 0
		} else if shed[k] > 1-trifle {
			shed[k] = 1
		}
	}
	return shed
}

// refusal is the least that refusing one of the row's requests costs, in seconds.
func (r *result) refusal(c *component, row int) float64 {
	least := math.Inf(1)
	for k, d := range r.t.Demand[row] {
		if d > 0 {
			least = min(least, c.base+r.p.Refuse[k])
		}
	}
	return least
}

// fare is the price of moving between groups where the row pays it, else 0.
func (r *result) fare(at int) float64 {
	if r.past != nil && r.past.known[at] {
		return r.p.RowChurn()
	}
	return 0
}

// moves says whether flows of the model from a group to its engines pay churn.
func (r *result) moves(m int32) bool { return r.past != nil && r.past.model[m] > 0 }

// stay is the least that a unit can cost, churn included: where there was some
// before, as one that stays; else as one that moves there.
func stay(cost, fare, before float64) float64 {
	if before > 0 {
		return cost - fare
	}
	return cost + fare
}

// churn is the churn term of a flow that costs its price: between the two prices
// it takes up what is left.
func churn(price, cost, fare, before float64) float64 {
	if before > 0 {
		return max(-fare, min(fare, price-cost))
	}
	return fare
}
