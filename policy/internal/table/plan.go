package table

import (
	"slices"

	"github.com/wardrop-lb/wardrop/fleet"
)

// Last is the last plan in the numbers of a new view.
type Last struct {
	Weight []float64                      // by arc: the last weight, 0 for an engine that is new
	Known  []bool                         // by row: the last plan gives weight to an engine that lives
	Shed   [][fleet.NumPriorities]float64 // by row: the last shed fractions
}

// Last finds the last plan's weights; it returns nil when last is nil.
func (t *Table) Last(last *fleet.Plan) *Last {
	if last == nil {
		return nil
	}
	l := &Last{
		Weight: make([]float64, t.ArcCount()),
		Known:  make([]bool, len(t.Rate)),
		Shed:   make([][fleet.NumPriorities]float64, len(t.Rate)),
	}
	engine := make([]int32, len(last.Engines)) // last plan's number -> ours, -1 when gone
	for i := range last.Engines {
		engine[i] = -1
		at, ok := t.number(last.Engines[i].Name)
		if ok {
			engine[i] = at
		}
	}
	for i := range last.Rows {
		row := &last.Rows[i]
		c, ok := slices.BinarySearch(t.Clusters, row.Cluster)
		m, ok2 := slices.BinarySearch(t.Models, row.Model)
		if ok && ok2 {
			l.add(t, int32(c), int32(m), row, engine)
		}
	}
	return l
}

func (l *Last) add(t *Table, c, m int32, row *fleet.Row, engine []int32) {
	at := t.RowIndex(c, m)
	l.Shed[at] = row.Shed
	weights := l.Weight[t.Row(c, m):]
	serving := t.Serving(m)
	next := 0
	for _, a := range row.Arcs {
		e := engine[a.Engine]
		if a.Weight <= 0 || e < 0 {
			continue
		}
		// Both sides are sorted by name, so the next match lies ahead.
		for next < len(serving) && serving[next] < e {
			next++
		}
		if next < len(serving) && serving[next] == e {
			weights[next] = a.Weight
			l.Known[at] = true
		}
	}
}

// Admitted is the demand in requests/s of a row that the last plan's shed
// fractions would admit.
func (l *Last) Admitted(t *Table, row int) float64 {
	d := 0.0
	for k, rate := range t.Demand[row] {
		d += rate * (1 - l.Shed[row][k])
	}
	return d
}

// Plan makes the frame of a plan: all rows and arcs with their network terms,
// no weight, no load. A model that no engine serves has a row where it is asked
// for, without arcs and all of its demand shed. index maps a row's number
// (RowIndex) to its place in Rows, -1 where there is none.
func (t *Table) Plan(name string) (plan *fleet.Plan, index []int32) {
	plan = &fleet.Plan{Policy: name, Time: t.View.Time}
	plan.Engines = make([]fleet.EngineLoad, len(t.Engines))
	for i, e := range t.Engines {
		plan.Engines[i] = fleet.EngineLoad{Name: e.Name, Capacity: t.Cap[i], Penalty: e.Penalty, Own: slices.Clone(t.Owns[i])}
	}
	arcs := make([]fleet.Arc, t.ArcCount())
	index = make([]int32, len(t.Rate))
	plan.Rows = make([]fleet.Row, 0, len(t.Rate))
	for c := range int32(len(t.Clusters)) {
		for m := range int32(len(t.Models)) {
			at, serving := t.RowIndex(c, m), t.Serving(m)
			index[at] = -1
			if len(serving) == 0 && t.Rate[at] == 0 {
				continue
			}
			index[at] = int32(len(plan.Rows))
			n := len(serving)
			row := fleet.Row{Cluster: t.Clusters[c], Model: t.Models[m], Rate: t.Rate[at], Demand: t.Demand[at], Arcs: arcs[:n:n]}
			t.Ask(&row, m)
			arcs = arcs[n:]
			for j, e := range serving {
				row.Arcs[j] = fleet.Arc{Engine: e, Network: t.Network(c, e)}
			}
			if n == 0 {
				t.shedAll(&row, at)
			}
			plan.Rows = append(plan.Rows, row)
		}
	}
	return plan, index
}

// Ask sets what a row's requests ask of an engine.
func (t *Table) Ask(row *fleet.Row, m int32) {
	row.Work = t.Work[m]
	row.TokenSeconds, row.SlotSeconds = t.Work[m]*t.Holds[Tokens][m], t.Work[m]*t.Holds[Slots][m]
}

func (t *Table) shedAll(row *fleet.Row, at int) {
	for k, rate := range t.Demand[at] {
		if rate > 0 {
			row.Shed[k] = 1
		}
	}
}

// Admit is the flow in requests/s that a plan's row lets in.
func (t *Table) Admit(row int, shed *[fleet.NumPriorities]float64) float64 {
	d := 0.0
	for k, rate := range t.Demand[row] {
		d += rate * (1 - shed[k])
	}
	return d
}

// SetLoads computes the engines' loads, in work/s, from the weights.
func (t *Table) SetLoads(plan *fleet.Plan, index []int32) {
	for i := range plan.Engines {
		plan.Engines[i].Load = 0
	}
	for at, i := range index {
		if i < 0 {
			continue
		}
		row := &plan.Rows[i]
		if d := t.Admit(at, &row.Shed) * row.Work; d > 0 {
			for _, a := range row.Arcs {
				plan.Engines[a.Engine].Load += d * a.Weight
			}
		}
	}
}

// SetTerms records latency and congestion at the loads, without cap prices, and
// the objective without churn and refusals.
func (t *Table) SetTerms(plan *fleet.Plan, index []int32) {
	plan.Objective = 0
	for i := range plan.Engines {
		e := &plan.Engines[i]
		e.Latency = t.Curve[i].Latency(e.Load)
		e.Congestion = t.Curve[i].Congestion(e.Load)
		e.Seconds = t.Seconds(int32(i), e.Load, e.Latency)
		plan.Objective += e.Load * e.Latency
	}
	for at, i := range index {
		if i < 0 {
			continue
		}
		row := &plan.Rows[i]
		d, start := t.Admit(at, &row.Shed), t.ServingStart(int32(at%len(t.Models)))
		for j, a := range row.Arcs {
			plan.Objective += d * a.Weight * (a.Network + plan.Engines[a.Engine].Penalty + t.Own[start+j])
		}
	}
}

// ShedLowest spreads a row's refusals, amount requests/s in all, over its
// priorities, least important first, as fractions.
func ShedLowest(demand *[fleet.NumPriorities]float64, amount float64) (shed [fleet.NumPriorities]float64) {
	for k := fleet.NumPriorities - 1; k >= 0 && amount > 0; k-- {
		if demand[k] > 0 {
			shed[k] = min(1, amount/demand[k])
			amount -= demand[k]
		}
	}
	return shed
}
