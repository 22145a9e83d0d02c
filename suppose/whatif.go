package suppose

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/wardrop-lb/wardrop/fleet"
)

// Solver makes the plan of a view after a last plan, by one policy; it keeps neither.
type Solver func(view *fleet.View, last *fleet.Plan) (*fleet.Plan, error)

// Changes is what is supposed to be different, all of it at once.
type Changes struct {
	Drain    []string         `json:"drain,omitempty"` // engines that get nothing
	Lose     []string         `json:"lose,omitempty"`  // regions whose engines are gone; their clusters stay
	Demand   []DemandChange   `json:"demand,omitempty"`
	Add      []AddChange      `json:"add,omitempty"`
	Distance []DistanceChange `json:"distance,omitempty"`
}

// DemandChange multiplies the demand of a cluster for a model; an empty name means all.
type DemandChange struct {
	Cluster string  `json:"cluster,omitempty"`
	Model   string  `json:"model,omitempty"`
	Factor  float64 `json:"factor"` // 0 or more
}

// AddChange adds engines to a region, like those that serve the model there, or else like
// the first that serves it anywhere.
type AddChange struct {
	Region  string `json:"region"`
	Model   string `json:"model"`
	Engines int    `json:"engines"` // 1 to MaxAdded
}

// MaxAdded bounds the engines that one change may add.
const MaxAdded = 10_000

// DistanceChange sets the round trip from a cluster to a region.
type DistanceChange struct {
	Cluster string  `json:"cluster"`
	Region  string  `json:"region"`
	Seconds float64 `json:"seconds"` // 0 or more
}

// Empty tells whether nothing is supposed to be different.
func (c *Changes) Empty() bool {
	return len(c.Drain)+len(c.Lose)+len(c.Demand)+len(c.Add)+len(c.Distance) == 0
}

// Totals is a plan in a few figures.
type Totals struct {
	Admitted float64            `json:"admitted"` // requests/s
	Shed     map[string]float64 `json:"shed"`     // requests/s, by priority
	// Seconds is what an admitted request is expected to take, network included, in the mean.
	Seconds float64 `json:"mean_seconds"`
	Network float64 `json:"mean_network"` // seconds of these
	// Fullest is the engine that is nearest to its capacity, Full how many are at it.
	Fullest     string  `json:"fullest,omitempty"`
	Utilisation float64 `json:"utilisation"` // of the fullest, load over capacity
	Full        int     `json:"full"`
}

// Move is a weight that would change.
type Move struct {
	Cluster string  `json:"cluster"`
	Model   string  `json:"model"`
	Engine  string  `json:"engine"`
	Before  float64 `json:"before"` // weight
	After   float64 `json:"after"`
	Rate    float64 `json:"rate"` // requests/s that it gains, or loses if below 0
}

// Outcome is what would follow.
type Outcome struct {
	Before Totals `json:"before"` // the plan in force
	After  Totals `json:"after"`
	// Moved is the part of the traffic of the plan in force that would go elsewhere, 0 to 1.
	Moved float64 `json:"moved"`
	// Moves are the weights that change, the largest by rate first.
	Moves []Move `json:"moves"`
	// Words says what follows, the most important first.
	Words []string    `json:"words"`
	Plan  *fleet.Plan `json:"-"` // that would follow
}

// WhatIf gives the plan that would follow from the one in force. The error says which of the
// changes is about something that is not there.
func WhatIf(view *fleet.View, plan *fleet.Plan, c Changes, solve Solver) (*Outcome, error) {
	changed, err := c.apply(view)
	if err != nil {
		return nil, err
	}
	next, err := solve(changed, plan)
	if err != nil {
		return nil, fmt.Errorf("no plan would follow: %w", err)
	}
	o := &Outcome{Before: TotalsOf(plan), After: TotalsOf(next), Plan: next, Moves: moves(plan, next)}
	o.Moved = moved(plan, next)
	o.words()
	return o, nil
}

