package certify

import (
	"fmt"
	"math"

	"github.com/wardrop-lb/wardrop/fleet"
)

// past is the last plan at today's demand.
type past struct {
	known   []bool    // by row: it gives weight to an engine that serves the row
	into    []float64 // by cell: requests/s
	flow    []float64 // by target: requests/s
	model   []float64 // by model: requests/s
	engine  []int32   // last plan's number of an engine -> the plan's, -1 when gone
	numbers []float64
}

func (p *past) scratch(n int) []float64 {
	p.numbers = sized(p.numbers, n)
	return p.numbers
}

// rowPrice is what it costs to move one request/s of a row into or out of a
// group; enginePrice the same for a model's engines.
func (c *Checker) rowPrice(at int) float64 {
	if c.past.known[at] {
		return c.problem.RowChurn()
	}
	return 0
}

func (c *Checker) enginePrice(m int) float64 {
	if c.past.model[m] > 0 {
		return c.problem.EngineChurn()
	}
	return 0
}

// setPast reads the last plan.
func (c *Checker) setPast() {
	x, p := &c.index, &c.past
	p.known = sized(p.known, len(c.demand))
	p.into = sized(p.into, len(c.into))
	p.flow = sized(p.flow, len(c.flow))
	p.model = sized(p.model, len(x.models))
	if c.last == nil {
		return
	}
	p.engine = sized(p.engine, len(c.last.Engines))
	n := 0
	for i := range c.last.Engines {
		name := c.last.Engines[i].Name
		for n < len(x.order) && c.view.Engines[x.order[n]].Name < name {
			n++
		}
		p.engine[i] = -1
		if n < len(x.order) && c.view.Engines[x.order[n]].Name == name {
			p.engine[i] = int32(n)
		}
	}
	i := 0
	for k, cluster := range x.clusters {
		for m, model := range x.models {
			for i < len(c.last.Rows) && before(&c.last.Rows[i], cluster, model) {
				i++
			}
			if i < len(c.last.Rows) && c.last.Rows[i].Cluster == cluster && c.last.Rows[i].Model == model {
				c.addPast(&c.last.Rows[i], k, m)
			}
		}
	}
}

func before(r *fleet.Row, cluster, model string) bool {
	return r.Cluster < cluster || r.Cluster == cluster && r.Model < model
}

func (c *Checker) addPast(last *fleet.Row, cluster, m int) {
	x, p := &c.index, &c.past
	at := cluster*len(x.models) + m
	admitted := 0.0
	for k, d := range c.demand[at] {
		admitted += d * (1 - last.Shed[k])
	}
	targets, start := x.targets[m], int(x.start[m])
	cells := p.into[cluster*len(x.first):]
	j := 0
	for i := range last.Arcs {
		a := &last.Arcs[i]
		n := p.engine[a.Engine]
		if n < 0 || a.Weight <= 0 {
			continue
		}
		for j < len(targets) && targets[j] < n {
			j++
		}
		if j < len(targets) && targets[j] == n {
			p.known[at] = true
			f := a.Weight * admitted
			cells[x.group[start+j]] += f
			p.flow[start+j] += f
			p.model[m] += f
		}
	}
}

// prices takes the recorded prices of the groups. With those and the engines' it
// chooses, for each engine of a model, what one more request/s moved there is
// worth: at most the churn price. Any choice gives a bound, the recorded prices
// give a tight one.
func (c *Checker) prices() error {
	x := &c.index
	c.price = sized(c.price, len(x.first))
	c.arrive = sized(c.arrive, len(x.first))
	for g := range c.price {
		c.price[g] = math.Inf(1)
	}
	m := 0
	for i, p := range c.plan.Prices {
		for m < len(x.models) && x.models[m] < p.Model {
			m++
		}
		if math.IsNaN(p.Seconds) || math.IsInf(p.Seconds, 0) {
			return fmt.Errorf("prices[%d]: %v is not finite", i, p.Seconds)
		}
		if m == len(x.models) || x.models[m] != p.Model {
			return fmt.Errorf("prices[%d]: nobody serves %q, or not sorted", i, p.Model)
		}
		for g := x.groups[m]; g < x.groups[m+1]; g++ {
			if x.first[g] == p.Engine {
				c.price[g] = p.Seconds
			}
		}
	}
	for m, targets := range x.targets {
		c.arriveModel(m, targets)
	}
	return nil
}

// arriveModel finds the least that a request can cost at each group of a model.
func (c *Checker) arriveModel(m int, targets []int32) {
	x, fare := &c.index, c.enginePrice(m)
	start := int(x.start[m])
	for g := x.groups[m]; g < x.groups[m+1]; g++ {
		c.arrive[g] = math.Inf(1)
	}
	for j := range targets {
		g := x.group[start+j]
		cost := c.cost[start+j]
		worth := max(-fare, min(fare, c.price[g]-cost))
		// fare |y - y0| >= worth (y - y0) for any |worth| <= fare.
		c.bound -= worth * c.past.flow[start+j]
		c.arrive[g] = min(c.arrive[g], cost+worth)
	}
}

// churn adds what the moves cost.
func (c *Checker) churn() {
	x := &c.index
	for k := range x.clusters {
		for m := range x.models {
			fare := c.rowPrice(k*len(x.models) + m)
			if fare == 0 {
				continue
			}
			for g := x.groups[m]; g < x.groups[m+1]; g++ {
				at := k*len(x.first) + int(g)
				c.objective += fare * math.Abs(c.into[at]-c.past.into[at])
			}
		}
	}
	for m, targets := range x.targets {
		fare := c.enginePrice(m)
		for j := range targets {
			at := int(x.start[m]) + j
			c.objective += fare * math.Abs(c.flow[at]-c.past.flow[at])
		}
	}
}
