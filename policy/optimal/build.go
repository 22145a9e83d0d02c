package optimal

import (
	"cmp"
	"math"
	"slices"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy"
	"github.com/wardrop-lb/wardrop/policy/internal/table"
)

// builder makes the network of one component, again and again in the same
// memory.
type builder struct {
	network
	t    *table.Table
	p    *policy.Problem
	past *past // nil: no churn
	c    *component
	ramp bool // limits of cold engines are kept

	columns *columns // nil: a row has arcs to all groups of its model

	sorted []int32 // the component's engines, those alike side by side
	traits []trait // by engine of the component: what sorted rests on
	twin   []bool  // by place in sorted: alike to the one before, but for last flows
	active []bool  // by model of the component: some of it is asked for
	moves  []bool  // by model of the component: some row of it pays churn

	signature uint64 // of the structure: rows, sides, links and holds
}

// trait is what tells engines apart, but for place, models and last flows.
type trait struct {
	profile               fleet.Profile
	cap                   float64
	limits                [table.Resources]float64
	offset, penalty, ramp float64
}

// make builds the component's network; false when nothing is asked of it.
func (b *builder) make(past *past, ramp bool) bool {
	b.past, b.ramp, b.signature = past, ramp, 0
	b.fixed = 0
	b.moment = ofT0 * shortest(b.t, b.c)
	b.sortEngines()
	b.addGroups()
	b.addClasses()
	b.addRows()
	b.nothing = 0
	for _, d := range b.demand {
		b.nothing += b.moment * d
	}
	return len(b.row) > 0
}

// mix adds a number to the signature, by the mixing step of splitmix64.
func (b *builder) mix(n int) {
	x := b.signature + uint64(n) + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	b.signature = x ^ x>>31
}

// sortEngines puts alike engines side by side, unless they still are.
func (b *builder) sortEngines() {
	same := len(b.sorted) == len(b.c.engines)
	b.traits = slices.Grow(b.traits[:0], len(b.c.engines))[:len(b.c.engines)]
	for i, e := range b.c.engines {
		engine := b.t.Engines[e]
		now := trait{engine.Profile, b.t.Cap[e], b.limits(e), engine.Offset, engine.Penalty, engine.Ramp}
		same = same && b.traits[i] == now
		b.traits[i] = now
	}
	if same {
		return
	}
	b.sorted = append(b.sorted[:0], b.c.engines...)
	slices.SortStableFunc(b.sorted, b.compare)
	b.twin = append(b.twin[:0], false)
	for i := 1; i < len(b.sorted); i++ {
		b.twin = append(b.twin, b.compare(b.sorted[i-1], b.sorted[i]) == 0)
	}
}

// limits are the engine's limits that are not part of its cap.
func (b *builder) limits(e int32) (l [table.Resources]float64) {
	for r := range l {
		l[r] = b.t.Limits[r][e]
	}
	return l
}

func (b *builder) compare(x, y int32) int {
	e, f := b.t.Engines[x], b.t.Engines[y]
	return cmp.Or(
		cmp.Compare(b.t.Place[x], b.t.Place[y]),
		slices.Compare(b.t.Serves(x), b.t.Serves(y)),
		cmp.Compare(e.Profile.T0, f.Profile.T0),
		cmp.Compare(e.Profile.UMax, f.Profile.UMax),
		cmp.Compare(e.Profile.Batch, f.Profile.Batch),
		cmp.Compare(e.Profile.FirstToken, f.Profile.FirstToken),
		cmp.Compare(e.Profile.Spread, f.Profile.Spread),
		cmp.Compare(b.t.Cap[x], b.t.Cap[y]),
		cmp.Compare(b.t.Limits[table.Tokens][x], b.t.Limits[table.Tokens][y]),
		cmp.Compare(b.t.Limits[table.Slots][x], b.t.Limits[table.Slots][y]),
		cmp.Compare(e.Offset, f.Offset),
		cmp.Compare(e.Penalty, f.Penalty),
		cmp.Compare(e.Ramp, f.Ramp),
	)
}

// alike says whether two engines, neighbours in sorted but for their like, had the
// same last flows.
func (b *builder) alike(x, y int32) bool {
	if b.past == nil {
		return true
	}
	at := b.t.ServesAt(y)
	for i, p := range b.t.ServesAt(x) {
		if b.past.hold[p] != b.past.hold[at[i]] {
			return false
		}
	}
	return true
}

