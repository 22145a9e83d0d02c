package certify

import (
	"fmt"
	"math"
	"slices"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy"
)

// Certificate is what a plan costs and what any plan must cost.
type Certificate struct {
	Objective float64 // seconds per second
	Bound     float64 // seconds per second; no plan is cheaper
	Gap       float64 // (Objective - Bound) / Objective, 0 when the objective is 0
	CapExcess float64 // greatest load over capacity less 1, negative when all caps are slack
}

// Tolerances of the constraints and of recorded figures, relative.
const (
	capTolerance    = 1e-9
	weightTolerance = 1e-9
	figureTolerance = 1e-9
	termTolerance   = 1e-6
)

// Measure computes the certificate of a plan for a valid view, given the last
// plan (nil at the start). It is an error when the plan is not one for this
// view, breaks a constraint, or records loads or terms that do not fit its
// weights and prices. Objective, Bound and Gap as recorded are not looked at.
// It is pure and may be called concurrently.
func Measure(view *fleet.View, last, plan *fleet.Plan, problem policy.Problem) (Certificate, error) {
	c := &checker{view: view, last: last, plan: plan, problem: problem}
	for _, stage := range []func() error{c.engines, c.indexRows, c.rows, c.loads} {
		if err := stage(); err != nil {
			return Certificate{}, fmt.Errorf("certify: %w", err)
		}
	}
	cert := Certificate{Objective: c.objective, Bound: c.bound, CapExcess: c.excess}
	if cert.Objective != 0 {
		cert.Gap = (cert.Objective - cert.Bound) / cert.Objective
	}
	if math.IsNaN(cert.Gap) || math.IsInf(cert.Gap, 0) {
		return cert, fmt.Errorf("certify: gap %v is not finite", cert.Gap)
	}
	return cert, nil
}

// Check is Measure for a plan that claims a certificate: it is an error as well
// when the recorded figures are not the measured ones, or the gap exceeds the
// problem's MaxGap.
func Check(view *fleet.View, last, plan *fleet.Plan, problem policy.Problem) (Certificate, error) {
	cert, err := Measure(view, last, plan, problem)
	if err != nil {
		return cert, err
	}
	scale := math.Abs(cert.Objective)
	for _, f := range []struct {
		name           string
		recorded, true float64
		scale          float64
	}{
		{"objective", plan.Objective, cert.Objective, scale},
		{"bound", plan.Bound, cert.Bound, scale},
		{"gap", plan.Gap, cert.Gap, 1},
	} {
		if !near(f.recorded, f.true, figureTolerance*f.scale) {
			return cert, fmt.Errorf("certify: %s is recorded as %v, measured %v", f.name, f.recorded, f.true)
		}
	}
	if cert.Gap > problem.MaxGap {
		return cert, fmt.Errorf("certify: gap %.3g exceeds %.3g", cert.Gap, problem.MaxGap)
	}
	return cert, nil
}

// near is false for NaN.
func near(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance }

type rowKey struct{ cluster, model string }

type checker struct {
	view       *fleet.View
	last, plan *fleet.Plan
	problem    policy.Problem

	engine []engine           // by the plan's number
	number map[string]int32   // engine's name -> the plan's number
	serves map[string][]int32 // model -> engines that serve it, ascending

	regions  map[string]int32     // number of a region with engines
	distance map[string][]float64 // cluster -> seconds by region
	demand   map[rowKey]*[fleet.NumPriorities]float64
	lastRow  map[rowKey]*fleet.Row
	lastOf   []int32 // last plan's engine number -> the plan's, -1 when gone

	before []float64 // scratch: last weight by engine
	load   []float64 // requests/s by engine, recomputed

	objective, bound float64
	excess           float64
}

// indexRows collects demand, distance and the last plan's rows.
func (c *checker) indexRows() error {
	c.distance = make(map[string][]float64, len(c.view.Clusters))
	for _, cluster := range c.view.Clusters {
		c.distance[cluster.Name] = make([]float64, len(c.regions))
	}
	for _, d := range c.view.Distances {
		if r, ok := c.regions[d.Region]; ok {
			c.distance[d.Cluster][r] = d.Seconds
		}
	}
	c.demand = map[rowKey]*[fleet.NumPriorities]float64{}
	for _, cluster := range c.view.Clusters {
		for model := range c.serves {
			c.demand[rowKey{cluster.Name, model}] = new([fleet.NumPriorities]float64)
		}
	}
	for _, d := range c.view.Demands {
		k := rowKey{d.Cluster, d.Model}
		if c.demand[k] == nil {
			if d.Rate == 0 {
				continue
			}
			c.demand[k] = new([fleet.NumPriorities]float64)
		}
		c.demand[k][d.Priority] = d.Rate
	}
	c.before = make([]float64, len(c.engine))
	c.load = make([]float64, len(c.engine))
	if c.last == nil {
		return nil
	}
	c.lastRow = make(map[rowKey]*fleet.Row, len(c.last.Rows))
	for i := range c.last.Rows {
		r := &c.last.Rows[i]
		c.lastRow[rowKey{r.Cluster, r.Model}] = r
	}
	for _, e := range c.last.Engines {
		n, ok := c.number[e.Name]
		if !ok {
			n = -1
		}
		c.lastOf = append(c.lastOf, n)
	}
	return nil
}

