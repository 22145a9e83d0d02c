package optimal

import (
	"math"
	"slices"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy/internal/table"
)

// columns are the arcs that a lean network has. Where engines have distances of
// their own, each is a group by itself, and nearly all arcs carry nothing. So the
// component is solved on some of them; then all are priced, those that would save
// something come in, and it is solved again, until none would: column generation,
// in traffic assignment known as disaggregate simplicial decomposition (Larsson,
// Patriksson 1992). The answer is that of the whole.
//
// The first arcs are chosen by the prices of a coarse fleet, see coarse.
type columns struct {
	start  []int32 // by row of the table: where its groups begin in member
	member []bool  // by row and group of the row's model
	chosen int     // how many were chosen at the start
	count  int     // how many there are
	cost   []float64
	work   []float64
	best   []nearest // by group of the table
}

// nearest are the rows to which a group is cheapest, beside what else they have.
type nearest struct {
	extra [2]float64 // seconds
	row   [2]int32
}

const (
	leastColumns = 32  // of a row, where its model has as many groups
	columnRoom   = 8.0 // capacity of a row's columns over what it needs, all being alike
	columnPart   = 0.3 // of the most that a column of the row saves, from where on others come in with it
	columnRounds = 20
	// leanGroups and leanRatio say from how many groups, and how many times as many
	// as rows, a component is solved on some of its arcs.
	leanGroups, leanRatio = 64, 2
)

// isLean says whether a component has so many groups.
func isLean(t *table.Table, c *component) bool {
	groups := 0
	for _, m := range c.models {
		groups += int(t.GroupStart[m+1] - t.GroupStart[m])
	}
	return groups >= leanGroups && groups >= leanRatio*len(c.models)*len(t.Clusters)
}

// of is the row's part of member.
func (k *columns) of(t *table.Table, at int, m int32) []bool {
	return k.member[k.start[at]:][:t.GroupStart[m+1]-t.GroupStart[m]]
}

// choose starts with the arcs that are cheap at the prices of arriving at the groups,
// enough for each row and a few for each group, and those that carried something.
func (k *columns) choose(t *tick, c *component, arrive []float64) {
	tab := t.t
	k.start, k.best = resize(k.start, len(tab.Rate)), resize(k.best, tab.Groups())
	size := int32(0)
	for _, m := range c.models {
		for cluster := range int32(len(tab.Clusters)) {
			k.start[tab.RowIndex(cluster, m)] = size
			size += tab.GroupStart[m+1] - tab.GroupStart[m]
		}
	}
	k.member = resize(k.member, int(size))
	clear(k.member)
	for _, m := range c.models {
		k.chooseModel(t, m, arrive)
	}
	k.addLast(t, c)
	k.chosen, k.count = 0, 0
	for _, in := range k.member {
		if in {
			k.chosen++
		}
	}
	k.count = k.chosen
}

// stale says whether it is time to choose anew: there are no columns yet, or too many
// have come in since, or demand has left some row or group without.
func (k *columns) stale(t *tick, c *component) bool {
	if k.chosen == 0 || k.count > 2*k.chosen {
		return true
	}
	for _, m := range c.models {
		if !k.covers(t, m) {
			return true
		}
	}
	return false
}

func (k *columns) covers(t *tick, m int32) bool {
	tab := t.t
	from := tab.GroupStart[m]
	covered := t.groupMean[from:tab.GroupStart[m+1]]
	clear(covered)
	asked := false
	for c := range int32(len(tab.Clusters)) {
		at := tab.RowIndex(c, m)
		if tab.Rate[at] == 0 {
			continue
		}
		asked = true
		any := false
		for j, in := range k.of(tab, at, m) {
			if in {
				covered[j] = 1
				any = true
			}
		}
		if !any {
			return false
		}
	}
	return !asked || !slices.Contains(covered, 0)
}

// addLast takes in the arcs that carried something, for what stays is beside them.
func (k *columns) addLast(t *tick, c *component) {
	if t.past == nil {
		return
	}
	tab := t.t
	for _, m := range c.models {
		from, to := tab.GroupStart[m], tab.GroupStart[m+1]
		for cluster := range int32(len(tab.Clusters)) {
			at := tab.RowIndex(cluster, m)
			if !t.past.known[at] || tab.Rate[at] == 0 {
				continue
			}
			in := k.of(tab, at, m)
			for j, w := range t.past.cell[tab.Cell(cluster):][from:to] {
				if w > 0 && !in[j] {
					in[j] = true
					k.count++
				}
			}
		}
	}
}

func (k *columns) chooseModel(t *tick, m int32, arrive []float64) {
	tab := t.t
	from, to := tab.GroupStart[m], tab.GroupStart[m+1]
	for g := from; g < to; g++ {
		k.best[g] = nearest{extra: [2]float64{math.Inf(1), math.Inf(1)}}
	}
	room := 0.0
	for _, e := range tab.Serving(m) {
		room += tab.Cap[e] / tab.Work[m]
	}
	for c := range int32(len(tab.Clusters)) {
		at := tab.RowIndex(c, m)
		if tab.Rate[at] > 0 {
			k.price(tab, c, m, arrive)
			k.addCheap(tab, at, m, room)
		}
	}
	for g := from; g < to; g++ {
		for i, row := range k.best[g].row {
			if !math.IsInf(k.best[g].extra[i], 1) {
				k.of(tab, int(row), m)[g-from] = true
			}
		}
	}
}

