package optimal

import (
	"math"

	"github.com/wardrop-lb/wardrop/latency"
	"github.com/wardrop-lb/wardrop/policy/internal/table"
)

// stayer asks whether a component's last weights are still good at today's
// demand, with the fractions shed as they were: whether they fit under the caps,
// and moving could save no more than most of the permitted gap. Then nothing
// moves at all.
//
// Keeping weights one by one after a solve could not promise that: small changes
// of some rows are reasons for others to move.
type stayer struct {
	tick  *tick
	comp  *component
	cost  float64 // seconds per second of the component
	sheds bool
	own   bool // prices are those of the loads, not a solution's
}

// used is the fraction of a row's demand below which an arc's flow needs no
// explanation.
const used = 1e-4

// unseen is the fraction of an engine's cap below which a flow needs none: what
// models that are refused all but wholly still send.
const unseen = 1e-7

// enough is the fraction of the permitted gap that staying may cost.
const enough = 0.8

// much is how much more than its row, relatively, an arc may cost and be used:
// an arc may be dearer by that both in its row and in its group, and the totals
// of used arcs are to agree within 1e-3.
const much = 4e-4

// read computes what staying costs; false when the last weights cannot be kept,
// good or not.
func (s *stayer) read(t *tick, c *component, ramp bool) bool {
	s.tick, s.comp, s.cost, s.sheds, s.own = t, c, 0, false, false
	tab, past := t.t, t.past
	for _, m := range c.models {
		for cluster := range int32(len(tab.Clusters)) {
			if at := tab.RowIndex(cluster, m); tab.Rate[at] > 0 && !s.addRow(at, cluster, m) {
				return false
			}
		}
	}
	for _, e := range c.engines {
		u := tab.Load(e, past.hold)
		if u > capacity(tab, e, ramp)*(1+capTolerance) || tab.Excess(e, past.hold) > capTolerance {
			return false
		}
		engine := tab.Engines[e]
		curve := latency.At(&tab.Curve[e], u)
		t.stayLoad[e] = u
		t.staySlope[e] = curve.Slope
		s.cost += curve.Phi
		for _, p := range tab.ServesAt(e) {
			s.cost += past.hold[p] * (engine.Penalty + engine.Offset + tab.Own[p])
		}
	}
	return true
}

func (s *stayer) addRow(at int, cluster, m int32) bool {
	tab, past := s.tick.t, s.tick.past
	if !past.known[at] || math.Abs(past.total[at]-1) > 1e-9 {
		return false
	}
	for k, d := range tab.Demand[at] {
		if shed := past.shed[at][k]; d > 0 && shed > 0 {
			s.cost += d * shed * (s.comp.base + s.tick.p.Refuse[k])
			s.sheds = true
		}
	}
	cells := past.cell[tab.Cell(cluster):]
	for g := tab.GroupStart[m]; g < tab.GroupStart[m+1]; g++ {
		s.cost += past.admitted[at] * cells[g] * tab.Distance(cluster, tab.GroupPlace[g])
	}
	return true
}

// goodByOwnPrices asks at the prices that the last weights themselves cause:
// what would be saved by what would still move, the churn price paid?
func (s *stayer) goodByOwnPrices() bool {
	if s.sheds {
		return false // the caps have prices too, and those are not known
	}
	s.own = true
	saving := 0.0
	for _, m := range s.comp.models {
		more, ok := s.priceGroups(m)
		saving += more
		if !ok {
			return false
		}
		for c := range int32(len(s.tick.t.Clusters)) {
			if at := s.tick.t.RowIndex(c, m); s.tick.t.Rate[at] > 0 {
				more, ok := s.priceRow(at, c, m)
				saving += more
				if !ok {
					return false
				}
			}
		}
	}
	return saving <= enough*s.tick.p.MaxGap*s.cost
}

// priceGroups finds prices of a model's groups that explain the engines' flows
// as they are, as far as there are any.
func (s *stayer) priceGroups(m int32) (saving float64, ok bool) {
	t, tab := s.tick, s.tick.t
	from, to := tab.GroupStart[m], tab.GroupStart[m+1]
	low, high, mean, flow := t.groupLow[from:to], t.groupHigh[from:to], t.groupMean[from:to], t.groupFlow[from:to]
	for g := range low {
		low[g], high[g], mean[g], flow[g] = math.Inf(-1), math.Inf(1), 0, 0
	}
	fare, start := t.p.EngineChurn(), tab.ServingStart(m)
	cost := func(j int, e int32) float64 {
		return tab.Work[m]*t.staySlope[e] + tab.Own[start+j] + tab.Engines[e].Offset + tab.Engines[e].Penalty
	}
	for j, e := range tab.Serving(m) {
		g, a := tab.GroupOf[start+j]-from, cost(j, e)
		high[g] = min(high[g], a+fare)
		if y := t.past.hold[start+j]; y > 0 {
			low[g] = max(low[g], a-fare)
			mean[g] += y * a
			flow[g] += y
		}
	}
	for g := range low {
		price := high[g]
		if flow[g] > 0 {
			price = min(high[g], max(low[g], mean[g]/flow[g]))
		}
		t.groupPrice[int(from)+g] = price
		if low[g] > price*(1+much) {
			return 0, false
		}
	}
	for j, e := range tab.Serving(m) {
		if y := t.past.hold[start+j]; y > 0 {
			saving += y * max(0, cost(j, e)-fare-t.groupPrice[tab.GroupOf[start+j]])
		}
	}
	return saving, true
}

