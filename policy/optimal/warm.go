package optimal

import "math"

// warmStart is an iterate of the last solve that is neither far from its optimum
// nor so near that the numbers of a pair differ by orders of magnitude: from
// there the optimum of a problem a little different is a few steps away.
type warmStart struct {
	wanted       bool
	signature    uint64 // of the network it is of; the zero value fits none
	primal, dual []float64
	rows, groups []float64 // prices
	demand       []float64 // by row
	limit        []float64 // by class
	bound        []float64 // by side, then by hold
	taken        bool      // this solve's iterate is there
}

const (
	warmProducts   = 3e-5 // relative, from where an iterate is kept
	warmPrimal     = 1e-3
	warmDrift      = 0.05 // most that demand may have moved; beyond, a cold start is as quick
	warmIterations = 15   // most before a cold start is tried
)

// offer keeps the solver's iterate when it is the first that is near enough.
func (w *warmStart) offer(s *interior) {
	if !w.wanted || w.taken || s.now.products > warmProducts*s.now.objective || s.now.primalRes > warmPrimal {
		return
	}
	w.taken = true
	if s.isWarm && s.now.products < 0.1*warmProducts*s.now.objective {
		return // that is too near: the one kept is better
	}
	w.primal = append(w.primal[:0], s.primal...)
	w.dual = append(w.dual[:0], s.dual...)
	w.rows = append(w.rows[:0], s.rowPrice...)
	w.groups = append(w.groups[:0], s.groupPrice...)
	w.demand = append(w.demand[:0], s.demand...)
	w.limit = append(w.limit[:0], s.limit...)
	w.bound = append(append(w.bound[:0], s.sideBound...), s.holdBound...)
}

// fits says whether the kept iterate is one of the network's, and demand and caps
// have moved little since.
func (w *warmStart) fits(s *interior, signature uint64) bool {
	if !w.wanted || !w.taken || w.signature != signature || len(w.primal) != s.pairs {
		return false
	}
	return moderate(w.demand, s.demand) && moderate(w.limit, s.limit)
}

// moderate says whether figures have moved little, all together.
func moderate(before, now []float64) bool {
	if len(before) != len(now) {
		return false
	}
	moved, all := 0.0, 0.0
	for i, x := range now {
		moved += math.Abs(x - before[i])
		all += before[i]
	}
	return moved <= warmDrift*all
}

// startWarm begins at the kept iterate, each row's flows in proportion to its
// demand.
func (s *interior) startWarm() {
	w := &s.kept
	s.setRoom()
	copy(s.primal, w.primal)
	copy(s.dual, w.dual)
	copy(s.rowPrice, w.rows)
	copy(s.groupPrice, w.groups)
	for r := range s.row {
		f := s.demand[r] / w.demand[r]
		scale(s.primal[s.arcStart[r]:s.arcStart[r+1]], f)
		for i := int(s.sideStart[r]); i < int(s.sideStart[r+1]); i++ {
			f = s.sideBound[i] / w.bound[i]
			s.primal[s.sides+i] *= f
			s.primal[s.sideBounds+i] *= f
		}
	}
	for i := range s.holdGroup {
		f := s.holdBound[i] / w.bound[len(s.sideGroup)+i]
		s.primal[s.holds+i] *= f
		s.primal[s.holdBounds+i] *= f
	}
}

func scale(x []float64, f float64) {
	for i := range x {
		x[i] *= f
	}
}