// apply gives a changed copy of a view.
func (c *Changes) apply(view *fleet.View) (*fleet.View, error) {
	v := *view
	v.Engines, v.Demands, v.Distances = slices.Clone(v.Engines), slices.Clone(v.Demands), slices.Clone(v.Distances)
	var errs []error
	for _, name := range c.Drain {
		errs = append(errs, remove(&v, fmt.Sprintf("there is no engine %q to drain, or it is out already", name), func(e *fleet.Engine) bool { return e.Name == name }))
	}
	for _, region := range c.Lose {
		errs = append(errs, remove(&v, fmt.Sprintf("no engine is in region %q", region), func(e *fleet.Engine) bool { return e.Region == region }))
	}
	for _, d := range c.Demand {
		errs = append(errs, d.apply(&v))
	}
	for i, a := range c.Add {
		errs = append(errs, a.apply(&v, i))
	}
	for _, d := range c.Distance {
		errs = append(errs, d.apply(&v))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &v, v.Validate()
}

func remove(v *fleet.View, missing string, gone func(*fleet.Engine) bool) error {
	n := len(v.Engines)
	names := map[string]bool{}
	v.Engines = slices.DeleteFunc(v.Engines, func(e fleet.Engine) bool {
		if gone(&e) {
			names[e.Name] = true
			return true
		}
		return false
	})
	if len(v.Engines) == n {
		return errors.New(missing)
	}
	v.Distances = slices.DeleteFunc(v.Distances, func(d fleet.Distance) bool { return names[d.Engine] })
	return nil
}

func (d DemandChange) apply(v *fleet.View) error {
	if !(d.Factor >= 0 && d.Factor <= 1e6) {
		return fmt.Errorf("demand cannot be multiplied by %v", d.Factor)
	}
	found := false
	for i := range v.Demands {
		x := &v.Demands[i]
		if (d.Cluster == "" || d.Cluster == x.Cluster) && (d.Model == "" || d.Model == x.Model) {
			x.Rate *= d.Factor
			found = true
		}
	}
	if !found {
		return fmt.Errorf("there is no demand of cluster %q for model %q", d.Cluster, d.Model)
	}
	return nil
}

func (a AddChange) apply(v *fleet.View, number int) error {
	if a.Engines < 1 || a.Engines > MaxAdded {
		return fmt.Errorf("%d engines cannot be added: 1 to %d", a.Engines, MaxAdded)
	}
	like := -1
	inRegion := false
	for i := range v.Engines {
		e := &v.Engines[i]
		inRegion = inRegion || e.Region == a.Region
		if slices.Contains(e.Models, a.Model) && (like < 0 || e.Region == a.Region && v.Engines[like].Region != a.Region) {
			like = i
		}
	}
	switch {
	case like < 0:
		return fmt.Errorf("no engine serves model %q: there is none to be like", a.Model)
	case !inRegion && !slices.ContainsFunc(v.Distances, func(d fleet.Distance) bool { return d.Region == a.Region && d.Engine == "" }):
		return fmt.Errorf("no cluster knows the distance to region %q", a.Region)
	}
	for n := range a.Engines {
		e := v.Engines[like]
		e.Name = fmt.Sprintf("new-%d-%d", number+1, n+1)
		e.URL, e.Region, e.Penalty, e.Ramp, e.Slowdown = "", a.Region, 0, 0, 0
		v.Engines = append(v.Engines, e)
	}
	return nil
}

func (d DistanceChange) apply(v *fleet.View) error {
	if !(d.Seconds >= 0 && d.Seconds <= 3600) {
		return fmt.Errorf("%v seconds are no distance", d.Seconds)
	}
	found := false
	for i := range v.Distances {
		x := &v.Distances[i]
		if x.Cluster == d.Cluster && x.Region == d.Region {
			x.Seconds, found = d.Seconds, true
		}
	}
	if !found {
		return fmt.Errorf("there is no distance from cluster %q to region %q", d.Cluster, d.Region)
	}
	return nil
}

// TotalsOf sums a plan up.
func TotalsOf(p *fleet.Plan) Totals {
	t := Totals{Shed: map[string]float64{}}
	seconds, network := 0.0, 0.0
	for i := range p.Rows {
		r := &p.Rows[i]
		admitted, work := r.Admitted(), fleet.Model{Work: r.Work}.Load()
		t.Admitted += admitted
		for k, d := range r.Demand {
			if shed := d * r.Shed[k]; shed > 0 {
				t.Shed[fleet.Priority(k).String()] += shed
			}
		}
		for _, a := range r.Arcs {
			flow := admitted * a.Weight
			network += flow * a.Network
			seconds += flow * (a.Network + work*p.Engines[a.Engine].Seconds)
		}
	}
	if t.Admitted > 0 {
		t.Seconds, t.Network = seconds/t.Admitted, network/t.Admitted
	}
	for i := range p.Engines {
		e := &p.Engines[i]
		if e.Capacity <= 0 {
			continue
		}
		if u := e.Load / e.Capacity; u > t.Utilisation {
			t.Fullest, t.Utilisation = e.Name, u
		}
		if e.Full() {
			t.Full++
		}
	}
	return t
}

// arcs lists the weights of a plan by row and engine.
func arcs(p *fleet.Plan) map[[3]string]float64 {
	out := map[[3]string]float64{}
	for i := range p.Rows {
		r := &p.Rows[i]
		for _, a := range r.Arcs {
			if a.Weight > 0 {
				out[[3]string{r.Cluster, r.Model, p.Engines[a.Engine].Name}] = a.Weight
			}
		}
	}
	return out
}

func rates(p *fleet.Plan) map[[2]string]float64 {
	out := map[[2]string]float64{}
	for i := range p.Rows {
		out[[2]string{p.Rows[i].Cluster, p.Rows[i].Model}] = p.Rows[i].Admitted()
	}
	return out
}

// moves lists the weights that differ.
func moves(before, after *fleet.Plan) []Move {
	was, is, wasRate, isRate := arcs(before), arcs(after), rates(before), rates(after)
	out := []Move{}
	add := func(k [3]string) {
		row := [2]string{k[0], k[1]}
		if was[k] != is[k] {
			out = append(out, Move{k[0], k[1], k[2], was[k], is[k], is[k]*isRate[row] - was[k]*wasRate[row]})
		}
	}
	for k := range was {
		add(k)
	}
	for k := range is {
		if _, ok := was[k]; !ok {
			add(k)
		}
	}
	slices.SortFunc(out, func(a, b Move) int {
		return cmp.Or(cmp.Compare(math.Abs(b.Rate), math.Abs(a.Rate)), strings.Compare(a.Cluster+"\x00"+a.Model+"\x00"+a.Engine, b.Cluster+"\x00"+b.Model+"\x00"+b.Engine))
	})
	return out
}

// moved is the part of a plan's traffic that another sends elsewhere.
func moved(before, after *fleet.Plan) float64 {
	is, all, away := arcs(after), 0.0, 0.0
	rate := rates(before)
	for k, w := range arcs(before) {
		r := rate[[2]string{k[0], k[1]}]
		all += r * w
		away += r * max(0, w-is[k])
	}
	if all == 0 {
		return 0
	}
	return away / all
}
