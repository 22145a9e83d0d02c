package optimal

import (
	"math"

	"github.com/wardrop-lb/wardrop/policy/internal/table"
)

// neatness is how far the flows may differ from the solver's to be worth having.
type neatness uint8

const (
	// neat drops small flows and keeps last ones that hardly change.
	neat neatness = iota
	// priced keeps last flows too, but drops only those that cost more than the
	// row or the group pays: there an interior solution leaves traces.
	priced
	// raw is the solver's answer.
	raw
)

// snapper turns a result's flows into those of a plan: first by row and group,
// then by engine, see spread.
type snapper struct {
	*result
	level []neatness // by model
	neat  []float64  // by cell: fraction of the row
	shed  []shedding // by row
	let   []float64  // by row: requests/s let in

	spread

	hold, offset, rowLoad   []float64 // by element of Serving: churn term, seconds; seconds; requests/s
	cellDistance, cellChurn []float64 // by group: scratch of cellTerms
}

// snap sets neat, shed and the spread of all models. Each model is as neat as the
// level says, unless that broke a cap: then it is less neat.
func (s *snapper) snap(level neatness) {
	tab := s.t
	s.level = resize(s.level, len(tab.Models))
	s.neat = resize(s.neat, len(s.cell))
	s.shed = resize(s.shed, len(tab.Rate))
	s.let = resize(s.let, len(tab.Rate))
	s.spread.reset(tab)
	s.setOpen()
	for m := range s.level {
		s.level[m] = level
		s.snapModel(int32(m))
	}
	for again := true; again; {
		again = false
		s.addLoads()
		for e := range int32(len(tab.Engines)) {
			if s.load[e] <= s.engine[e].Capacity*(1+capTolerance) && tab.Excess(e, s.engineFlow) <= capTolerance {
				continue
			}
			for _, m := range tab.Serves(e) {
				if s.level[m] < raw {
					s.level[m]++
					s.dirty[m] = true
					again = true
				}
			}
		}
		for m := range s.level {
			if s.dirty[m] {
				s.snapModel(int32(m))
			}
		}
	}
	s.trim()
}

// crowded says whether caps left no room to make some model's flows neat.
func (s *snapper) crowded() bool {
	for _, l := range s.level {
		if l == raw {
			return true
		}
	}
	return false
}

// snapModel snaps a model's rows and spreads them over its engines.
func (s *snapper) snapModel(m int32) {
	tab := s.t
	s.dirty[m] = false
	from, to := tab.GroupStart[m], tab.GroupStart[m+1]
	for c := range int32(len(tab.Clusters)) {
		at := tab.RowIndex(c, m)
		cells := s.cell[tab.Cell(c):][from:to]
		w := s.neat[tab.Cell(c):][from:to]
		s.shed[at] = s.result.shed[at]
		if s.level[m] == raw {
			s.shed[at] = s.trace[at]
		}
		switch s.state[at] {
		case stays:
			copy(w, s.past.cell[tab.Cell(c):][from:to])
		case solved:
			if s.level[m] == raw || !s.candidate(at, c, m, cells, w) {
				copy(w, cells)
			}
		default:
			clear(w)
		}
		s.let[at] = 0
		if s.state[at] != idle {
			s.let[at] = tab.Admit(at, &s.shed[at])
		}
	}
	s.spreadModel(m)
}

// candidate writes the row's neater fractions; false when there are none.
func (s *snapper) candidate(at int, c, m int32, cells, w []float64) bool {
	tab := s.t
	from := tab.GroupStart[m]
	fare, before := s.fare(at), s.lastCells(at, c, m)
	price := s.priceOf(at, c, m)
	floor := 0.0
	if s.level[m] == neat {
		floor = s.p.RowFloor(len(tab.Serving(m)))
	}
	kept, free, dropped := 0.0, 0.0, 0.0 // sums of fractions
	for j, x := range cells {
		last := 0.0
		if before != nil {
			last = before[j]
		}
		g := from + int32(j)
		cost := stay(tab.Distance(c, tab.GroupPlace[g])+s.groupPrice[g], fare, last)
		switch {
		case last > 0 && math.Abs(x-last) <= s.p.Keep*last:
			w[j] = last
			kept += last
		case x < floor:
			w[j] = 0
		case cost > price+much*math.Abs(price):
			w[j] = 0
			dropped += x
		default:
			w[j] = x
			free += x
		}
	}
	missing := 1 - kept - free
	if s.level[m] == priced && dropped > 0 && s.refuse(at, m, dropped) {
		// Where all caps bind there is no room to move even a trace to.
		copy(w, cells)
		for j := range w {
			g := from + int32(j)
			last := 0.0
			if before != nil {
				last = before[j]
			}
			if stay(tab.Distance(c, tab.GroupPlace[g])+s.groupPrice[g], fare, last) > price+much*math.Abs(price) {
				w[j] = 0
			}
		}
		scale(w, 1/(1-dropped))
		return true
	}
	if free == 0 && math.Abs(missing) <= 1e-12 {
		return true
	}
	if free < 2*math.Abs(missing) {
		return s.all(cells, w)
	}
	s.add(from, cells, w, before, missing)
	return true
}

