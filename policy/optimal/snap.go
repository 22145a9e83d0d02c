package optimal

import (
	"math"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy/internal/table"
)

// neatness is how far the weights may differ from the solver's to be worth
// having.
type neatness int

const (
	// neat drops small weights and keeps last weights that hardly change.
	neat neatness = iota
	// priced keeps last weights too, but drops only arcs that cost more than the
	// row pays: there an interior solution leaves traces.
	priced
	// raw is the solver's answer.
	raw
)

// much is how much more than its row, relatively, an arc may cost and be used:
// the totals of used arcs are to agree within twice that.
const much = 5e-4

// snapper turns a result's weights into those of a plan.
type snapper struct {
	*result
	plan  *fleet.Plan
	index []int32

	neat []float64 // by arc: the candidate
	load []float64 // by engine, requests/s
}

// snap sets the weights of all solved rows. Each row is as neat as the level
// says, unless that broke a cap: then it is less neat.
func (s *snapper) snap(level neatness) {
	s.neat = make([]float64, len(s.weight))
	s.load = make([]float64, len(s.t.Engines))
	s.eachSolved(func(at int, row *fleet.Row, from int) {
		s.write(row, s.weight[from:])
		s.add(row, at, 1)
	})
	if level == raw {
		s.trim()
		return
	}
	accepted := make([]bool, len(s.index))
	s.eachSolved(func(at int, row *fleet.Row, from int) {
		accepted[at] = s.candidate(at, row, from, level)
	})
	if s.allAtOnce(accepted) {
		return
	}
	s.eachSolved(func(at int, row *fleet.Row, from int) {
		for l := level; l < raw; l++ {
			if s.candidate(at, row, from, l) && s.replace(at, row, s.neat[from:]) {
				return
			}
		}
		s.refuse(at, row, from)
	})
}

// trim sheds what little a solution that is not quite feasible has too much,
// from the rows that use the engine.
func (s *snapper) trim() {
	const most = 1e-6 // relative; more is no rounding
	s.eachSolved(func(at int, row *fleet.Row, _ int) {
		excess := 0.0
		for _, a := range row.Arcs {
			if a.Weight > 0 {
				excess = max(excess, s.load[a.Engine]/s.t.Cap[a.Engine]-1)
			}
		}
		if excess > capTolerance && excess < most {
			admitted := s.t.Admit(at, &row.Shed) * (1 - excess)
			row.Shed = table.ShedLowest(&s.t.Demand[at], s.t.Rate[at]-admitted)
		}
	})
}

// refuse drops what the solver left on arcs that are too dear by refusing it, in
// a row that refuses some of its requests anyway: where all caps bind there is
// no room to move even a trace to.
func (s *snapper) refuse(at int, row *fleet.Row, from int) {
	const trace = 5e-6 // of the row's demand
	rate, admitted := s.t.Rate[at], s.t.Admit(at, &row.Shed)
	if admitted >= rate {
		return
	}
	before, price := s.lastWeights(at), s.rowPrice(s.plan, row.Arcs, at)
	w := s.neat[from : from+len(row.Arcs)]
	sum := 0.0
	for j := range row.Arcs {
		w[j] = s.weight[from+j]
		if s.dear(row, j, before, price) {
			w[j] = 0
		}
		sum += w[j]
	}
	if dropped := (1 - sum) * admitted; sum == 0 || dropped > trace*rate {
		return
	}
	s.add(row, at, -1)
	row.Shed = s.shedding(at, 1-sum*admitted/rate)
	scale(w, 1/sum)
	s.write(row, w)
	s.add(row, at, 1)
}

// dear says whether an arc costs so much more than the row pays that flow on it
// can only be a trace of the interior method.
func (s *snapper) dear(row *fleet.Row, j int, before []float64, price float64) bool {
	b := 0.0
	if before != nil {
		b = before[j]
	}
	a := row.Arcs[j]
	cost := s.stay(before != nil, a.Network+s.plan.Engines[a.Engine].Price(), b)
	return cost > price+much*math.Abs(price)
}

// eachSolved calls f for the rows that send something, in the table's order,
// with the row's place in arrays by arc.
func (s *snapper) eachSolved(f func(at int, row *fleet.Row, from int)) {
	models := int32(len(s.t.Models))
	for at, i := range s.index {
		if i >= 0 && s.solved[at] {
			f(at, &s.plan.Rows[i], s.t.Row(int32(at)/models, int32(at)%models))
		}
	}
}

