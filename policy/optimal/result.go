package optimal

import (
	"math"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy"
	"github.com/wardrop-lb/wardrop/policy/internal/table"
)

// result is the optimum of all components, engine by engine.
type result struct {
	t    *table.Table
	p    *policy.Problem
	last *table.Last // nil at the start

	weight []float64                      // by arc, unsnapped
	shed   [][fleet.NumPriorities]float64 // by row
	solved []bool                         // by row: weight is set
	price  []float64                      // by row: seconds of one more request
	engine []fleet.EngineLoad             // by engine: the terms, without loads
	stayed bool                           // some component keeps its last weights, at a price
}

// trifle is the fraction of a row below which a flow is the solver's rounding.
// It is less than capMargin, so that dropping it breaks no cap.
const trifle = 0.3 * capMargin

func newResult(t *table.Table, p *policy.Problem, last *table.Last) *result {
	r := &result{
		t: t, p: p, last: last,
		weight: make([]float64, t.ArcCount()),
		shed:   make([][fleet.NumPriorities]float64, len(t.Rate)),
		solved: make([]bool, len(t.Rate)),
		price:  make([]float64, len(t.Rate)),
		engine: make([]fleet.EngineLoad, len(t.Engines)),
	}
	for i := range r.engine {
		r.engine[i].Latency = t.Curve[i].Latency(0)
		r.engine[i].Penalty = t.Engines[i].Penalty
	}
	return r
}

// take adds one component's optimum.
func (r *result) take(s *interior) {
	share := r.takeClasses(s)
	flow := make([]float64, s.groups)
	for i, at := range s.row {
		clear(flow)
		served, refused := 0.0, 0.0
		for a := s.arcStart[i]; a < s.arcStart[i+1]; a++ {
			if g := s.group[a]; g >= 0 {
				flow[g] += s.primal[a]
				served += s.primal[a]
			} else {
				refused += s.primal[a]
			}
		}
		r.price[at] = s.rowPrice[i]
		r.shed[at] = r.shedding(int(at), refused/(served+refused))
		if served <= trifle*refused {
			continue // nothing is let in, so the weights do not follow from the optimum
		}
		r.solved[at] = true
		models := int32(len(r.t.Models))
		c, m := at/models, at%models
		weights := r.weight[r.t.Row(c, m):]
		for j, e := range r.t.Serving(m) {
			weights[j] = 0
			for _, l := range share[e] {
				if g := l.group; g >= s.first[i] && g < s.first[i]+s.width[i] {
					weights[j] = flow[g] / served * l.part
				}
			}
		}
	}
}

// part is how much of a group's flow one engine takes.
type part struct {
	group int32
	part  float64
}

// takeClasses records the engines' terms and gives their parts of the groups.
func (r *result) takeClasses(s *interior) [][]part {
	out := make([]float64, s.groups)
	for l, g := range s.linkGroup {
		out[g] += s.primal[s.arcs+l]
	}
	share := make([][]part, len(r.t.Engines))
	for k, members := range s.member {
		u := 0.0
		var parts []part
		for l := s.linkStart[k]; l < s.linkStart[k+1]; l++ {
			y, g := s.primal[s.arcs+int(l)], s.linkGroup[l]
			u += y
			parts = append(parts, part{g, y / out[g] / s.count[k]})
		}
		u = min(u, s.limit[k]) / s.count[k]
		latency, congestion := s.curve[k].Latency(u), s.curve[k].Congestion(u)
		cap := s.dual[s.links+k]
		if cap <= 1e-8*(latency+congestion) {
			cap = 0
		}
		for _, e := range members {
			share[e] = parts
			r.engine[e].Latency, r.engine[e].Congestion, r.engine[e].Cap = latency, congestion, cap
		}
	}
	return share
}

