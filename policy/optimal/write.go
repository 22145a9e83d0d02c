package optimal

import (
	"math"

	"github.com/wardrop-lb/wardrop/fleet"
)

// frame gives the plan all rows and arcs, in the memory that it has if that is
// of the right shape.
func (r *result) frame(plan *fleet.Plan) {
	t := r.t
	plan.Policy, plan.Time, plan.Epoch, plan.Version = Name, t.View.Time, 0, 0
	r.frameEngines(plan)
	plan.Prices = plan.Prices[:0]
	rows, arcs, fits := 0, 0, true
	for c := range int32(len(t.Clusters)) {
		for m := range int32(len(t.Models)) {
			n := len(t.Serving(m))
			if n == 0 && t.Rate[t.RowIndex(c, m)] == 0 {
				continue
			}
			fits = fits && rows < len(plan.Rows) && len(plan.Rows[rows].Arcs) == n
			rows, arcs = rows+1, arcs+n
		}
	}
	if fits && rows == len(plan.Rows) {
		return
	}
	plan.Rows = make([]fleet.Row, 0, rows)
	memory := make([]fleet.Arc, arcs)
	for c := range int32(len(t.Clusters)) {
		for m := range int32(len(t.Models)) {
			n := len(t.Serving(m))
			if n == 0 && t.Rate[t.RowIndex(c, m)] == 0 {
				continue
			}
			plan.Rows = append(plan.Rows, fleet.Row{Arcs: memory[:n:n]})
			memory = memory[n:]
		}
	}
}

// frameEngines gives the plan the engines; what they hold of the table's memory is
// copied, for that changes with the next view.
func (r *result) frameEngines(plan *fleet.Plan) {
	if len(plan.Engines) != len(r.engine) {
		plan.Engines = make([]fleet.EngineLoad, len(r.engine))
	}
	for i := range r.engine {
		own := plan.Engines[i].Own
		plan.Engines[i] = r.engine[i]
		plan.Engines[i].Own = nil
		if len(r.engine[i].Own) > 0 {
			plan.Engines[i].Own = append(own[:0], r.engine[i].Own...)
		}
	}
}

// write writes the snapped flows as a plan.
func (s *snapper) write(plan *fleet.Plan) {
	s.frame(plan)
	t := s.t
	s.offset, s.rowLoad = resize(s.offset, t.ServingCount()), resize(s.rowLoad, t.ServingCount())
	s.cellDistance, s.cellChurn = resize(s.cellDistance, t.Groups()), resize(s.cellChurn, t.Groups())
	clear(s.rowLoad)
	for e, engine := range t.Engines {
		for _, p := range t.ServesAt(int32(e)) {
			s.offset[p] = engine.Offset
		}
	}
	s.writePrices(plan)
	next := 0
	for c := range int32(len(t.Clusters)) {
		for m := range int32(len(t.Models)) {
			at, n := t.RowIndex(c, m), len(t.Serving(m))
			if n == 0 && t.Rate[at] == 0 {
				continue
			}
			row := &plan.Rows[next]
			next++
			row.Cluster, row.Model = t.Clusters[c], t.Models[m]
			row.Rate, row.Demand, row.Shed = t.Rate[at], t.Demand[at], s.shed[at]
			t.Ask(row, m)
			if n == 0 {
				row.Shed = refuseAll(&row.Demand)
				continue
			}
			if s.state[at] != idle {
				s.writeRow(plan, row, at, c, m)
			}
		}
	}
	s.writeIdle(plan)
}

func refuseAll(demand *[fleet.NumPriorities]float64) (shed shedding) {
	for k, rate := range demand {
		if rate > 0 {
			shed[k] = 1
		}
	}
	return shed
}

// writePrices records the groups' prices, never less than the cheapest engine's,
// which is also the price of a group that nobody asks for.
func (s *snapper) writePrices(plan *fleet.Plan) {
	t := s.t
	for m := range int32(len(t.Models)) {
		fare := 0.0
		if s.moves(m) {
			fare = s.p.EngineChurn()
		}
		from, to := t.GroupStart[m], t.GroupStart[m+1]
		least, first := s.need[from:to], s.kept[from:to]
		for g := range least {
			least[g], first[g] = math.Inf(1), -1
		}
		start := t.ServingStart(m)
		for j, e := range t.Serving(m) {
			g := t.GroupOf[start+j] - from
			last := 0.0
			if fare > 0 {
				last = s.past.hold[start+j]
			}
			least[g] = min(least[g], stay(s.cost(m, e, start+j), fare, last))
			if first[g] < 0 {
				first[g] = float64(e)
			}
		}
		for g := range least {
			if price := &s.groupPrice[int(from)+g]; !(*price > least[g]) {
				*price = least[g]
			}
		}
		for j, e := range t.Serving(m) {
			if g := t.GroupOf[start+j]; first[g-from] == float64(e) {
				plan.Prices = append(plan.Prices, fleet.GroupPrice{Model: t.Models[m], Engine: e, Seconds: s.groupPrice[g]})
			}
		}
		s.engineChurn(m, fare)
	}
}

// engineChurn sets the churn terms that the model's engines cause; they take the
// place of want, which is not needed any more.
func (s *snapper) engineChurn(m int32, fare float64) {
	t := s.t
	start := t.ServingStart(m)
	s.hold = resize(s.hold, t.ServingCount())
	for j, e := range t.Serving(m) {
		p := start + j
		s.hold[p] = 0
		if fare > 0 {
			s.hold[p] = churn(s.groupPrice[t.GroupOf[p]], s.cost(m, e, p), fare, s.past.hold[p])
		}
	}
}