// addGroups numbers the groups of the models that are asked for, and says which
// of these pay churn.
func (b *builder) addGroups() {
	b.place = b.place[:0]
	b.groupOf, b.model, b.active, b.moves = b.groupOf[:0], b.model[:0], b.active[:0], b.moves[:0]
	for _, m := range b.c.models {
		b.model = append(b.model, int32(len(b.groupOf)))
		active := false
		for c := range int32(len(b.t.Clusters)) {
			active = active || b.t.Rate[b.t.RowIndex(c, m)] > 0
		}
		b.active, b.moves = append(b.active, active), append(b.moves, b.past != nil && b.past.model[m] > 0)
		if active {
			for g := b.t.GroupStart[m]; g < b.t.GroupStart[m+1]; g++ {
				b.groupOf, b.place = append(b.groupOf, g), append(b.place, b.t.GroupPlace[g])
			}
		}
	}
	b.groups = len(b.groupOf)
	b.model = append(b.model, int32(b.groups))
}

func (b *builder) addClasses() {
	n := &b.network
	n.linkStart, n.linkGroup, n.linkCost = append(n.linkStart[:0], 0), n.linkGroup[:0], n.linkCost[:0]
	n.holdStart, n.holdGroup, n.holdCost, n.holdBound = append(n.holdStart[:0], 0), n.holdGroup[:0], n.holdCost[:0], n.holdBound[:0]
	n.memberStart, n.members = append(n.memberStart[:0], 0), append(n.members[:0], b.sorted...)
	n.curve, n.count, n.limit = n.curve[:0], n.count[:0], n.limit[:0]
	n.extraStart, n.extraLimit, n.extraKind = append(n.extraStart[:0], 0), n.extraLimit[:0], n.extraKind[:0]
	n.extraScale = n.extraScale[:0]
	n.extraAt, n.extraHolds = n.extraAt[:0], n.extraHolds[:0]
	for from := 0; from < len(b.sorted); {
		to := from + 1
		for to < len(b.sorted) && b.twin[to] && b.alike(b.sorted[from], b.sorted[to]) {
			to++
		}
		b.addClass(b.sorted[from], float64(to-from))
		n.memberStart = append(n.memberStart, int32(to))
		from = to
	}
}

// addClass adds a class by one of its engines.
func (b *builder) addClass(e int32, count float64) {
	n := &b.network
	n.curve, n.count = append(n.curve, b.t.Curve[e]), append(n.count, count)
	n.limit = append(n.limit, count*capacity(b.t, e, b.ramp)*(1-capMargin))
	linear := b.t.Engines[e].Offset + b.t.Engines[e].Penalty
	i, at := 0, b.t.ServesAt(e)
	for j, m := range b.t.Serves(e) {
		for b.c.models[i] != m {
			i++
		}
		if !b.active[i] {
			continue
		}
		group := b.model[i] + b.t.GroupOf[at[j]] - b.t.GroupStart[m]
		work := b.t.Work[m]
		cost, fare := (linear+b.t.Own[at[j]])/work, 0.0
		if b.moves[i] {
			fare = b.p.EngineChurn() / work
			last := count * b.past.hold[at[j]] * work
			b.fixed += fare * last
			if last > negligible*b.past.model[m]*work {
				n.holdGroup = append(n.holdGroup, group)
				n.holdCost = append(n.holdCost, cost-fare)
				n.holdBound = append(n.holdBound, last)
			}
		}
		n.linkGroup, n.linkCost = append(n.linkGroup, group), append(n.linkCost, cost+fare)
		b.mix(int(group))
	}
	n.linkStart = append(n.linkStart, int32(len(n.linkGroup)))
	n.holdStart = append(n.holdStart, int32(len(n.holdGroup)))
	b.mix(len(n.holdGroup))
	for r := range table.Resource(table.Resources) {
		if limit := b.t.Limits[r][e]; limit > 0 {
			b.addExtra(r, count*limit*(1-capMargin))
		}
	}
	n.extraStart = append(n.extraStart, int32(len(n.extraLimit)))
	b.mix(len(n.extraLimit))
}