// priceRow does the same for a row and its cells.
func (s *stayer) priceRow(at int, c, m int32) (saving float64, ok bool) {
	t, tab := s.tick, s.tick.t
	fare, cells := t.p.RowChurn(), t.past.cell[tab.Cell(c):]
	open, mean, dearest := math.Inf(1), 0.0, math.Inf(-1)
	for g := tab.GroupStart[m]; g < tab.GroupStart[m+1]; g++ {
		cost := tab.Distance(c, tab.GroupPlace[g]) + t.groupPrice[g]
		open = min(open, cost+fare)
		if w := cells[g]; w > 0 {
			mean += w * cost
			dearest = max(dearest, cost-fare)
		}
	}
	t.rowPrice[at] = max(dearest, min(open, mean))
	if dearest <= open {
		return 0, true
	}
	for g := tab.GroupStart[m]; g < tab.GroupStart[m+1]; g++ {
		cost := tab.Distance(c, tab.GroupPlace[g]) + t.groupPrice[g] - fare
		saving += t.past.admitted[at] * cells[g] * max(0, cost-open)
	}
	return saving, dearest <= open*(1+much)
}

// goodBySolution asks by the optimum: no plan undercuts it. Flows that its
// prices could not explain must move.
func (s *stayer) goodBySolution(best *interior) bool {
	s.own = false
	t, tab := s.tick, s.tick.t
	if s.cost > best.now.objective+enough*t.p.MaxGap*best.worthwhile() {
		return false
	}
	fare, groups := t.p.RowChurn(), int32(len(tab.Models))
	for i, at := range best.row {
		c, work := at/groups, tab.Work[at%groups]
		cells := t.past.cell[tab.Cell(c):]
		for g := best.first[i]; g < best.beyond[i]; g++ {
			global := best.groupOf[g]
			cost := tab.Distance(c, tab.GroupPlace[global]) + best.groupPrice[g]*work - fare
			if cells[global]*t.past.admitted[at] > used*tab.Rate[at] && cost > best.rowPrice[i]*work*(1+much) {
				return false
			}
		}
	}
	for k := range best.count {
		for i := best.holdStart[k]; i < best.holdStart[k+1]; i++ {
			g, price := best.holdGroup[i], best.price(k, int(best.linkStart[k+1]-best.linkStart[k]+i-best.holdStart[k]))
			if y := best.holdBound[i]; y <= used*best.outflow[g] || y <= unseen*best.limit[k] {
				continue
			}
			if best.holdCost[i]+price > best.groupPrice[g]*(1+much) {
				return false
			}
		}
	}
	return true
}

// take makes the last weights the answer.
func (s *stayer) take(r *result, best *interior) {
	t, tab := s.tick, s.tick.t
	if s.own {
		for _, e := range s.comp.engines {
			u := t.stayLoad[e]
			r.engine[e].Latency, r.engine[e].Congestion = tab.Curve[e].Latency(u), tab.Curve[e].Congestion(u)
		}
		for _, m := range s.comp.models {
			copy(r.groupPrice[tab.GroupStart[m]:tab.GroupStart[m+1]], t.groupPrice[tab.GroupStart[m]:tab.GroupStart[m+1]])
		}
	} else {
		r.takeTerms(best)
	}
	for _, m := range s.comp.models {
		for c := range int32(len(tab.Clusters)) {
			at := tab.RowIndex(c, m)
			if tab.Rate[at] == 0 {
				continue
			}
			if s.tick.past.admitted[at] > 0 {
				r.state[at] = stays
			}
			if s.own {
				r.rowPrice[at] = t.rowPrice[at]
			}
			r.shed[at] = s.shed(tab, at)
			r.trace[at] = r.shed[at]
		}
	}
}

func (s *stayer) shed(t *table.Table, at int) (shed shedding) {
	for k, d := range t.Demand[at] {
		if d > 0 {
			shed[k] = s.tick.past.shed[at][k]
		}
	}
	return shed
}
