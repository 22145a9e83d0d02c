package suppose

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/latency"
)

// TargetUtilisation is the part of its capacity that an engine is meant to have as load when
// replicas are counted.
const TargetUtilisation = 0.75

// shortlist is how many candidates of a kind are solved for.
const shortlist = 5

// AddAdvice is where another engine would save time.
type AddAdvice struct {
	Model  string `json:"model"`
	Region string `json:"region"`
	Like   string `json:"like"` // the engine that it would be like
	// Saved is the seconds that all requests together would save each second; Admitted the
	// requests/s that would no longer be refused.
	Saved    float64 `json:"saved_seconds_per_second"`
	Admitted float64 `json:"admitted_more,omitempty"`
	Words    string  `json:"words"`
}

// IdleAdvice is an engine that would hardly be missed.
type IdleAdvice struct {
	Engine      string  `json:"engine"`
	Utilisation float64 `json:"utilisation"`
	// Cost is the seconds that all requests together would take longer each second without it.
	Cost  float64 `json:"cost_seconds_per_second"`
	Words string  `json:"words"`
}

// DistanceAdvice is a distance that much time is spent on.
type DistanceAdvice struct {
	Cluster string  `json:"cluster"`
	Region  string  `json:"region"`
	Seconds float64 `json:"seconds"`            // of a round trip
	Rate    float64 `json:"rate"`               // requests/s that take it
	Spent   float64 `json:"seconds_per_second"` // the product
	Words   string  `json:"words"`
}

// Replicas is how many engines serve a model in a region, and how many would have the target
// utilisation at the load that the plan gives them and what is refused near them.
type Replicas struct {
	Model   string  `json:"model"`
	Region  string  `json:"region"`
	Engines int     `json:"engines"`
	Desired int     `json:"desired"`
	Load    float64 `json:"load"` // requests/s, by work, refused ones included
}

// Advice is what an operator or an autoscaler may want to do.
type Advice struct {
	Add       []AddAdvice      `json:"add"`
	Idle      []IdleAdvice     `json:"idle"`
	Distances []DistanceAdvice `json:"distances"`
	Replicas  []Replicas       `json:"replicas"`
}

// Advise finds by the plan's prices where to look, and what it finds there by solving.
func Advise(view *fleet.View, plan *fleet.Plan, solve Solver) (*Advice, error) {
	a := &Advice{Add: []AddAdvice{}, Idle: []IdleAdvice{}, Distances: far(view, plan), Replicas: CountReplicas(view, plan)}
	now := TotalsOf(plan)
	for _, c := range additions(view, plan) {
		o, err := WhatIf(view, plan, Changes{Add: []AddChange{{c.Region, c.Model, 1}}}, solve)
		if err != nil {
			return nil, err
		}
		c.Saved, c.Admitted = now.Seconds*now.Admitted-o.After.Seconds*o.After.Admitted, o.After.Admitted-now.Admitted
		if c.Admitted < now.Admitted*1e-6 {
			c.Admitted = 0
		}
		if c.Admitted == 0 && c.Saved < now.Seconds*now.Admitted*1e-4 {
			continue // nobody would notice
		}
		c.Words = fmt.Sprintf("Another engine like %s for %s in %s would save a request %s in the mean.", c.Like, c.Model, c.Region, duration(now.Seconds-o.After.Seconds))
		if c.Admitted > 0 {
			c.Words = fmt.Sprintf("Another engine like %s for %s in %s would let in %.3g requests/s that are refused.", c.Like, c.Model, c.Region, c.Admitted)
		}
		a.Add = append(a.Add, c)
	}
	slices.SortFunc(a.Add, func(x, y AddAdvice) int {
		return cmp.Or(cmp.Compare(y.Admitted, x.Admitted), cmp.Compare(y.Saved, x.Saved), strings.Compare(x.Model+x.Region, y.Model+y.Region))
	})
	for _, c := range idle(view, plan) {
		o, err := WhatIf(view, plan, Changes{Drain: []string{c.Engine}}, solve)
		if err != nil {
			return nil, err
		}
		c.Cost = max(0, o.After.Seconds*o.After.Admitted-now.Seconds*now.Admitted)
		if o.After.Admitted < now.Admitted*(1-1e-6) {
			continue // it is needed
		}
		c.Words = fmt.Sprintf("%s has %.0f %% of the load that it may have; without it all requests together would take %.3g s longer each second.", c.Engine, 100*c.Utilisation, c.Cost)
		a.Idle = append(a.Idle, c)
	}
	return a, nil
}

// additions lists where a new engine would gain the most if prices stayed as they are: it takes
// load until one more request there costs as much as elsewhere.
func additions(view *fleet.View, plan *fleet.Plan) []AddAdvice {
	type candidate struct {
		AddAdvice
		gain float64
	}
	price := prices(plan)
	best := map[[2]string]candidate{}
	for i := range view.Engines {
		e := &view.Engines[i]
		p, ok := price[e.Name]
		if !ok {
			continue
		}
		gain := gainOf(latency.New(e.Profile), p)
		for _, m := range e.Models {
			k := [2]string{m, e.Region}
			if c, ok := best[k]; !ok || gain > c.gain {
				best[k] = candidate{AddAdvice{Model: m, Region: e.Region, Like: e.Name}, gain}
			}
		}
	}
	list := make([]candidate, 0, len(best))
	for _, c := range best {
		list = append(list, c)
	}
	slices.SortFunc(list, func(x, y candidate) int {
		return cmp.Or(cmp.Compare(y.gain, x.gain), strings.Compare(x.Model+"\x00"+x.Region, y.Model+"\x00"+y.Region))
	})
	var out []AddAdvice
	for _, c := range list[:min(len(list), shortlist)] {
		out = append(out, c.AddAdvice)
	}
	return out
}

