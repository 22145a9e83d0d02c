package optimal

import (
	"cmp"
	"math"
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

// network is one component as the interior point method sees it. Rows with
// demand send flow over arcs to groups, or refuse it over shed arcs; groups
// pass it over links to classes, which are sets of engines alike in everything.
//
// Without churn a group is (model, region): all its engines are equally far from
// any row, so which row's request goes to which of them does not matter. Where
// moving costs, it does matter, unless the engines' last weights are alike too:
// then a group is (model, class).
type network struct {
	groups int

	row      []int32   // table's row number
	demand   []float64 // requests/s
	arcStart []int32   // by row: where its arcs begin; one more at the end
	first    []int32   // by row: its first group
	width    []int32   // by row: its first arcs go to groups first, first+1, ..., this many

	group []int32   // by arc; -1 sheds
	cost  []float64 // by arc, seconds
	bound []float64 // by arc, requests/s; +Inf when there is none
	fixed float64   // part of the objective that no flow changes

	linkStart []int32 // by class; one more at the end
	linkGroup []int32 // by link

	member [][]int32 // by class: its engines, ascending
	curve  []latency.Model
	count  []float64 // engines in the class
	linear []float64 // seconds: offset and penalty
	limit  []float64 // requests/s of all its engines
}

// component is a set of engines joined by models in common.
type component struct {
	engines []int32
	models  []int32
	base    float64 // seconds: the dearest request that could be admitted, see policy.Problem
}

// components splits the table, in the order of their first engines.
func components(t *table.Table, p *policy.Problem) []component {
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
	far := make([]float64, len(t.Regions))
	for r := range far {
		far[r] = t.Farthest(int32(r))
	}
	for i, e := range t.Engines {
		r := find(int32(i))
		if int(r) == i {
			number[r] = int32(len(all))
			all = append(all, component{})
		}
		c := &all[number[r]]
		c.engines = append(c.engines, int32(i))
		dearest := far[t.Region[i]] + e.Offset + e.Penalty + t.Curve[i].At(t.Cap[i]).Slope + p.Lambda
		c.base = max(c.base, dearest)
	}
	for m := range int32(len(t.Models)) {
		if serving := t.Serving(m); len(serving) > 0 {
			c := &all[number[find(serving[0])]]
			c.models = append(c.models, m)
		}
	}
	return all
}

// builder makes the network of one component.
type builder struct {
	*network
	t    *table.Table
	p    *policy.Problem
	last *table.Last // nil: no churn
	c    *component

	region []int32 // by group
}

// build makes a component's network; nil when nothing is asked of it.
func build(t *table.Table, p *policy.Problem, last *table.Last, c *component) *network {
	b := &builder{network: &network{}, t: t, p: p, last: last, c: c}
	b.addClasses()
	b.addRows(b.addGroups())
	if len(b.row) == 0 {
		return nil
	}
	return b.network
}

// addClasses sorts the engines into sets that nothing tells apart.
func (b *builder) addClasses() {
	signature := b.signatures()
	alike := func(x, y int32) int {
		e, f := b.t.Engines[x], b.t.Engines[y]
		return cmp.Or(
			cmp.Compare(b.t.Region[x], b.t.Region[y]),
			slices.Compare(b.t.Serves(x), b.t.Serves(y)),
			cmp.Compare(e.Profile.T0, f.Profile.T0),
			cmp.Compare(e.Profile.UMax, f.Profile.UMax),
			cmp.Compare(e.Profile.Batch, f.Profile.Batch),
			cmp.Compare(e.Profile.Kappa, f.Profile.Kappa),
			cmp.Compare(e.Offset, f.Offset),
			cmp.Compare(e.Penalty, f.Penalty),
			cmp.Compare(signature[x], signature[y]),
		)
	}
	sorted := slices.Clone(b.c.engines)
	slices.SortStableFunc(sorted, alike)
	for len(sorted) > 0 {
		n := 1
		for n < len(sorted) && alike(sorted[0], sorted[n]) == 0 {
			n++
		}
		e := sorted[0]
		b.member = append(b.member, sorted[:n:n])
		b.curve = append(b.curve, b.t.Curve[e])
		b.count = append(b.count, float64(n))
		b.linear = append(b.linear, b.t.Engines[e].Offset+b.t.Engines[e].Penalty)
		b.limit = append(b.limit, float64(n)*b.t.Cap[e]*(1-capMargin))
		sorted = sorted[n:]
	}
}

// signatures hashes each engine's last weights over all rows. Equal hashes stand
// for equal weights: were two ever to collide, the certificate would see it.
func (b *builder) signatures() []uint64 {
	hash := make([]uint64, len(b.t.Engines))
	if b.last == nil {
		return hash
	}
	for c := range int32(len(b.t.Clusters)) {
		for _, m := range b.c.models {
			weights := b.last.Weight[b.t.Row(c, m):]
			for j, e := range b.t.Serving(m) {
				// The mixing step of splitmix64.
				x := hash[e] + math.Float64bits(weights[j]) + 0x9e3779b97f4a7c15
				x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
				x = (x ^ x>>27) * 0x94d049bb133111eb
				hash[e] = x ^ x>>31
			}
		}
	}
	return hash
}

// demanded is the model's demand from all clusters.
func (b *builder) demanded(m int32) bool {
	for c := range int32(len(b.t.Clusters)) {
		if b.t.Rate[b.t.RowIndex(c, m)] > 0 {
			return true
		}
	}
	return false
}

// addGroups numbers the groups, those of one model side by side, and links the
// classes to them. It returns where each model's groups begin.
func (b *builder) addGroups() (start []int32) {
	links := make([][]int32, len(b.member))
	for _, m := range b.c.models {
		start = append(start, int32(b.groups))
		if !b.demanded(m) {
			continue
		}
		current := int32(-1) // region of the group under way
		for k, member := range b.member {
			e := member[0]
			if _, ok := slices.BinarySearch(b.t.Serves(e), m); !ok {
				continue
			}
			// Classes are sorted by region, so a region's are side by side.
			if r := b.t.Region[e]; r != current || b.last != nil {
				current = r
				b.region = append(b.region, r)
				b.groups++
			}
			links[k] = append(links[k], int32(b.groups-1))
		}
	}
	b.linkStart = append(b.linkStart, 0)
	for _, l := range links {
		b.linkGroup = append(b.linkGroup, l...)
		b.linkStart = append(b.linkStart, int32(len(b.linkGroup)))
	}
	return append(start, int32(b.groups))
}

// addRows adds the rows with demand and their arcs.
func (b *builder) addRows(start []int32) {
	for i, m := range b.c.models {
		kept := b.keepWeights(m, start[i], start[i+1])
		for c := range int32(len(b.t.Clusters)) {
			if at := b.t.RowIndex(c, m); b.t.Rate[at] > 0 {
				b.addRow(c, m, start[i], start[i+1], kept)
			}
		}
	}
	b.arcStart = append(b.arcStart, int32(len(b.group)))
}

// keepWeights says for each group of a model which engine stands for it and how
// many there are: with churn, a group's engines have one last weight in any row.
func (b *builder) keepWeights(m, from, to int32) (kept []keep) {
	if b.last == nil || from == to {
		return nil
	}
	kept = make([]keep, to-from)
	serving := b.t.Serving(m)
	for k, member := range b.member {
		for _, g := range b.linkGroup[b.linkStart[k]:b.linkStart[k+1]] {
			if g >= from && g < to {
				at, _ := slices.BinarySearch(serving, member[0])
				kept[g-from] = keep{arc: at, count: b.count[k]}
			}
		}
	}
	return kept
}

type keep struct {
	arc   int // of the row: one engine of the group
	count float64
}

func (b *builder) addRow(c, m, from, to int32, kept []keep) {
	at := b.t.RowIndex(c, m)
	b.row = append(b.row, int32(at))
	b.demand = append(b.demand, b.t.Rate[at])
	b.arcStart = append(b.arcStart, int32(len(b.group)))
	b.first = append(b.first, from)
	b.width = append(b.width, to-from)

	moves := kept != nil && b.last.Known[at]
	lambda := 0.0
	if moves {
		lambda = b.p.Lambda
	}
	for g := from; g < to; g++ {
		b.addArc(g, b.t.Distance(c, b.region[g])+lambda, math.Inf(1))
	}
	if moves {
		b.addKeepArcs(c, m, from, kept)
	}
	for k, rate := range b.t.Demand[at] {
		if rate > 0 {
			b.addArc(-1, b.c.base+b.p.Refuse[k], rate)
		}
	}
}

// addKeepArcs lets flow stay where it is: what stays avoids the churn price that
// leaving would have cost, up to what was there.
func (b *builder) addKeepArcs(c, m, from int32, kept []keep) {
	const negligible = 1e-9
	admitted := b.last.Admitted(b.t, b.t.RowIndex(c, m))
	weights := b.last.Weight[b.t.Row(c, m):]
	for i, k := range kept {
		w := weights[k.arc] * k.count
		b.fixed += b.p.Lambda * w * admitted
		if w > negligible && admitted > negligible*b.t.Rate[b.t.RowIndex(c, m)] {
			g := from + int32(i)
			b.addArc(g, b.t.Distance(c, b.region[g])-b.p.Lambda, w*admitted)
		}
	}
}

func (b *builder) addArc(group int32, cost, bound float64) {
	b.group = append(b.group, group)
	b.cost = append(b.cost, cost)
	b.bound = append(b.bound, bound)
}
