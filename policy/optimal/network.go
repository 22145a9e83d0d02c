package optimal

import (
	"slices"

	"github.com/wardrop-lb/wardrop/latency"
	"github.com/wardrop-lb/wardrop/policy"
	"github.com/wardrop-lb/wardrop/policy/internal/table"
)

// capMargin keeps the solver's caps a little inside the true ones, so that
// cleaning the solution up afterwards cannot break them.
const capMargin = 1e-8

// capTolerance is the relative excess over a cap that counts as rounding; the
// certificate permits twice that.
const capTolerance = 5e-10

// ofT0 is the fraction of the shortest T0 below which a cost is none. Where time is worth
// nothing until the knee, costs may be 1e-50: what is relative to them is rounding.
const ofT0 = 1e-6

// negligible is the fraction of a flow below which none of it is kept apart.
const negligible = 1e-9

// network is one component as the interior point method sees it: rows with
// demand, groups, and classes, which are sets of engines alike in everything. A
// row sends flow over one arc to each group of its model, the arcs in the order
// of the groups; a group passes it over links to classes. A lean network, see
// columns, has only some of the arcs.
//
// All flows are counted in work, and all costs by unit of work: so models whose
// requests ask different amounts share an engine's load and cap as they are. A
// class may have extra limits on what its flows hold, see wide.
//
// Beside the arcs a row has sides, each with a bound: flow that stays in a group
// where the row had some, and flow that is refused. Beside the links a class has
// holds: flow that stays. Staying costs less, by twice the churn price, than the
// arc or link beside it, up to what was there.
//
// It is rebuilt in place from tick to tick.
type network struct {
	groups int // group number groups stands for "refused"
	lean   bool

	row       []int32   // table's row number
	demand    []float64 // work/s
	first     []int32   // by row: its model's first group
	beyond    []int32   // by row: the group after its model's last
	arcStart  []int32   // by row: where its arcs begin; one more at the end
	sideStart []int32   // the same for its sides
	cost      []float64 // by arc, seconds
	arcGroup  []int32   // by arc, where the network is lean
	sideGroup []int32   // by side
	sideCost  []float64 // by side, seconds
	sideBound []float64 // by side, work/s
	fixed     float64   // part of the objective that no flow changes
	moment    float64   // seconds: costs below it are none
	nothing   float64   // seconds per second: objectives below it are none

	linkStart []int32 // by class; one more at the end
	linkGroup []int32
	linkCost  []float64 // seconds: offset, penalty, own latency and churn
	holdStart []int32   // by class; one more at the end
	holdGroup []int32
	holdCost  []float64
	holdBound []float64

	memberStart []int32 // by class; one more at the end
	members     []int32 // engines
	curve       []latency.Model
	extraStart  []int32   // by class: where its extra limits begin; one more at the end
	extraLimit  []float64 // by extra limit: what all its engines may hold, scaled to the class's limit
	extraScale  []float64 // by extra limit: that scale
	extraKind   []table.Resource
	extraAt     []int32   // by extra limit: where its coefficients begin in extraHolds
	extraHolds  []float64 // for each of the class's links, then its holds
	count       []float64 // engines in the class
	limit       []float64 // work/s of all its engines

	groupOf []int32 // by group: the table's number
	place   []int32 // by group: the table's place
	model   []int32 // by model of the component: its first group; one more at the end
}

// arcTo is row r's arc to group g; a row has one wherever it has a side.
func (n *network) arcTo(r int, g int32) int {
	from, to := int(n.arcStart[r]), int(n.arcStart[r+1])
	if !n.lean {
		return from + int(g-n.first[r])
	}
	i, _ := slices.BinarySearch(n.arcGroup[from:to], g)
	return from + i
}

// groupOfArc is the group that row r's arc a leads to.
func (n *network) groupOfArc(r, a int) int32 {
	if n.lean {
		return n.arcGroup[a]
	}
	return n.first[r] + int32(a) - n.arcStart[r]
}

// component is a set of engines joined by models in common.
type component struct {
	engines []int32
	models  []int32
	base    float64 // seconds: the dearest request that could be admitted, see policy.Problem
	lean    bool    // it is solved on some of its arcs
}

// components splits the table, in the order of their first engines.
func components(t *table.Table) []component {
	root := make([]int32, len(t.Engines))
	for i := range root {
		root[i] = int32(i)
	}
	find := func(i int32) int32 {
		for root[i] != i {
			root[i] = root[root[i]]
			i = root[i]
		}
		return i
	}
	for m := range int32(len(t.Models)) {
		serving := t.Serving(m)
		for _, e := range serving {
			a, b := find(serving[0]), find(e)
			root[max(a, b)] = min(a, b)
		}
	}
	var all []component
	number := make([]int32, len(t.Engines)) // of the component whose root this is
	for i := range t.Engines {
		r := find(int32(i))
		if int(r) == i {
			number[r] = int32(len(all))
			all = append(all, component{})
		}
		c := &all[number[r]]
		c.engines = append(c.engines, int32(i))
	}
	for m := range int32(len(t.Models)) {
		if serving := t.Serving(m); len(serving) > 0 {
			c := &all[number[find(serving[0])]]
			c.models = append(c.models, m)
		}
	}
	return all
}

// setBase finds the dearest request that could be admitted; far is the greatest
// distance by place.
func (c *component) setBase(t *table.Table, p *policy.Problem, far []float64) {
	c.base = 0
	for _, e := range c.engines {
		engine := t.Engines[e]
		c.base = max(c.base, far[t.Place[e]]+engine.Offset+engine.Penalty+t.Top(e)+p.RowChurn()+p.EngineChurn())
	}
}
