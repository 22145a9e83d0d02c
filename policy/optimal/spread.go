package optimal

import (
	"math"

	"github.com/wardrop-lb/wardrop/policy/internal/table"
)

// spread is how the rows' flows into the groups are spread over the engines. It
// keeps what it can of the last flows: an arc's flow is
//
//	stay[cell] bear[engine] (1 - give[cell] lose[engine]) last + more[cell] take[engine]
//
// Where a cell shrinks and an engine shrinks, the cell leaves that engine first:
// one move serves both. Beyond that, a cell that shrinks keeps its last flows in
// proportion, an engine that shrinks too, and what is then missing goes where
// engines are to have more. So a row that moves leaves the flows of other rows
// alone. Without last flows all rows spread alike.
type spread struct {
	stay, more []float64 // by cell: requests/s of each request/s; requests/s
	give       []float64 // by cell: fraction
	bear, take []float64 // by element of Serving: fractions
	lose       []float64 // by element of Serving: fraction
	engineFlow []float64 // by element of Serving: requests/s that result
	load       []float64 // by engine: work/s
	open       []bool    // by group: some engine is not at its cap
	dirty      []bool    // by model
	bears      bool      // some engine of the model under way shrinks

	into, kept, need []float64 // by group: scratch
	excess, lost     []float64 // by element of Serving: scratch of match
}

func (s *spread) reset(t *table.Table) {
	cells := len(t.Clusters) * t.Groups()
	s.stay, s.more = resize(s.stay, cells), resize(s.more, cells)
	n := t.ServingCount()
	s.bear, s.take, s.engineFlow = resize(s.bear, n), resize(s.take, n), resize(s.engineFlow, n)
	s.give, s.lose, s.excess, s.lost = resize(s.give, cells), resize(s.lose, n), resize(s.excess, n), resize(s.lost, n)
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
			if !s.engine[e].Full() {
				s.open[s.t.GroupOf[start+j]] = true
			}
		}
	}
}

// addLoads adds up the engines' loads.
func (s *snapper) addLoads() {
	for e := range int32(len(s.t.Engines)) {
		s.load[e] = s.t.Load(e, s.engineFlow)
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
		s.sumRow(c, m)
	}
	want := s.take[start:][:n] // solver's flow, with what is not worth having dropped
	s.wish(m, want)
	matched := s.past != nil && s.match(m, want)
	for c := range int32(len(tab.Clusters)) {
		s.shrinkRow(c, m, last, matched)
	}
	s.bearModel(m, last, want)
	s.bears = matched
	for _, b := range s.bear[start:][:n] {
		s.bears = s.bears || b != 1
	}
	for c := range int32(len(tab.Clusters)) {
		s.moveRow(c, m)
	}
}

// sumRow adds the row's flows to those into the groups, and says how much of each
// cell is to stay.
func (s *snapper) sumRow(c, m int32) {
	tab := s.t
	at := tab.RowIndex(c, m)
	from, to := tab.GroupStart[m], tab.GroupStart[m+1]
	w := s.neat[tab.Cell(c):][from:to]
	keep := s.stay[tab.Cell(c):][from:to]
	before := s.lastCells(at, c, m)
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
		}
	}
}

// matchRounds is how often match fits cells and engines to one another. More
// rounds than two change nothing that could be measured.
const matchRounds = 2

// match finds, where cells and engines both shrink, what the ones leave the others
// by: give and lose, by proportional fitting from below. False when nothing can be
// matched.
func (s *snapper) match(m int32, want []float64) bool {
	tab := s.t
	start := tab.ServingStart(m)
	n := len(tab.Serving(m))
	excess, lose, lost := s.excess[start:][:n], s.lose[start:][:n], s.lost[start:][:n]
	shrinks := false
	for j := range excess {
		excess[j], lose[j] = s.tooMuch(m, j, want[j]), 0
		if excess[j] > 0 {
			lose[j], shrinks = 1, true
		}
	}
	from, to := tab.GroupStart[m], tab.GroupStart[m+1]
	for c := range int32(len(tab.Clusters)) {
		clear(s.give[tab.Cell(c):][from:to])
	}
	if !shrinks {
		return false
	}
	any := false
	for range matchRounds {
		clear(lost)
		for c := range int32(len(tab.Clusters)) {
			any = s.matchRow(c, m, lose, lost) || any
		}
		if !any {
			return false
		}
		for j, x := range lost {
			if x > 0 {
				lose[j] = min(1, lose[j]*excess[j]/x)
			}
		}
	}
	return true
}

// tooMuch is what the model's j-th engine has more than it is to have.
func (s *snapper) tooMuch(m int32, j int, want float64) float64 {
	start := s.t.ServingStart(m)
	had := s.past.hold[start+j]
	slack := s.p.Keep
	if s.level[m] == raw || s.engine[s.t.Serving(m)[j]].Full() {
		slack = 0
	}
	if want < had*(1-slack-1e-14) {
		return had - want
	}
	return 0
}

