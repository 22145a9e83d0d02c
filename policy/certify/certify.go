package certify

import (
	"fmt"
	"math"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy"
)

// Certificate is what a plan costs and what any plan must cost.
type Certificate struct {
	Objective float64 // seconds per second
	Bound     float64 // seconds per second; no plan is cheaper
	Gap       float64 // (Objective - Bound) / Objective, 0 when the objective is 0; see trifle
	CapExcess float64 // greatest load over capacity less 1, negative when all caps are slack
}

// Tolerances of the constraints and of recorded figures, relative.
const (
	capTolerance    = 1e-9
	weightTolerance = 1e-9
	figureTolerance = 1e-9
	termTolerance   = 1e-6
)

// trifle is the least that an objective counts for in the gap, as a fraction of what the
// requests' bare time in the engines comes to. Where time is worth nothing below the
// knee, an objective may be 1e-50: a gap of that is rounding.
const trifle = 1e-6

// Checker measures plans, and keeps its memory between calls: views that differ
// from the last one in figures alone cost no allocation. The zero value is ready.
// One value must not be used by two goroutines at once.
type Checker struct {
	index index

	view       *fleet.View
	last, plan *fleet.Plan
	problem    policy.Problem

	asks   []asks                         // by model
	engine []engine                       // by number
	demand [][fleet.NumPriorities]float64 // by row, requests/s
	base   []float64                      // by component, seconds
	past   past
	price  []float64 // by group: seconds on arrival, as recorded

	into     []float64 // by cell: requests/s
	flow     []float64 // by target: requests/s
	cost     []float64 // by target: seconds of one more request there, without network
	arrive   []float64 // by group: the least that a request can cost there
	segments []segment
	held     [len(limits{})][]float64 // by engine

	objective, bound float64
	bare             float64 // seconds per second: what the engines' requests take, each alone in its engine
	excess           float64
}

// Measure computes the certificate of a plan for a valid view, given the last
// plan (nil at the start). It is an error when the plan is not one for this
// view, breaks a constraint, or records loads or terms that do not fit its
// weights and prices. Objective, Bound and Gap as recorded are not looked at.
// It is pure and may be called concurrently.
func Measure(view *fleet.View, last, plan *fleet.Plan, problem policy.Problem) (Certificate, error) {
	return new(Checker).Measure(view, last, plan, problem)
}

// Check is Measure for a plan that claims a certificate: it is an error as well
// when the recorded figures are not the measured ones, or the gap exceeds the
// problem's MaxGap.
func Check(view *fleet.View, last, plan *fleet.Plan, problem policy.Problem) (Certificate, error) {
	return new(Checker).Check(view, last, plan, problem)
}

// Measure is the function of that name.
func (c *Checker) Measure(view *fleet.View, last, plan *fleet.Plan, problem policy.Problem) (Certificate, error) {
	c.view, c.last, c.plan, c.problem = view, last, plan, problem
	defer func() { c.view, c.last, c.plan = nil, nil, nil }()
	c.objective, c.bound, c.bare, c.excess = 0, 0, 0, math.Inf(-1)
	if !c.index.use(view) {
		c.forget()
	}
	c.setAsks()
	c.setDemand()
	c.setPast()
	if err := c.stages(); err != nil {
		return Certificate{}, fmt.Errorf("certify: %w", err)
	}
	cert := Certificate{Objective: c.objective, Bound: c.bound, CapExcess: c.excess}
	if cert.Objective != 0 {
		cert.Gap = (cert.Objective - cert.Bound) / max(cert.Objective, trifle*c.bare)
	}
	if math.IsNaN(cert.Gap) || math.IsInf(cert.Gap, 0) {
		return cert, fmt.Errorf("certify: gap %v is not finite", cert.Gap)
	}
	return cert, nil
}

func (c *Checker) stages() error {
	if err := c.engines(); err != nil {
		return err
	}
	c.setCosts()
	if err := c.prices(); err != nil {
		return err
	}
	if err := c.rows(); err != nil {
		return err
	}
	c.churn()
	return c.loads()
}

// Check is the function of that name.
func (c *Checker) Check(view *fleet.View, last, plan *fleet.Plan, problem policy.Problem) (Certificate, error) {
	cert, err := c.Measure(view, last, plan, problem)
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

// sized gives a slice of n zeros, in the same memory where it is large enough.
func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}