// rows checks every row and adds up loads, costs and the rows' part of the bound.
func (c *checker) rows() error {
	rows := c.plan.Rows
	for i := range rows {
		r := &rows[i]
		if i > 0 && (r.Cluster < rows[i-1].Cluster || r.Cluster == rows[i-1].Cluster && r.Model <= rows[i-1].Model) {
			return fmt.Errorf("rows[%d]: not sorted by (cluster, model)", i)
		}
		if err := c.row(r); err != nil {
			return fmt.Errorf("row (%s, %s): %w", r.Cluster, r.Model, err)
		}
	}
	if len(rows) != len(c.demand) {
		return fmt.Errorf("%d rows where the view has %d", len(rows), len(c.demand))
	}
	return nil
}

func (c *checker) row(r *fleet.Row) error {
	demand := c.demand[rowKey{r.Cluster, r.Model}]
	if demand == nil {
		return fmt.Errorf("no such row in the view")
	}
	rate, admitted, base := 0.0, 0.0, 0.0
	if engines := c.serves[r.Model]; len(engines) > 0 {
		base = c.engine[engines[0]].base
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
	if err := c.targets(r); err != nil {
		return err
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
	moves := c.lastWeights(r)
	if err := c.arcs(r, admitted, moves); err != nil {
		return err
	}
	if rate > 0 {
		c.bound += c.fill(r, demand, base, moves)
	}
	for _, a := range r.Arcs {
		c.before[a.Engine] = 0
	}
	return nil
}

// targets checks that the row's arcs are the engines that serve its model.
func (c *checker) targets(r *fleet.Row) error {
	engines := c.serves[r.Model]
	if len(r.Arcs) != len(engines) {
		return fmt.Errorf("%d arcs for %d engines", len(r.Arcs), len(engines))
	}
	for j, a := range r.Arcs {
		if a.Engine != engines[j] {
			return fmt.Errorf("arcs[%d]: engine %d does not serve the model, or is out of order", j, a.Engine)
		}
	}
	return nil
}

// lastWeights puts the row's last flows at today's demand into before, and says
// whether there are any.
func (c *checker) lastWeights(r *fleet.Row) bool {
	last := c.lastRow[rowKey{r.Cluster, r.Model}]
	if last == nil {
		return false
	}
	flow := 0.0
	for k, d := range c.demand[rowKey{r.Cluster, r.Model}] {
		flow += d * (1 - last.Shed[k])
	}
	moves, next, engines := false, 0, c.serves[r.Model]
	for _, a := range last.Arcs {
		n := c.lastOf[a.Engine]
		if n < 0 || a.Weight <= 0 {
			continue
		}
		for next < len(engines) && engines[next] < n {
			next++
		}
		if next < len(engines) && engines[next] == n { // it still serves the model
			c.before[n] = a.Weight * flow
			moves = true
		}
	}
	return moves
}

// arcs checks the row's arcs and adds their flows and costs.
func (c *checker) arcs(r *fleet.Row, admitted float64, moves bool) error {
	sum, distance := 0.0, c.distance[r.Cluster]
	for _, a := range r.Arcs {
		e := &c.engine[a.Engine]
		if !(a.Weight >= 0 && a.Weight <= 1+weightTolerance) {
			return fmt.Errorf("engine %q: weight %v is not a fraction", e.view.Name, a.Weight)
		}
		network := distance[e.region] + e.view.Offset
		if !near(a.Network, network, figureTolerance*network) {
			return fmt.Errorf("engine %q: network %v, measured %v", e.view.Name, a.Network, network)
		}
		limit := 0.0
		if moves {
			limit = c.problem.Lambda
		}
		if !near(a.Churn, 0, limit*(1+figureTolerance)) {
			return fmt.Errorf("engine %q: churn %v is beyond its price %v", e.view.Name, a.Churn, limit)
		}
		x := admitted * a.Weight
		sum += a.Weight
		c.load[a.Engine] += x
		c.objective += x * network
		if moves {
			c.objective += c.problem.Lambda * math.Abs(x-c.before[a.Engine])
		}
	}
	if !near(sum, 1, weightTolerance) {
		return fmt.Errorf("weights add up to %v", sum)
	}
	return nil
}

// fill is the least that the row could pay at the plan's prices: its demand
// poured into the cheapest segments first. Where moving costs, an engine's
// segment up to the last flow is cheaper than what goes beyond it.
func (c *checker) fill(r *fleet.Row, demand *[fleet.NumPriorities]float64, base float64, moves bool) float64 {
	type segment struct{ price, room float64 }
	var segments []segment
	lambda := 0.0
	if moves {
		lambda = c.problem.Lambda
	}
	open := math.Inf(1) // the cheapest segment without an end
	for _, a := range r.Arcs {
		open = min(open, a.Network+c.engine[a.Engine].price+lambda)
	}
	left, cost := 0.0, 0.0
	for k, d := range demand {
		left += d
		if v := base + c.problem.Refuse[k]; v < open && d > 0 {
			segments = append(segments, segment{v, d})
		}
	}
	for _, a := range r.Arcs {
		if before := c.before[a.Engine]; before > 0 {
			cost += lambda * before
			if p := a.Network + c.engine[a.Engine].price - lambda; p < open {
				segments = append(segments, segment{p, before})
			}
		}
	}
	slices.SortFunc(segments, func(a, b segment) int {
		switch {
		case a.price < b.price:
			return -1
		case a.price > b.price:
			return 1
		}
		return 0
	})
	for _, s := range segments {
		x := min(left, s.room)
		cost += x * s.price
		left -= x
	}
	return cost + left*open
}