// matchRow fits the cells of a row that shrink, and adds what their engines lose.
func (s *snapper) matchRow(c, m int32, lose, lost []float64) bool {
	tab := s.t
	at := tab.RowIndex(c, m)
	from, to := tab.GroupStart[m], tab.GroupStart[m+1]
	keep, give := s.stay[tab.Cell(c):][from:to], s.give[tab.Cell(c):][from:to]
	before := s.lastCells(at, c, m)
	shrinks := false
	for j, k := range keep {
		shrinks = shrinks || k < 1 && before != nil && before[j] > 0
	}
	if !shrinks || s.past.admitted[at] == 0 {
		return false
	}
	group := tab.GroupOf[tab.ServingStart(m):][:len(lose)]
	loses := s.kept[from:to] // of each request/s of the row, by group
	s.losses(c, m, lose, loses)
	arcs := s.past.arcs[at]
	any := false
	for j := range give {
		give[j] = 0
		if keep[j] < 1 && loses[j] > 0 {
			give[j] = min(1, (1-keep[j])*before[j]/loses[j])
			any = true
		}
	}
	if any {
		for j, l := range lose {
			lost[j] += l * give[group[j]-from] * arcs[j].Weight * s.past.admitted[at]
		}
	}
	return any
}

// shrinkRow takes what the row's cells do not keep out of last.
func (s *snapper) shrinkRow(c, m int32, last []float64, matched bool) {
	tab := s.t
	at := tab.RowIndex(c, m)
	from, to := tab.GroupStart[m], tab.GroupStart[m+1]
	keep, give := s.stay[tab.Cell(c):][from:to], s.give[tab.Cell(c):][from:to]
	before := s.lastCells(at, c, m)
	if before == nil || s.past.admitted[at] == 0 {
		return
	}
	less := false
	for j, k := range keep {
		less = less || k < 1 && before[j] > 0
	}
	if !less {
		return
	}
	start := tab.ServingStart(m)
	group := tab.GroupOf[start:][:len(last)]
	arcs := s.past.arcs[at]
	if matched {
		lose := s.lose[start:][:len(last)]
		s.keepMore(c, m, lose)
		for j, l := range lose {
			g := group[j] - from
			last[j] -= (1 - keep[g]*(1-give[g]*l)) * arcs[j].Weight * s.past.admitted[at]
		}
		return
	}
	for j, a := range arcs {
		last[j] -= (1 - keep[group[j]-from]) * a.Weight * s.past.admitted[at]
	}
}

// keepMore raises what shrinking cells keep by what matched moves take out.
func (s *snapper) keepMore(c, m int32, lose []float64) {
	tab := s.t
	at := tab.RowIndex(c, m)
	from, to := tab.GroupStart[m], tab.GroupStart[m+1]
	keep, give := s.stay[tab.Cell(c):][from:to], s.give[tab.Cell(c):][from:to]
	before, gone := s.lastCells(at, c, m), s.kept[from:to]
	s.losses(c, m, lose, gone)
	for j, g := range give {
		if g > 0 {
			keep[j] = min(1, keep[j]/max(1-g*gone[j]/before[j], 1e-300))
		}
	}
}

// losses adds up by group what each request/s of a row would lose.
func (s *snapper) losses(c, m int32, lose, sum []float64) {
	clear(sum)
	group, from := s.t.GroupOf[s.t.ServingStart(m):][:len(lose)], s.t.GroupStart[m]
	arcs := s.past.arcs[s.t.RowIndex(c, m)]
	for j, l := range lose {
		sum[group[j]-from] += l * arcs[j].Weight
	}
}

// bearModel finds what each engine keeps of last and which part it takes of what
// its group has more. It leaves in last what the engines have in the end.
func (s *snapper) bearModel(m int32, last, want []float64) {
	tab := s.t
	from, to := tab.GroupStart[m], tab.GroupStart[m+1]
	start, serving := tab.ServingStart(m), tab.Serving(m)
	group := tab.GroupOf[start:][:len(serving)]
	bear, take := s.bear[start:][:len(serving)], s.take[start:][:len(serving)]
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
		if s.engine[e].Full() {
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
	fare := 0.0
	if s.moves(m) {
		fare = s.p.EngineChurn()
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
			if fare > 0 {
				last = s.past.hold[start+j]
			}
			cost, price := stay(s.cost(m, e, start+j), fare, last), s.groupPrice[g]
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

// cost is what one more request of model m costs at engine e, in seconds; p is
// where e stands among those that serve m.
func (s *result) cost(m, e int32, p int) float64 {
	x, t := &s.engine[e], s.t
	return t.Work[m]*(x.Latency+x.Congestion+x.Cap+t.Holds[table.Tokens][m]*x.TokenPrice+t.Holds[table.Slots][m]*x.SlotPrice) +
		t.Own[p] + x.Penalty + t.Engines[e].Offset
}

// moveRow finds what the row's cells have beyond what they keep.
func (s *snapper) moveRow(c, m int32) {
	tab := s.t
	at := tab.RowIndex(c, m)
	from, to := tab.GroupStart[m], tab.GroupStart[m+1]
	w := s.neat[tab.Cell(c):][from:to]
	keep, more := s.stay[tab.Cell(c):][from:to], s.more[tab.Cell(c):][from:to]
	give := s.give[tab.Cell(c):][from:to]
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
				g := group[j] - from
				left[g] += a.Weight * s.bear[start+j] * (1 - give[g]*s.lose[start+j])
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