func (s *snapper) write(row *fleet.Row, weights []float64) {
	for j := range row.Arcs {
		row.Arcs[j].Weight = weights[j]
	}
}

// add adds sign times the row's flows to the loads.
func (s *snapper) add(row *fleet.Row, at int, sign float64) {
	d := sign * s.t.Admit(at, &row.Shed)
	for _, a := range row.Arcs {
		s.load[a.Engine] += d * a.Weight
	}
}

// over says whether an engine's load breaks its cap.
func (s *snapper) over(e int32) bool { return s.load[e] > s.t.Cap[e]*(1+capTolerance) }

// allAtOnce takes every candidate, if together they break no cap.
func (s *snapper) allAtOnce(accepted []bool) bool {
	before := append([]float64(nil), s.load...)
	s.eachSolved(func(at int, row *fleet.Row, from int) {
		if accepted[at] {
			s.add(row, at, -1)
			s.write(row, s.neat[from:])
			s.add(row, at, 1)
		}
	})
	for e := range s.load {
		if s.over(int32(e)) {
			s.eachSolved(func(_ int, row *fleet.Row, from int) { s.write(row, s.weight[from:]) })
			copy(s.load, before)
			return false
		}
	}
	return true
}

// replace takes the row's candidate, unless it breaks a cap of its engines.
func (s *snapper) replace(at int, row *fleet.Row, weights []float64) bool {
	d := s.t.Admit(at, &row.Shed)
	for j, a := range row.Arcs {
		s.load[a.Engine] += d * (weights[j] - a.Weight)
	}
	fits := true
	for j, a := range row.Arcs {
		fits = fits && !(weights[j] > a.Weight && s.over(a.Engine))
	}
	if fits {
		s.write(row, weights)
		return true
	}
	for j, a := range row.Arcs {
		s.load[a.Engine] -= d * (weights[j] - a.Weight)
	}
	return false
}

// candidate writes the row's neater weights; false when there are none.
func (s *snapper) candidate(at int, row *fleet.Row, from int, level neatness) bool {
	before := s.lastWeights(at)
	price := s.rowPrice(s.plan, row.Arcs, at)
	floor := 0.0
	if level == neat {
		floor = s.p.RowFloor(len(row.Arcs))
	}
	w := s.neat[from : from+len(row.Arcs)]
	kept, free := 0.0, 0.0 // sums of weights
	isKept := func(j int) bool {
		return before != nil && before[j] > 0 && math.Abs(s.weight[from+j]-before[j]) <= s.p.Keep*before[j]
	}
	for j := range row.Arcs {
		switch x := s.weight[from+j]; {
		case isKept(j):
			w[j] = before[j]
			kept += w[j]
		case x < floor || s.dear(row, j, before, price):
			w[j] = 0
		default:
			w[j] = x
			free += x
		}
	}
	missing := 1 - kept - free
	if free == 0 && math.Abs(missing) <= 1e-12 {
		return true
	}
	if free < 2*math.Abs(missing) {
		// Too little is free to make up for the rest: let all that remain share.
		free = 0
		for j := range w {
			if w[j] > 0 {
				w[j] = s.weight[from+j]
				free += w[j]
			}
		}
		if free == 0 {
			return false
		}
		scale(w, 1/free)
		return true
	}
	s.share(row.Arcs, w, missing, func(j int) bool { return !isKept(j) })
	return true
}

// share adds amount to the weights that may change, in proportion. What is to
// be added goes to engines with room, if there are any.
func (s *snapper) share(arcs []fleet.Arc, w []float64, amount float64, may func(j int) bool) {
	open := func(j int) bool {
		e := arcs[j].Engine
		return may(j) && s.plan.Engines[e].Cap == 0 && s.load[e] < s.t.Cap[e]*(1-1e-6)
	}
	sum := func(in func(j int) bool) (t float64) {
		for j := range w {
			if in(j) {
				t += w[j]
			}
		}
		return t
	}
	in, total := may, 0.0
	if amount > 0 {
		in = open
	}
	if total = sum(in); total == 0 {
		in = may
		total = sum(in)
	}
	for j := range w {
		if in(j) {
			w[j] += amount * w[j] / total
		}
	}
}

func scale(w []float64, f float64) {
	for j := range w {
		w[j] *= f
	}
}