// addExtra gives the class under way an extra limit.
func (b *builder) addExtra(r table.Resource, limit float64) {
	n := &b.network
	k := len(n.count) - 1
	scale := n.limit[k] / limit // so that it is of the size of the cap
	n.extraLimit, n.extraScale, n.extraKind = append(n.extraLimit, n.limit[k]), append(n.extraScale, scale), append(n.extraKind, r)
	n.extraAt = append(n.extraAt, int32(len(n.extraHolds)))
	for _, g := range n.linkGroup[n.linkStart[k]:n.linkStart[k+1]] {
		n.extraHolds = append(n.extraHolds, scale*b.t.Holds[r][b.modelOf(g)])
	}
	for _, g := range n.holdGroup[n.holdStart[k]:n.holdStart[k+1]] {
		n.extraHolds = append(n.extraHolds, scale*b.t.Holds[r][b.modelOf(g)])
	}
}

// modelOf is the table's number of a group's model.
func (b *builder) modelOf(group int32) int32 {
	i, ok := slices.BinarySearch(b.model, group)
	if !ok {
		i--
	}
	for b.model[i+1] == b.model[i] { // models that nobody asks for have no groups
		i++
	}
	return b.c.models[i]
}

// shortest is the least T0 of the component's engines.
func shortest(t *table.Table, c *component) float64 {
	least := math.Inf(1)
	for _, e := range c.engines {
		least = min(least, t.Engines[e].Profile.T0)
	}
	return least
}

// capacity is an engine's hard cap in work/s, its ramp included where it is
// kept.
func capacity(t *table.Table, e int32, ramp bool) float64 {
	if r := t.Engines[e].Ramp; ramp && r > 0 {
		return r * t.Cap[e]
	}
	return t.Cap[e]
}

// addRows adds the rows with demand, their arcs and sides.
func (b *builder) addRows() {
	n := &b.network
	n.row, n.demand, n.cost, n.arcGroup = n.row[:0], n.demand[:0], n.cost[:0], n.arcGroup[:0]
	n.first, n.beyond = n.first[:0], n.beyond[:0]
	n.lean = b.columns != nil
	n.arcStart, n.sideStart = append(n.arcStart[:0], 0), append(n.sideStart[:0], 0)
	n.sideGroup, n.sideCost, n.sideBound = n.sideGroup[:0], n.sideCost[:0], n.sideBound[:0]
	for i, m := range b.c.models {
		for c := range int32(len(b.t.Clusters)) {
			if at := b.t.RowIndex(c, m); b.t.Rate[at] > 0 {
				b.addRow(c, m, b.model[i], b.model[i+1])
			}
		}
	}
}

func (b *builder) addRow(c, m, from, to int32) {
	n := &b.network
	at := b.t.RowIndex(c, m)
	work := b.t.Work[m]
	n.row, n.demand = append(n.row, int32(at)), append(n.demand, b.t.Rate[at]*work)
	n.first, n.beyond = append(n.first, from), append(n.beyond, to)
	b.mix(at)

	moves := b.past != nil && b.past.known[at]
	fare := 0.0
	if moves {
		fare = b.p.RowChurn()
	}
	if n.lean {
		for j, in := range b.columns.of(b.t, at, m) {
			if g := from + int32(j); in {
				n.arcGroup = append(n.arcGroup, g)
				n.cost = append(n.cost, (b.t.Distance(c, b.place[g])+fare)/work)
				b.mix(int(g))
			}
		}
	}
	cells := b.t.Cell(c)
	for g := from; g < to; g++ {
		group := b.groupOf[g]
		distance := b.t.Distance(c, b.place[g])
		if !n.lean {
			n.cost = append(n.cost, (distance+fare)/work)
		}
		if !moves {
			continue
		}
		last := b.past.cell[cells+int(group)] * b.past.admitted[at]
		b.fixed += fare * last
		if last > negligible*b.t.Rate[at] {
			b.addSide(g, (distance-fare)/work, last*work)
		}
	}
	for k, rate := range b.t.Demand[at] {
		if rate > 0 {
			b.addSide(int32(b.groups), (b.c.base+b.p.Refuse[k])/work, rate*work)
		}
	}
	n.arcStart = append(n.arcStart, int32(len(n.cost)))
	n.sideStart = append(n.sideStart, int32(len(n.sideGroup)))
}

func (b *builder) addSide(group int32, cost, bound float64) {
	n := &b.network
	n.sideGroup, n.sideCost, n.sideBound = append(n.sideGroup, group), append(n.sideCost, cost), append(n.sideBound, bound)
	b.mix(int(group))
}