// shedding turns the fraction of a row that is refused into fractions of its
// priorities. The row's requests share engines and prices, so the least
// important ones go first, exactly.
func (r *result) shedding(row int, fraction float64) (shed [fleet.NumPriorities]float64) {
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

// known says whether the last plan has weights for the row on living engines.
func (r *result) known(row int) bool { return r.last != nil && r.last.Known[row] }

// stay is the least that a request can cost on an arc: where the row had some
// before, as one that stays; else as one that moves there. before is the arc's
// last weight.
func (r *result) stay(known bool, cost, before float64) float64 {
	switch {
	case !known:
		return cost
	case before > 0:
		return cost - r.p.Lambda
	}
	return cost + r.p.Lambda
}

// churn is the churn term of an arc: between the two prices it takes up what the
// row's price leaves.
func (r *result) churn(known bool, price, cost, before float64) float64 {
	switch {
	case !known:
		return 0
	case before > 0:
		return max(-r.p.Lambda, min(r.p.Lambda, price-cost))
	}
	return r.p.Lambda
}

// plan writes the optimum as a plan.
func (r *result) plan(level neatness) *fleet.Plan {
	plan, index := r.t.Plan(Name)
	for i := range plan.Engines {
		e := &plan.Engines[i]
		e.Latency, e.Congestion, e.Cap = r.engine[i].Latency, r.engine[i].Congestion, r.engine[i].Cap
	}
	for at, i := range index {
		if i >= 0 && len(plan.Rows[i].Arcs) > 0 {
			plan.Rows[i].Shed = r.shed[at]
		}
	}
	s := &snapper{result: r, plan: plan, index: index}
	s.snap(level)
	for at, i := range index {
		if i >= 0 && !r.solved[at] {
			r.idle(plan, int(i), at)
		}
	}
	r.t.SetLoads(plan, index)
	for at, i := range index {
		if i >= 0 {
			r.explain(plan, int(i), at)
		}
	}
	return plan
}

// lastWeights are the row's last weights, nil when it has none.
func (r *result) lastWeights(at int) []float64 {
	if !r.known(at) {
		return nil
	}
	m := len(r.t.Models)
	return r.last.Weight[r.t.Row(int32(at/m), int32(at%m)):]
}

func (r *result) explain(plan *fleet.Plan, i, at int) {
	arcs, before := plan.Rows[i].Arcs, r.lastWeights(at)
	if before == nil {
		return
	}
	price := r.rowPrice(plan, arcs, at)
	for j := range arcs {
		cost := arcs[j].Network + plan.Engines[arcs[j].Engine].Price()
		arcs[j].Churn = r.churn(true, price, cost, before[j])
	}
}

// rowPrice is what the row pays for one more request: the solver's answer, but
// never less than the cheapest arc.
func (r *result) rowPrice(plan *fleet.Plan, arcs []fleet.Arc, at int) float64 {
	before := r.lastWeights(at)
	least := math.Inf(1)
	for j, a := range arcs {
		b := 0.0
		if before != nil {
			b = before[j]
		}
		least = min(least, r.stay(before != nil, a.Network+plan.Engines[a.Engine].Price(), b))
	}
	return max(r.price[at], least)
}

// idle sets the weights of a row that sends nothing.
func (r *result) idle(plan *fleet.Plan, i, at int) {
	arcs := plan.Rows[i].Arcs
	if before := r.lastWeights(at); before != nil {
		sum := 0.0
		for j := range arcs {
			arcs[j].Weight = before[j]
			sum += before[j]
		}
		if math.Abs(sum-1) > 1e-12 {
			normalise(arcs, sum)
		}
		return
	}
	if len(arcs) == 0 {
		return
	}
	// The regions where a request costs least share it by the room they have.
	cheapest := make([]float64, len(r.t.Regions))
	for k := range cheapest {
		cheapest[k] = math.Inf(1)
	}
	least := math.Inf(1)
	for _, a := range arcs {
		cost := a.Network + plan.Engines[a.Engine].Price()
		region := r.t.Region[a.Engine]
		cheapest[region] = min(cheapest[region], cost)
		least = min(least, cost)
	}
	spread := func(size func(e int32) float64) (sum float64) {
		for j, a := range arcs {
			arcs[j].Weight = 0
			if cheapest[r.t.Region[a.Engine]] <= least*(1+1e-9) {
				arcs[j].Weight = size(a.Engine)
				sum += arcs[j].Weight
			}
		}
		return sum
	}
	sum := spread(func(e int32) float64 { return max(0, r.t.Cap[e]*(1-1e-6)-plan.Engines[e].Load) })
	if sum == 0 {
		sum = spread(func(e int32) float64 { return r.t.Cap[e] })
	}
	normalise(arcs, sum)
}

func normalise(arcs []fleet.Arc, sum float64) {
	for j := range arcs {
		arcs[j].Weight /= sum
	}
}