// price sets cost to what the row's arcs cost, and keeps for every group the rows to
// which it is cheapest.
func (k *columns) price(tab *table.Table, c, m int32, arrive []float64) {
	from, to := tab.GroupStart[m], tab.GroupStart[m+1]
	k.cost = resize(k.cost, int(to-from))
	least := math.Inf(1)
	for j := range k.cost {
		g := from + int32(j)
		k.cost[j] = tab.Distance(c, tab.GroupPlace[g]) + arrive[g]
		least = min(least, k.cost[j])
	}
	row := int32(tab.RowIndex(c, m))
	for j, x := range k.cost {
		b := &k.best[from+int32(j)]
		switch extra := x - least; {
		case extra < b.extra[0]:
			b.extra[1], b.row[1] = b.extra[0], b.row[0]
			b.extra[0], b.row[0] = extra, row
		case extra < b.extra[1]:
			b.extra[1], b.row[1] = extra, row
		}
	}
}

// addCheap takes in the row's cheapest arcs.
func (k *columns) addCheap(tab *table.Table, at int, m int32, room float64) {
	n := len(k.cost)
	want := max(leastColumns, int(columnRoom*float64(n)*tab.Rate[at]/room))
	limit := math.Inf(1)
	if want < n {
		k.work = append(k.work[:0], k.cost...)
		limit = smallest(k.work, want)
	}
	in := k.of(tab, at, m)
	for j, x := range k.cost {
		in[j] = x <= limit
	}
}

// smallest is the n-th smallest of x, which it puts in another order: Hoare's
// selection (1961).
func smallest(x []float64, n int) float64 {
	low, high := 0, len(x)-1
	for low < high {
		pivot := x[(low+high)/2]
		i, j := low, high
		for i <= j {
			for x[i] < pivot {
				i++
			}
			for x[j] > pivot {
				j--
			}
			if i <= j {
				x[i], x[j] = x[j], x[i]
				i, j = i+1, j-1
			}
		}
		switch {
		case n-1 <= j:
			high = j
		case n-1 >= i:
			low = i
		default:
			return x[n-1]
		}
	}
	return x[low]
}

// extend takes in the arcs that would save something at the prices of a solution,
// and gives what they could save at most, in seconds per second.
func (k *columns) extend(t *tick, s *interior) float64 {
	tab, models := t.t, int32(len(t.t.Models))
	saving := 0.0
	for i, at := range s.row {
		c, m := at/models, at%models
		fare := 0.0
		if t.past != nil && t.past.known[at] {
			fare = t.p.RowChurn()
		}
		in := k.of(tab, int(at), m)
		work, most := tab.Work[m], 0.0
		gain := func(j int) float64 {
			g := s.first[i] + int32(j)
			return (s.rowPrice[i]-s.groupPrice[g])*work - fare - tab.Distance(c, s.place[g])
		}
		for j := range in {
			if !in[j] {
				most = max(most, gain(j))
			}
		}
		saving += s.demand[i] / work * most
		for j := range in {
			if most > 0 && !in[j] && gain(j) > columnPart*most {
				in[j] = true
				k.count++
			}
		}
	}
	return saving
}

// coarse is the same fleet with the regions' mean distances in place of the
// engines' own.
type coarse struct {
	view  fleet.View
	table *table.Table
}

// see takes in the view that t is of.
func (k *coarse) see(t *table.Table) {
	distances := k.view.Distances
	k.view = *t.View
	k.view.Distances = distances
	if k.table == nil {
		k.view.Distances = meanDistances(t)
	}
	if k.table == nil || !k.table.Update(&k.view) {
		k.table = table.New(&k.view)
	}
}

func meanDistances(t *table.Table) []fleet.Distance {
	var all []fleet.Distance
	count := map[string]float64{}
	for _, e := range t.Engines {
		count[e.Region]++
	}
	for c, cluster := range t.Clusters {
		sum := map[string]float64{}
		for e, engine := range t.Engines {
			sum[engine.Region] += t.Distance(int32(c), t.Place[e])
		}
		for _, e := range t.Engines {
			if x, ok := sum[e.Region]; ok {
				all = append(all, fleet.Distance{Cluster: cluster, Region: e.Region, Seconds: x / count[e.Region]})
				delete(sum, e.Region)
			}
		}
	}
	return all
}

// arrivals sets, by group of the table, what it costs to arrive there at the prices
// of a solution of the coarse fleet.
func arrivals(t *tick, c *component, s *interior, arrive []float64) {
	tab := t.t
	for _, m := range c.models {
		for g := tab.GroupStart[m]; g < tab.GroupStart[m+1]; g++ {
			arrive[g] = math.Inf(1)
		}
	}
	for k := range s.count {
		price := s.slope[k] + s.dual[s.caps+k]
		for _, e := range s.members[s.memberStart[k]:s.memberStart[k+1]] {
			models := tab.Serves(e)
			for j, p := range tab.ServesAt(e) {
				g := tab.GroupOf[p]
				cost := tab.Work[models[j]]*price + tab.Own[p] + tab.Engines[e].Offset + tab.Engines[e].Penalty
				arrive[g] = min(arrive[g], cost)
			}
		}
	}
}
