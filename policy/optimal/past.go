package optimal

import (
	"slices"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy/internal/table"
)

// past is the last plan in the numbers of a new view, added up as the churn price
// counts it: by cell, and by engine and model.
type past struct {
	t *table.Table

	total    []float64     // by row: sum of the weights on engines that live
	known    []bool        // by row: it gives weight to an engine that lives
	admitted []float64     // by row: requests/s that the last shed fractions let in
	shed     []shedding    // by row
	arcs     [][]fleet.Arc // by row: in the order of Serving; nil where not known
	cell     []float64     // by cell: fraction of the row
	hold     []float64     // by element of Serving: requests/s
	model    []float64     // requests/s of all known rows, by model
	engine   []int32       // last plan's number of an engine -> the view's, -1 when gone
	spare    [][]fleet.Arc // by row: memory for arcs that must be put in order
	same     bool          // the last plan has the view's engines
}

type shedding = [fleet.NumPriorities]float64

// resize gives a slice of n elements, in the same memory where it is large
// enough; what it holds is not defined.
func resize[T any](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }

// read takes in the last plan.
func (p *past) read(t *table.Table, last *fleet.Plan) {
	p.t = t
	rows := len(t.Rate)
	p.known, p.admitted, p.shed, p.arcs = resize(p.known, rows), resize(p.admitted, rows), resize(p.shed, rows), resize(p.arcs, rows)
	p.total = resize(p.total, rows)
	p.spare = resize(p.spare, rows)
	p.cell = resize(p.cell, len(t.Clusters)*t.Groups())
	p.hold = resize(p.hold, t.ServingCount())
	p.model = resize(p.model, len(t.Models))
	clear(p.known)
	clear(p.total)
	clear(p.admitted)
	clear(p.shed)
	clear(p.arcs)
	clear(p.cell)
	clear(p.hold)
	clear(p.model)
	p.matchEngines(last)
	c, m := 0, 0
	for i := range last.Rows {
		row := &last.Rows[i]
		// Both sides are sorted, so the next match lies ahead.
		for c < len(t.Clusters) && t.Clusters[c] < row.Cluster {
			c, m = c+1, 0
		}
		if c == len(t.Clusters) {
			break
		}
		if t.Clusters[c] != row.Cluster {
			continue
		}
		for m < len(t.Models) && t.Models[m] < row.Model {
			m++
		}
		if m < len(t.Models) && t.Models[m] == row.Model {
			p.add(int32(c), int32(m), row)
		}
	}
}

func (p *past) matchEngines(last *fleet.Plan) {
	p.engine = resize(p.engine, len(last.Engines))
	p.same = len(last.Engines) == len(p.t.Engines)
	next := 0
	for i := range last.Engines {
		name := last.Engines[i].Name
		for next < len(p.t.Engines) && p.t.Engines[next].Name < name {
			next++
		}
		p.engine[i] = -1
		if next < len(p.t.Engines) && p.t.Engines[next].Name == name {
			p.engine[i] = int32(next)
		}
		p.same = p.same && p.engine[i] == int32(i)
	}
}

// add takes in one row.
func (p *past) add(c, m int32, row *fleet.Row) {
	at := p.t.RowIndex(c, m)
	p.shed[at] = row.Shed
	p.admitted[at] = p.t.Admit(at, &row.Shed)
	arcs := p.align(at, m, row)
	from := p.t.ServingStart(m)
	group := p.t.GroupOf[from:][:len(arcs)]
	hold := p.hold[from:][:len(arcs)]
	cells := p.cell[p.t.Cell(c):]
	flow, sum := p.admitted[at], 0.0
	for j := range arcs {
		if w := arcs[j].Weight; w > 0 {
			cells[group[j]] += w
			hold[j] += w * flow
			sum += w
		}
	}
	if sum > 0 {
		p.known[at] = true
		p.total[at] = sum
		p.arcs[at] = arcs
		p.model[m] += sum * flow
	}
}

// align gives the row's arcs in the order of Serving.
func (p *past) align(at int, m int32, row *fleet.Row) []fleet.Arc {
	serving := p.t.Serving(m)
	if p.same && len(row.Arcs) == len(serving) {
		same := true
		for j := range serving {
			same = same && row.Arcs[j].Engine == serving[j]
		}
		if same {
			return row.Arcs
		}
	}
	arcs := resize(p.spare[at], len(serving))
	p.spare[at] = arcs
	for j, e := range serving {
		arcs[j] = fleet.Arc{Engine: e}
	}
	next := 0
	for _, a := range row.Arcs {
		e := p.engine[a.Engine]
		if e < 0 {
			continue
		}
		for next < len(serving) && serving[next] < e {
			next++
		}
		if next < len(serving) && serving[next] == e {
			arcs[next].Weight = a.Weight
		}
	}
	return arcs
}