func prices(plan *fleet.Plan) map[string]float64 {
	out := make(map[string]float64, len(plan.Engines))
	for i := range plan.Engines {
		if plan.Engines[i].Load > 0 {
			out[plan.Engines[i].Name] = plan.Engines[i].Price()
		}
	}
	return out
}

// gainOf is the most that an engine saves at a price of its work: price u - Phi(u), seconds
// each second. The concave function is searched by thirds.
func gainOf(m latency.Model, price float64) float64 {
	gain := func(u float64) float64 { return price*u - m.Phi(u) }
	low, high := 0.0, m.Capacity()
	for range 40 {
		a, b := low+(high-low)/3, high-(high-low)/3
		if gain(a) < gain(b) {
			low = a
		} else {
			high = b
		}
	}
	return gain((low + high) / 2)
}

// idle lists the engines that are used least, for their capacity.
func idle(view *fleet.View, plan *fleet.Plan) (out []IdleAdvice) {
	there := byName(view)
	for i := range plan.Engines {
		e := &plan.Engines[i]
		if e.Capacity > 0 && there[e.Name] != nil && e.Load < idleBelow*e.Capacity {
			out = append(out, IdleAdvice{Engine: e.Name, Utilisation: e.Load / e.Capacity})
		}
	}
	slices.SortFunc(out, func(x, y IdleAdvice) int {
		return cmp.Or(cmp.Compare(x.Utilisation, y.Utilisation), strings.Compare(x.Engine, y.Engine))
	})
	return out[:min(len(out), shortlist)]
}

// idleBelow is the utilisation below which an engine may be one too many.
const idleBelow = 0.2

// far lists the distances that requests spend the most time on.
func far(view *fleet.View, plan *fleet.Plan) []DistanceAdvice {
	region := map[string]string{}
	for i := range view.Engines {
		region[view.Engines[i].Name] = view.Engines[i].Region
	}
	spent, rate := map[[2]string]float64{}, map[[2]string]float64{}
	for i := range plan.Rows {
		r := &plan.Rows[i]
		for _, a := range r.Arcs {
			k := [2]string{r.Cluster, region[plan.Engines[a.Engine].Name]}
			spent[k] += r.Admitted() * a.Weight * a.Network
			rate[k] += r.Admitted() * a.Weight
		}
	}
	out := []DistanceAdvice{}
	for k, s := range spent {
		if rate[k] > 0 && s > 0 {
			d := DistanceAdvice{Cluster: k[0], Region: k[1], Seconds: s / rate[k], Rate: rate[k], Spent: s}
			d.Words = fmt.Sprintf("%.4g requests/s go from %s to %s, %s each.", d.Rate, d.Cluster, d.Region, duration(d.Seconds))
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(x, y DistanceAdvice) int {
		return cmp.Or(cmp.Compare(y.Spent, x.Spent), strings.Compare(x.Cluster+"\x00"+x.Region, y.Cluster+"\x00"+y.Region))
	})
	n := 0
	for n < min(len(out), shortlist) && out[n].Spent >= worthNaming*out[0].Spent {
		n++
	}
	return out[:n]
}

// worthNaming is the part of the most that requests spend on one distance from which another is
// named beside it.
const worthNaming = 0.25

// CountReplicas counts engines by model and region, sorted by these. An engine of several
// models counts for each of them, whole.
func CountReplicas(view *fleet.View, plan *fleet.Plan) []Replicas {
	type tally struct {
		engines        int
		load, capacity float64
	}
	count := map[[2]string]*tally{}
	there := byName(view)
	for i := range view.Engines {
		for _, m := range view.Engines[i].Models {
			k := [2]string{m, view.Engines[i].Region}
			if count[k] == nil {
				count[k] = &tally{}
			}
			count[k].engines++
			count[k].capacity += latency.New(view.Engines[i].Profile).Capacity()
		}
	}
	for i := range plan.Rows {
		r := &plan.Rows[i]
		work := fleet.Model{Work: r.Work}.Load()
		var nearest *tally
		distance := math.Inf(1)
		for _, a := range r.Arcs {
			e := there[plan.Engines[a.Engine].Name]
			if e == nil {
				continue
			}
			c := count[[2]string{r.Model, e.Region}]
			if c == nil {
				continue
			}
			c.load += r.Admitted() * a.Weight * work
			if a.Network < distance {
				nearest, distance = c, a.Network
			}
		}
		if nearest != nil {
			nearest.load += max(0, r.Rate-r.Admitted()) * work
		}
	}
	out := make([]Replicas, 0, len(count))
	for k, c := range count {
		each := c.capacity / float64(c.engines)
		out = append(out, Replicas{Model: k[0], Region: k[1], Engines: c.engines, Load: c.load, Desired: int(math.Ceil(c.load/(TargetUtilisation*each) - 1e-9))})
	}
	slices.SortFunc(out, func(x, y Replicas) int {
		return cmp.Or(strings.Compare(x.Model, y.Model), strings.Compare(x.Region, y.Region))
	})
	return out
}
