package optimal

import (
	"math"

	"github.com/wardrop-lb/wardrop/policy/internal/table"
)

// spread is how the rows' flows into the groups are spread over the engines. It
// keeps what it can of the last flows: an arc's flow is
//
//	stay[cell] bear[engine] last + more[cell] take[engine]
//
// A cell that shrinks keeps its last flows in proportion, an engine that shrinks
// too, and what is then missing goes where engines are to have more. So a row
// that moves leaves the flows of other rows alone. Without last flows all rows
// spread alike.
type spread struct {
	stay, more []float64 // by cell: requests/s of each request/s; requests/s
	bear, take []float64 // by element of Serving: fractions
	engineFlow []float64 // by element of Serving: requests/s that result
	load       []float64 // by engine: requests/s
	open       []bool    // by group: some engine is not at its cap
	dirty      []bool    // by model
	bears      bool      // some engine of the model under way shrinks

	into, kept, need []float64 // by group: scratch
}

func (s *spread) reset(t *table.Table) {
	cells := len(t.Clusters) * t.Groups()
	s.stay, s.more = resize(s.stay, cells), resize(s.more, cells)
	n := t.ServingCount()
	s.bear, s.take, s.engineFlow = resize(s.bear, n), resize(s.take, n), resize(s.engineFlow, n)
	s.load = resize(s.load, len(t.Engines))
	s.dirty = resize(s.dirty, len(t.Models))
	clear(s.dirty)
	s.open, s.into, s.need = resize(s.open, t.Groups()), resize(s.into, t.Groups()), resize(s.need, t.Groups())
	s.kept = resize(s.kept, t.Groups())
}

// setOpen finds the groups with room.
func (s *snapper) setOpen() {
	clear(s.open)
	for m := range int32(len(s.t.Models)) {
		start := s.t.ServingStart(m)
		for j, e := range s.t.Serving(m) {
			if s.engine[e].Cap == 0 {
				s.open[s.t.GroupOf[start+j]] = true
			}
		}
	}
}

// addLoads adds up the engines' loads.
func (s *snapper) addLoads() {
	for e := range int32(len(s.t.Engines)) {
		u := 0.0
		for _, p := range s.t.ServesAt(e) {
			u += s.engineFlow[p]
		}
		s.load[e] = u
	}
}

// spreadModel sets what the rows of a model keep and move.
func (s *snapper) spreadModel(m int32) {
	tab := s.t
	from, to := tab.GroupStart[m], tab.GroupStart[m+1]
	start := tab.ServingStart(m)
	n := len(tab.Serving(m))
	last := s.engineFlow[start:][:n] // what is left of the last flows
	if s.past == nil {
		clear(last)
	} else {
		copy(last, s.past.hold[start:][:n])
	}
	clear(s.into[from:to])
	for c := range int32(len(tab.Clusters)) {
		s.shrinkRow(c, m, last)
	}
	s.bearModel(m, last)
	s.bears = false
	for _, b := range s.bear[start:][:n] {
		s.bears = s.bears || b != 1
	}
	for c := range int32(len(tab.Clusters)) {
		s.moveRow(c, m)
	}
}

// shrinkRow finds what the row's cells keep and takes the rest out of last.
func (s *snapper) shrinkRow(c, m int32, last []float64) {
	tab := s.t
	at := tab.RowIndex(c, m)
	from, to := tab.GroupStart[m], tab.GroupStart[m+1]
	w := s.neat[tab.Cell(c):][from:to]
	keep := s.stay[tab.Cell(c):][from:to]
	before := s.lastCells(at, c, m)
	less := false
	for j := range w {
		x := w[j] * s.let[at]
		s.into[int(from)+j] += x
		keep[j] = 0
		if before == nil || before[j] == 0 || s.past.admitted[at] == 0 {
			continue
		}
		keep[j] = 1
		if x0 := before[j] * s.past.admitted[at]; x < x0*(1-1e-15) {
			keep[j] = x / x0
			less = true
		}
	}
	if !less {
		return
	}
	group := tab.GroupOf[tab.ServingStart(m):][:len(last)]
	for j, a := range s.past.arcs[at] {
		if a.Weight > 0 {
			last[j] -= (1 - keep[group[j]-from]) * a.Weight * s.past.admitted[at]
		}
	}
}