// writeRow writes a row that sends something, and adds its flows to the loads.
func (s *snapper) writeRow(plan *fleet.Plan, row *fleet.Row, at int, c, m int32) {
	t := s.t
	start, serving := t.ServingStart(m), t.Serving(m)
	n := len(serving)
	arcs, group := row.Arcs[:n], t.GroupOf[start:][:n]
	bear, take, offset, hold := s.bear[start:][:n], s.take[start:][:n], s.offset[start:][:n], s.hold[start:][:n]
	keep, more, distance, gives := s.cellTerms(at, c, m)
	from := t.GroupStart[m]
	let := s.let[at]
	load := s.rowLoad[start:][:n]
	var last []fleet.Arc
	if s.past != nil {
		last = s.past.arcs[at]
	}
	sum := 0.0
	if last == nil {
		for j, e := range serving {
			g := group[j] - from
			w := more[g] * take[j]
			sum += w
			arcs[j] = fleet.Arc{Engine: e, Weight: w, Network: distance[g] + offset[j], Churn: gives[g] + hold[j]}
			load[j] += let * w
		}
	} else {
		last = last[:n]
		lose := s.lose[start:][:n]
		give := s.give[t.Cell(c):][from:t.GroupStart[m+1]]
		for j, e := range serving {
			g := group[j] - from
			w := keep[g]*bear[j]*(1-give[g]*lose[j])*last[j].Weight + more[g]*take[j]
			sum += w
			arcs[j] = fleet.Arc{Engine: e, Weight: w, Network: distance[g] + offset[j], Churn: gives[g] + hold[j]}
			load[j] += let * w
		}
	}
	if s.state[at] == solved && math.Abs(sum-1) > rounding {
		for j := range arcs {
			load[j] += let * arcs[j].Weight * (1/sum - 1)
			arcs[j].Weight /= sum
		}
	}
}

// rounding is what a row's weights may miss of 1 by, lest the errors of many ticks
// add up.
const rounding = 2e-13

// cellTerms are what a row's arcs have in common by group: what they keep and
// get, network seconds, and the row's part of the churn term.
func (s *snapper) cellTerms(at int, c, m int32) (keep, more, distance, gives []float64) {
	t := s.t
	from, to := t.GroupStart[m], t.GroupStart[m+1]
	keep, more = s.stay[t.Cell(c):][from:to], s.more[t.Cell(c):][from:to]
	distance, gives = s.cellDistance[from:to], s.cellChurn[from:to]
	fare, before, price := s.fare(at), s.lastCells(at, c, m), s.priceOf(at, c, m)
	for j := range distance {
		g := from + int32(j)
		distance[j] = t.Distance(c, t.GroupPlace[g])
		gives[j] = 0
		if fare > 0 {
			gives[j] = churn(price, distance[j]+s.groupPrice[g], fare, before[j])
		}
	}
	return keep, more, distance, gives
}

// writeIdle adds up the loads, and then sets the weights of rows that send
// nothing.
func (s *snapper) writeIdle(plan *fleet.Plan) {
	t := s.t
	for e := range int32(len(t.Engines)) {
		x := &plan.Engines[e]
		x.Load = t.Load(e, s.rowLoad)
		x.Seconds = t.Seconds(e, x.Load, x.Latency)
	}
	next := 0
	for c := range int32(len(t.Clusters)) {
		for m := range int32(len(t.Models)) {
			at, n := t.RowIndex(c, m), len(t.Serving(m))
			if n == 0 && t.Rate[at] == 0 {
				continue
			}
			row := &plan.Rows[next]
			next++
			if n == 0 || s.state[at] != idle {
				continue
			}
			s.idleArcs(row, at, c, m)
			if s.past != nil && s.past.known[at] {
				s.idleAsBefore(row, at)
			} else {
				s.idleCheapest(plan, row, c, m)
			}
		}
	}
}

// idleArcs sets all of a row's arcs but the weights.
func (s *snapper) idleArcs(row *fleet.Row, at int, c, m int32) {
	t := s.t
	start := t.ServingStart(m)
	_, _, distance, gives := s.cellTerms(at, c, m)
	for j, e := range t.Serving(m) {
		g := t.GroupOf[start+j] - t.GroupStart[m]
		row.Arcs[j] = fleet.Arc{Engine: e, Network: distance[g] + s.offset[start+j], Churn: gives[g] + s.hold[start+j]}
	}
}

func (s *snapper) idleAsBefore(row *fleet.Row, at int) {
	last, sum := s.past.arcs[at], 0.0
	for j := range row.Arcs {
		row.Arcs[j].Weight = last[j].Weight
		sum += last[j].Weight
	}
	if math.Abs(sum-1) > 1e-12 {
		for j := range row.Arcs {
			row.Arcs[j].Weight /= sum
		}
	}
}

// idleCheapest lets the groups where a request costs least share the row by the
// room they have.
func (s *snapper) idleCheapest(plan *fleet.Plan, row *fleet.Row, c, m int32) {
	t := s.t
	start, from := t.ServingStart(m), t.GroupStart[m]
	least := math.Inf(1)
	for g := from; g < t.GroupStart[m+1]; g++ {
		least = min(least, t.Distance(c, t.GroupPlace[g])+s.groupPrice[g])
	}
	for _, room := range []bool{true, false} {
		sum := 0.0
		for j := range row.Arcs {
			e, g := row.Arcs[j].Engine, t.GroupOf[start+j]
			w := 0.0
			if t.Distance(c, t.GroupPlace[g])+s.groupPrice[g] <= least+1e-9*math.Abs(least) {
				w = plan.Engines[e].Capacity
				if room {
					w = max(0, w*(1-1e-6)-plan.Engines[e].Load)
				}
			}
			row.Arcs[j].Weight = w
			sum += w
		}
		if sum > 0 {
			for j := range row.Arcs {
				row.Arcs[j].Weight /= sum
			}
			return
		}
	}
}
