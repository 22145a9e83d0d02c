package certify

import (
	"fmt"
	"math"
	"slices"

	"github.com/wardrop-lb/wardrop/fleet"
)

// setDemand collects the demand by row.
func (c *Checker) setDemand() {
	x := &c.index
	c.demand = sized(c.demand, len(x.clusters)*len(x.models))
	for i := range c.view.Demands {
		d := &c.view.Demands[i]
		c.demand[x.row[i]][d.Priority] = d.Rate
	}
	c.into = sized(c.into, len(x.clusters)*len(x.first))
	c.flow = sized(c.flow, len(x.group))
}

// rows checks every row, adds up flows and costs, and the rows' part of the
// bound.
func (c *Checker) rows() error {
	x, next := &c.index, 0
	for k, cluster := range x.clusters {
		for m, model := range x.models {
			at := k*len(x.models) + m
			if len(x.targets[m]) == 0 && c.demand[at] == [fleet.NumPriorities]float64{} {
				continue
			}
			if next == len(c.plan.Rows) {
				return fmt.Errorf("%d rows, that of (%s, %s) is missing", next, cluster, model)
			}
			r := &c.plan.Rows[next]
			next++
			if r.Cluster != cluster || r.Model != model {
				return fmt.Errorf("row (%s, %s) where the view has (%s, %s): missing, no such row, or not sorted", r.Cluster, r.Model, cluster, model)
			}
			if err := c.row(r, k, m, at); err != nil {
				return fmt.Errorf("row (%s, %s): %w", r.Cluster, r.Model, err)
			}
		}
	}
	if next != len(c.plan.Rows) {
		return fmt.Errorf("%d rows where the view has %d", len(c.plan.Rows), next)
	}
	return nil
}

func (c *Checker) row(r *fleet.Row, cluster, m, at int) error {
	x, demand := &c.index, &c.demand[at]
	rate, admitted, base := 0.0, 0.0, 0.0
	if targets := x.targets[m]; len(targets) > 0 {
		base = c.base[x.part[targets[0]]]
	}
	for k, d := range demand {
		if !(r.Shed[k] >= 0 && r.Shed[k] <= 1) {
			return fmt.Errorf("shed %v of %s is not a fraction", r.Shed[k], fleet.Priority(k))
		}
		rate += d
		admitted += d * (1 - r.Shed[k])
		c.objective += (base + c.problem.Refuse[k]) * d * r.Shed[k]
	}
	if !near(r.Rate, rate, figureTolerance*rate) {
		return fmt.Errorf("rate is recorded as %v, demand is %v", r.Rate, rate)
	}
	if err := c.asked(r, m); err != nil {
		return err
	}
	if len(r.Arcs) != len(x.targets[m]) {
		return fmt.Errorf("%d arcs for %d engines", len(r.Arcs), len(x.targets[m]))
	}
	if len(r.Arcs) == 0 {
		if admitted != 0 {
			return fmt.Errorf("requests are admitted that no engine serves")
		}
		for k, d := range demand {
			c.bound += (base + c.problem.Refuse[k]) * d
		}
		return nil
	}
	if err := c.arcs(r, cluster, m, at, admitted); err != nil {
		return err
	}
	if rate > 0 {
		c.bound += c.fill(cluster, m, at, base)
	}
	return nil
}

// arcs checks the row's arcs and adds their flows and costs.
func (c *Checker) arcs(r *fleet.Row, cluster, m, at int, admitted float64) error {
	x := &c.index
	targets, start := x.targets[m], int(x.start[m])
	group, flow := x.group[start:][:len(targets)], c.flow[start:][:len(targets)]
	cells := c.into[cluster*len(x.first):]
	distance := x.distance[cluster*len(x.first):]
	limit := (c.rowPrice(at) + c.enginePrice(m)) * (1 + figureTolerance)
	sum, cost := 0.0, 0.0
	for j := range r.Arcs {
		a := &r.Arcs[j]
		if a.Engine != targets[j] {
			return fmt.Errorf("arcs[%d]: engine %d does not serve the model, or is out of order", j, a.Engine)
		}
		if !(a.Weight >= 0 && a.Weight <= 1+weightTolerance) {
			return fmt.Errorf("arcs[%d]: weight %v is not a fraction", j, a.Weight)
		}
		network := distance[group[j]] + c.engine[a.Engine].view.Offset
		if !near(a.Network, network, figureTolerance*network) {
			return fmt.Errorf("arcs[%d]: network %v, measured %v", j, a.Network, network)
		}
		if !near(a.Churn, 0, limit) {
			return fmt.Errorf("arcs[%d]: churn %v is beyond its price %v", j, a.Churn, limit)
		}
		f := admitted * a.Weight
		sum += a.Weight
		cost += f * network
		flow[j] += f
		cells[group[j]] += f
	}
	c.objective += cost
	if !near(sum, 1, weightTolerance) {
		return fmt.Errorf("weights add up to %v", sum)
	}
	return nil
}

// segment is flow that can be had at a price.
type segment struct{ price, room float64 }

// fill is the least that the row could pay at the plan's prices: its demand
// poured into the cheapest segments first. Where moving costs, a group's segment
// up to the last flow is cheaper than what goes beyond it.
func (c *Checker) fill(cluster, m, at int, base float64) float64 {
	x := &c.index
	half := c.rowPrice(at)
	segments := c.segments[:0]
	cells := cluster * len(x.first)
	open := math.Inf(1) // the cheapest segment without an end
	for g := x.groups[m]; g < x.groups[m+1]; g++ {
		open = min(open, x.distance[cells+int(g)]+c.arrive[g]+half)
	}
	left, cost := 0.0, 0.0
	for k, d := range c.demand[at] {
		left += d
		if v := base + c.problem.Refuse[k]; v < open && d > 0 {
			segments = append(segments, segment{v, d})
		}
	}
	if half > 0 {
		for g := x.groups[m]; g < x.groups[m+1]; g++ {
			if before := c.past.into[cells+int(g)]; before > 0 {
				cost += half * before
				if p := x.distance[cells+int(g)] + c.arrive[g] - half; p < open {
					segments = append(segments, segment{p, before})
				}
			}
		}
	}
	slices.SortFunc(segments, cheaper)
	c.segments = segments
	for _, s := range segments {
		f := min(left, s.room)
		cost += f * s.price
		left -= f
	}
	return cost + left*open
}

func cheaper(a, b segment) int {
	switch {
	case a.price < b.price:
		return -1
	case a.price > b.price:
		return 1
	}
	return 0
}