// bearModel finds what each engine keeps of last and which part it takes of what
// its group has more. It leaves in last what the engines have in the end.
func (s *snapper) bearModel(m int32, last []float64) {
	tab := s.t
	from, to := tab.GroupStart[m], tab.GroupStart[m+1]
	start, serving := tab.ServingStart(m), tab.Serving(m)
	group := tab.GroupOf[start:][:len(serving)]
	bear, take := s.bear[start:][:len(serving)], s.take[start:][:len(serving)]
	want := take // solver's flow, with what is not worth having dropped
	s.wish(m, want)
	for g := from; g < to; g++ {
		s.need[g], s.kept[g] = 0, 0
	}
	keep := s.p.Keep
	if s.level[m] == raw {
		keep = 0
	}
	for j, e := range serving {
		g := group[j]
		y := max(0, last[j])
		bear[j] = 1
		slack := keep
		if s.engine[e].Cap > 0 {
			slack = 0
		}
		if want[j] < y*(1-slack-1e-14) {
			bear[j] = want[j] / y
			y = want[j]
		}
		last[j] = y
		take[j] = max(0, want[j]-y)
		s.need[g] += take[j]
		s.kept[g] += y
	}
	for j := range serving {
		g := group[j]
		if s.need[g] > 0 {
			take[j] /= s.need[g]
		} else if s.into[g] > 0 {
			take[j] = last[j] / s.kept[g]
		}
		last[j] += take[j] * max(0, s.into[g]-s.kept[g])
	}
}

// wish sets the flows that the model's engines should have: the solver's at the
// rows' flows, without those that are small or too dear.
func (s *snapper) wish(m int32, want []float64) {
	tab := s.t
	from, to := tab.GroupStart[m], tab.GroupStart[m+1]
	start, serving := tab.ServingStart(m), tab.Serving(m)
	group := tab.GroupOf[start:][:len(serving)]
	flow := s.flow[start:][:len(serving)]
	if s.stayedModel(m) {
		copy(want, s.past.hold[start:][:len(serving)])
		return
	}
	all, sum := s.need, s.kept
	clear(all[from:to])
	clear(sum[from:to])
	for j, y := range flow {
		all[group[j]] += y
	}
	half := 0.0
	if s.moves(m) {
		half = 0.5 * s.p.Lambda
	}
	floor := 0.0
	if s.level[m] == neat {
		floor = s.p.RowFloor(len(serving))
	}
	for j, e := range serving {
		g := group[j]
		want[j] = flow[j]
		if s.level[m] < raw {
			last := 0.0
			if half > 0 {
				last = s.past.hold[start+j]
			}
			cost, price := stay(s.cost(e), half, last), s.groupPrice[g]
			if flow[j] < floor*all[g] || cost > price+much*math.Abs(price) {
				want[j] = 0
			}
		}
		sum[g] += want[j]
	}
	for j := range want {
		g := group[j]
		switch {
		case sum[g] > 0:
			want[j] *= s.into[g] / sum[g]
		case all[g] > 0:
			want[j] = flow[j] * s.into[g] / all[g]
		default:
			want[j] = 0
		}
	}
}

// stayedModel says whether the model's rows keep their last weights.
func (s *snapper) stayedModel(m int32) bool {
	for c := range int32(len(s.t.Clusters)) {
		if st := s.state[s.t.RowIndex(c, m)]; st != idle {
			return st == stays
		}
	}
	return false
}

// cost is what one more request costs at an engine, in seconds.
func (s *result) cost(e int32) float64 {
	return s.engine[e].Price() + s.t.Engines[e].Offset
}

// moveRow finds what the row's cells have beyond what they keep.
func (s *snapper) moveRow(c, m int32) {
	tab := s.t
	at := tab.RowIndex(c, m)
	from, to := tab.GroupStart[m], tab.GroupStart[m+1]
	w := s.neat[tab.Cell(c):][from:to]
	keep, more := s.stay[tab.Cell(c):][from:to], s.more[tab.Cell(c):][from:to]
	left := s.into[from:to] // not needed any more: what the row's cells keep
	clear(more)
	if s.let[at] == 0 {
		return
	}
	clear(left)
	before := s.lastCells(at, c, m)
	if before != nil && !s.bears {
		left = before
	} else if before != nil {
		start := tab.ServingStart(m)
		group := tab.GroupOf[start:]
		for j, a := range s.past.arcs[at] {
			if a.Weight > 0 {
				left[group[j]-from] += a.Weight * s.bear[start+j]
			}
		}
	}
	for j := range w {
		if keep[j] > 0 {
			keep[j] *= s.past.admitted[at] / s.let[at]
		}
		if x := w[j] - keep[j]*left[j]; x > 1e-12*w[j] {
			more[j] = x
		}
	}
}