// all lets all fractions that remain share: too little is free to make up for
// the rest.
func (s *snapper) all(cells, w []float64) bool {
	sum := 0.0
	for j := range w {
		if w[j] > 0 {
			w[j] = cells[j]
			sum += w[j]
		}
	}
	if sum == 0 {
		return false
	}
	scale(w, 1/sum)
	return true
}

// add adds amount to the fractions that may change, in proportion. What is to be
// added goes to groups with room, if there are any.
func (s *snapper) add(from int32, cells, w, before []float64, amount float64) {
	may := func(j int) bool {
		return w[j] > 0 && !(before != nil && before[j] > 0 && math.Abs(cells[j]-before[j]) <= s.p.Keep*before[j])
	}
	all, open := 0.0, 0.0
	for j := range w {
		if may(j) {
			all += w[j]
			if s.open[from+int32(j)] {
				open += w[j]
			}
		}
	}
	onlyOpen := amount > 0 && open > 0
	total := all
	if onlyOpen {
		total = open
	}
	for j := range w {
		if may(j) && (!onlyOpen || s.open[from+int32(j)]) {
			w[j] += amount * w[j] / total
		}
	}
}

// refuse refuses a trace in a row that refuses some of its requests anyway. What
// is no trace to a small row may be one to its model.
func (s *snapper) refuse(at int, m int32, fraction float64) bool {
	const ofRow, ofModel = 5e-6, 2e-6
	rate, let := s.t.Rate[at], s.t.Admit(at, &s.shed[at])
	if let >= rate {
		return false
	}
	if fraction*let > ofRow*rate {
		flow := 0.0
		for _, y := range s.flow[s.t.ServingStart(m):][:len(s.t.Serving(m))] {
			flow += y
		}
		if fraction*let > ofModel*flow {
			return false
		}
	}
	s.shed[at] = table.ShedLowest(&s.t.Demand[at], rate-(1-fraction)*let)
	return true
}

// trim sheds what little a solution that is not quite feasible has too much,
// from the rows that use the engine.
func (s *snapper) trim() {
	const most = 1e-6 // relative; more is no rounding
	tab := s.t
	s.addLoads()
	for e := range int32(len(tab.Engines)) {
		excess := max(s.load[e]/s.engine[e].Capacity-1, tab.Excess(e, s.engineFlow))
		if excess <= capTolerance || excess > most {
			continue
		}
		at := tab.ServesAt(e)
		for j, m := range tab.Serves(e) {
			g := tab.GroupOf[at[j]]
			for c := range int32(len(tab.Clusters)) {
				row := tab.RowIndex(c, m)
				if s.state[row] == solved && s.neat[tab.Cell(c)+int(g)] > 0 {
					s.let[row] *= 1 - excess
					s.shed[row] = table.ShedLowest(&tab.Demand[row], tab.Rate[row]-s.let[row])
					s.dirty[m] = true
				}
			}
		}
	}
	for m := range s.level {
		if s.dirty[m] {
			s.spreadModel(int32(m))
			s.dirty[m] = false
		}
	}
}

// lastCells are the row's last fractions, nil when it has none.
func (s *result) lastCells(at int, c, m int32) []float64 {
	if s.past == nil || !s.past.known[at] {
		return nil
	}
	return s.past.cell[s.t.Cell(c):][s.t.GroupStart[m]:s.t.GroupStart[m+1]]
}

// priceOf is what the row pays for one more request: the solver's answer, but
// never less than the cheapest cell.
func (s *result) priceOf(at int, c, m int32) float64 {
	least, fare, before := math.Inf(1), s.fare(at), s.lastCells(at, c, m)
	from := s.t.GroupStart[m]
	for g := from; g < s.t.GroupStart[m+1]; g++ {
		last := 0.0
		if before != nil {
			last = before[g-from]
		}
		least = min(least, stay(s.t.Distance(c, s.t.GroupPlace[g])+s.groupPrice[g], fare, last))
	}
	if s.state[at] == idle {
		return least
	}
	return max(s.rowPrice[at], least)
}
