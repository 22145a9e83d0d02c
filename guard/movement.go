package guard

import (
	"cmp"
	"fmt"
	"math"

	"github.com/wardrop-lb/wardrop/fleet"
)

const (
	// pushed is how much may move for each request that must: where it goes it may push out
	// as much again.
	pushed = 2
	// noticed is the least that counts as movement, in requests/s: less is nobody's trouble.
	noticed = 1
	// whole is how far from 1 the weights of a row may be.
	whole = 1e-6
)

// movement is what differs between two plans, the last and the next, at the next one's
// demand. Its memory is kept from one to the next.
type movement struct {
	all    float64 // requests/s that arrive
	taken  float64 // requests/s taken from engines that live, of traffic that was there
	gained float64 // requests/s that engines get more, whatever for
	excess float64 // requests/s beyond the capacities if weights and refusals stayed

	most  float64 // requests/s taken from the row of which most is
	where *fleet.Row

	told    bool       // last says what arrived; what was cut into snapshots does not
	missing []int      // rows of last that have no engine in next
	empty   []emptyRow // rows of next that have nothing and could

	engines []engineMove // by next's engines
	number  []int32      // last's engine -> next's, -1 when gone
	old     []float64    // by arc of a row: the last weight
}

// engineMove is what a plan does to one engine.
type engineMove struct {
	gained   float64 // requests/s more than before
	requests float64 // requests/s
	kept     float64 // requests/s if nothing moved but what dead engines had
	load     float64 // the same by work
}

type emptyRow struct{ cluster, model, how string }

// compare takes in two plans; rows, engines and arcs are sorted in both.
func (m *movement) compare(last, next *fleet.Plan) {
	*m = movement{told: last.Policy != "", missing: m.missing[:0], empty: m.empty[:0], engines: sized(m.engines, len(next.Engines)), number: sized(m.number, len(last.Engines)), old: m.old}
	j := 0
	for i := range last.Engines {
		for j < len(next.Engines) && next.Engines[j].Name < last.Engines[i].Name {
			j++
		}
		m.number[i] = -1
		if j < len(next.Engines) && next.Engines[j].Name == last.Engines[i].Name {
			m.number[i] = int32(j)
		}
	}
	i := 0
	for k := range next.Rows {
		n := &next.Rows[k]
		m.all += n.Rate
		for i < len(last.Rows) && order(&last.Rows[i], n) < 0 {
			m.missing = append(m.missing, i)
			i++
		}
		if i < len(last.Rows) && order(&last.Rows[i], n) == 0 {
			if len(n.Arcs) == 0 {
				m.missing = append(m.missing, i)
			} else {
				m.row(&last.Rows[i], n, next.Engines)
			}
			i++
		}
	}
	for ; i < len(last.Rows); i++ {
		m.missing = append(m.missing, i)
	}
	for e := range m.engines {
		x := &m.engines[e]
		m.gained += x.gained
		if most := next.Engines[e].Capacity; x.load > most {
			m.excess += x.kept * (1 - most/x.load)
		}
	}
}

func order(a, b *fleet.Row) int {
	return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Model, b.Model))
}

// row compares a row of both plans. What arrives more than before has nowhere that it was,
// and counts for nothing that moves.
func (m *movement) row(last, next *fleet.Row, engines []fleet.EngineLoad) {
	live, sum := m.lastWeights(last, next)
	if live == 0 {
		return // all of its engines are gone: it must go elsewhere
	}
	before, after, there := 0.0, next.Admitted(), 1.0
	for k, d := range next.Demand {
		before += d * (1 - last.Shed[k])
	}
	if m.told && last.Rate < next.Rate {
		there = last.Rate / next.Rate
	}
	work, taken, room := fleet.Model{Work: next.Work}.Load(), 0.0, false
	for j, a := range next.Arcs {
		x, was := &m.engines[a.Engine], before*m.old[j]
		is := after * a.Weight
		if is > was {
			x.gained += is - was
		} else {
			taken += there * (was - is)
		}
		x.requests += is
		x.kept += was / live
		x.load += work * was / live
		room = room || engines[a.Engine].Load < (1-spareRoom)*engines[a.Engine].Capacity
	}
	m.taken += taken
	if taken > m.most {
		m.most, m.where = taken, next
	}
	switch {
	case math.Abs(sum-1) > whole:
		m.empty = append(m.empty, emptyRow{next.Cluster, next.Model, "without weights"})
	case next.Rate > 0 && after <= whole*next.Rate && before > whole*next.Rate && room:
		m.empty = append(m.empty, emptyRow{next.Cluster, next.Model, "with all of its requests refused"})
	}
}

// lastWeights finds the last weights of next's arcs, and adds up those that live, and all
// that are new.
func (m *movement) lastWeights(last, next *fleet.Row) (live, sum float64) {
	m.old = sized(m.old, len(next.Arcs))
	i := 0
	for j, a := range next.Arcs {
		sum += a.Weight
		for i < len(last.Arcs) && m.number[last.Arcs[i].Engine] < a.Engine {
			i++
		}
		if i < len(last.Arcs) && m.number[last.Arcs[i].Engine] == a.Engine {
			m.old[j] = last.Arcs[i].Weight
			live += m.old[j]
		}
	}
	return live, sum
}

// hold holds a plan that takes more from engines that live than the limit allows, beyond
// what must move because it would not fit any more.
//
// What is published instead may refuse what the plan would serve: then nothing is held.
func (m *movement) hold(view *fleet.View, last, next *fleet.Plan, limit float64) (*Hold, *fleet.Plan) {
	part := m.part(max(0, m.taken-pushed*m.excess))
	if part <= limit+whole || m.taken < noticed {
		return nil, nil
	}
	base := held(view, last)
	if refused(base) > refused(next)+whole*m.all {
		return nil, nil
	}
	return &Hold{
		Rail: Movement, Figure: part, Limit: limit,
		Reason: fmt.Sprintf("would move %s of all traffic at once that could stay where it is, more than %s; %s of it of model %s in cluster %s",
			percent(part), percent(limit), percent(m.most/m.taken), m.where.Model, m.where.Cluster),
	}, base
}

// part is a rate as a part of all traffic.
func (m *movement) part(rate float64) float64 {
	if m.all == 0 {
		return 0
	}
	return rate / m.all
}

// refused is what a plan sheds, in requests/s.
func refused(p *fleet.Plan) float64 {
	sum := 0.0
	for i := range p.Rows {
		sum += p.Rows[i].Rate - p.Rows[i].Admitted()
	}
	return sum
}

// sized gives a slice of n zeros, in the same memory where it is large enough.
func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}
