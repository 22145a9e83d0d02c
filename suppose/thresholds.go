package suppose

import (
	"fmt"
	"math"
	"slices"

	"github.com/wardrop-lb/wardrop/fleet"
)

// Threshold is what would have to be different for an engine to get traffic of a row, all
// else being as it is.
type Threshold struct {
	What string `json:"what"` // "distance", "demand" or "capacity"
	// Now is what it is, Needed what it would have to be: seconds of a round trip, requests/s
	// of the row, the part of their capacity that the engines it uses keep. Needed is absent
	// where nothing would do.
	Now    float64  `json:"now"`
	Needed *float64 `json:"needed,omitempty"`
	Words  string   `json:"words"`
}

// Thresholds finds, by solving again and again, at which distance of the engine, at which demand
// of the row, and at which loss of capacity of the engines that the row uses, an engine without
// weight would get some. Nil for one that has weight.
func Thresholds(view *fleet.View, plan *fleet.Plan, cluster, model, engine string, solve Solver) ([]Threshold, error) {
	row := plan.Row(cluster, model)
	if row == nil {
		return nil, fmt.Errorf("the plan has no row for cluster %q and model %q", cluster, model)
	}
	at := slices.IndexFunc(row.Arcs, func(a fleet.Arc) bool { return plan.Engines[a.Engine].Name == engine })
	e := slices.IndexFunc(view.Engines, func(e fleet.Engine) bool { return e.Name == engine })
	if at < 0 || e < 0 {
		return nil, fmt.Errorf("engine %q does not serve %q in this plan", engine, model)
	}
	if row.Arcs[at].Weight > 0 {
		return nil, nil
	}
	q := &question{view: view, plan: plan, row: row, engine: &view.Engines[e], solve: solve}
	return []Threshold{q.distance(row.Arcs[at].Network), q.demand(), q.capacity()}, q.err
}

type question struct {
	view   *fleet.View
	plan   *fleet.Plan
	row    *fleet.Row
	engine *fleet.Engine
	solve  Solver
	err    error // the first
}

// gets tells whether the engine has weight in the plan of a view.
func (q *question) gets(v *fleet.View) bool {
	if q.err != nil {
		return false
	}
	next, err := q.solve(v, q.plan)
	if err != nil {
		q.err = err
		return false
	}
	row := next.Row(q.row.Cluster, q.row.Model)
	return row != nil && slices.ContainsFunc(row.Arcs, func(a fleet.Arc) bool { return a.Weight > 0 && next.Engines[a.Engine].Name == q.engine.Name })
}

// rounds is how often an interval is halved: to a thousandth of itself.
const rounds = 10

// bisect narrows [no, yes] down, where yes gets traffic and no does not, and gives the end that
// does; false when not even yes does.
func (q *question) bisect(no, yes float64, with func(float64) *fleet.View) (float64, bool) {
	if !q.gets(with(yes)) {
		return 0, false
	}
	for range rounds {
		if middle := (no + yes) / 2; q.gets(with(middle)) {
			yes = middle
		} else {
			no = middle
		}
	}
	return yes, q.err == nil
}

func (q *question) distance(now float64) Threshold {
	t := Threshold{What: "distance", Now: now}
	needed, ok := q.bisect(now, 0, func(seconds float64) *fleet.View {
		v := *q.view
		v.Distances = slices.DeleteFunc(slices.Clone(v.Distances), func(d fleet.Distance) bool {
			return d.Cluster == q.row.Cluster && d.Engine == q.engine.Name
		})
		v.Distances = append(v.Distances, fleet.Distance{
			Cluster: q.row.Cluster, Region: q.engine.Region, Engine: q.engine.Name, Seconds: max(0, seconds-q.engine.Offset),
		})
		return &v
	})
	if !ok {
		t.Words = fmt.Sprintf("However near it were, %s would get nothing.", q.engine.Name)
		return t
	}
	t.Needed = &needed
	t.Words = fmt.Sprintf("It would get some at a distance of %s or less; it is %s away.", duration(needed), duration(now))
	return t
}

// mostDemand is how many times the demand is looked for.
const mostDemand = 64

func (q *question) demand() Threshold {
	t := Threshold{What: "demand", Now: q.row.Rate}
	factor, ok := 0.0, false
	no := 1.0
	for f := 2.0; f <= mostDemand && q.row.Rate > 0; f *= 2 {
		if factor, ok = q.bisect(no, f, q.withDemand); ok {
			break
		}
		no = f
	}
	if !ok {
		t.Words = fmt.Sprintf("With %d times the demand it would still get nothing.", mostDemand)
		return t
	}
	needed := factor * q.row.Rate
	t.Needed = &needed
	t.Words = fmt.Sprintf("It would get some at a demand of %.4g requests/s or more, %.3g times that of now.", needed, factor)
	return t
}

func (q *question) withDemand(factor float64) *fleet.View {
	v := *q.view
	v.Demands = slices.Clone(v.Demands)
	for i := range v.Demands {
		if d := &v.Demands[i]; d.Cluster == q.row.Cluster && d.Model == q.row.Model {
			d.Rate *= factor
		}
	}
	return &v
}

// leastPart is the least part of its capacity that an engine is supposed to keep.
const leastPart = 0.01

func (q *question) capacity() Threshold {
	t := Threshold{What: "capacity", Now: 1}
	used := map[string]bool{}
	for _, a := range q.row.Arcs {
		if a.Weight > 0 {
			used[q.plan.Engines[a.Engine].Name] = true
		}
	}
	needed, ok := q.bisect(1, leastPart, func(part float64) *fleet.View {
		v := *q.view
		v.Engines = slices.Clone(v.Engines)
		for i := range v.Engines {
			if e := &v.Engines[i]; used[e.Name] {
				// As many, slower: what fits and what is computed in a second shrink alike.
				e.Profile.UMax, e.Profile.Batch = e.Profile.UMax*part, math.Max(1, e.Profile.Batch*part)
			}
		}
		return &v
	})
	if !ok {
		t.Words = "Whatever the engines in use lose of their capacity, it would get nothing."
		return t
	}
	t.Needed = &needed
	t.Words = fmt.Sprintf("It would get some if the engines in use had %.0f %% of their capacity or less.", 100*needed)
	return t
}

// duration writes seconds as people read them.
func duration(s float64) string {
	if s < 1 {
		return fmt.Sprintf("%.3g ms", 1e3*s)
	}
	return fmt.Sprintf("%.3g s", s)
}
