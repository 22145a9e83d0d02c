package policy

import (
	"errors"
	"fmt"

	"github.com/wardrop-lb/wardrop/fleet"
)

// Problem is what solver and certificate must agree on: the prices of a plan's
// objective and the tolerances of its weights. With x the flow in requests/s
// from a row (cluster, model) to an engine, u an engine's load in work/s, each
// request counted by its model's work, and s the flow refused, a plan's objective
// in seconds per second is
//
//	sum x (distance + offset + penalty + own) + sum Phi(u) + sum V s
//	  + Lambda/2 sum |X - X0| + Lambda sum |Y - Y0|
//
// subject to u <= capacity, flow and refusals adding up to the demand. Phi is what
// time in the engine is worth to its models in the mean, own what a model differs in
// (fleet.OwnLatency).
//
// Moving is counted twice: by model and engine, at the churn price, where Y adds up
// the flow of all the model's rows to the engine; and by row and group, at half of
// it, where X adds up the row's flow to the group's engines. A group is the
// engines of one region that serve a model and are equally far from every
// cluster. So a request/s that moves from an engine to another of its group pays
// Lambda where it leaves and Lambda where it arrives; one that moves to another
// group pays half as much again at either end; and rows that swap engines of a
// group pay nothing, for the load that each engine has stays the same. A plan
// keeps such flows anyhow as far as its X and Y permit.
//
// X0 and Y0 are the last plan at the new demand: its weights times the demand
// that its shed fractions admit. Engines that are gone have neither; what they
// served is not spread over the others. A row that the last plan lacks, or whose
// engines are all gone, pays nothing for X, and a model all of whose rows are so,
// nothing for Y.
//
// An engine's capacity is the least of its profile's fraction of saturation and
// of what its tokens and slots are enough for. Where its models hold different
// amounts of these by unit of work, each is a constraint of its own beside the
// capacity: what the flows hold is within the limit.
//
// The capacity of an engine with a ramp (fleet.Engine.Ramp) is that fraction of
// it, unless the component would then refuse requests. Its limits on tokens and slots
// stay as they are.
//
// V is what refusing a request of a priority costs. Shedding is the last resort,
// so V counts beyond the dearest request that could be admitted instead:
//
//	V = base + Refuse[priority]
//	base = max over the component of (distance + offset + penalty + own + work Phi'(capacity)) + 1.5 Lambda
//
// where the component is all engines joined by models in common, and the
// distance is the greatest from any cluster. Hence the plan routes all that the
// caps let through, and what it must refuse it refuses strictly by priority
// across the component, as long as distances differ by less than the values of
// Refuse do. base is 0 for a model that no engine serves. Since base follows the
// engines, objectives compare between views only where nothing is shed.
type Problem struct {
	Lambda float64                      // seconds: the price of moving one request/s away from an engine or to one; >= 0
	Refuse [fleet.NumPriorities]float64 // seconds: value of serving a request beyond the dearest one; falling with priority, > 0
	Floor  float64                      // weights below it are not used, 0..0.1; rows of more than 50 engines have a lower one
	Keep   float64                      // relative change of a weight below which the last weight stays, 0..0.1
	MaxGap float64                      // certified relative gap beyond which a plan is refused, > 0
}

// DefaultProblem gives the defaults: a churn price of 70 ms; refusals at 2, 20
// and 200 s from batch to critical; weights from 0.002; changes from 0.001; a
// gap of 1e-4.
func DefaultProblem() Problem {
	p := Problem{Lambda: 0.070, Floor: 2e-3, Keep: 1e-3, MaxGap: 1e-4}
	p.Refuse[fleet.Critical] = 200
	p.Refuse[fleet.Standard] = 20
	p.Refuse[fleet.Batch] = 2
	return p
}

// Validate reports what is wrong with the problem; each error names the field.
func (p Problem) Validate() error {
	var errs []error
	in := func(field string, x, low, high float64) {
		if !(x >= low && x <= high) {
			errs = append(errs, fmt.Errorf("%s: %v is not in [%v, %v]", field, x, low, high))
		}
	}
	in("lambda", p.Lambda, 0, 1e6)
	for k := range p.Refuse {
		high := 1e6
		if k > 0 {
			high = p.Refuse[k-1]
		}
		in("refuse."+fleet.Priority(k).String(), p.Refuse[k], 1e-6, high)
	}
	in("floor", p.Floor, 0, 0.1)
	in("keep", p.Keep, 0, 0.1)
	in("max_gap", p.MaxGap, 1e-9, 1)
	return errors.Join(errs...)
}

// RowFloor is the least weight worth using in a row of that many engines: Floor,
// or a tenth of an equal share where that is less, so that a row of very many
// engines is not pruned to nothing.
func (p Problem) RowFloor(engines int) float64 {
	return min(p.Floor, 0.1/float64(max(engines, 1)))
}

// RowChurn is the price in seconds of one request/s more or less from a row to a
// group.
func (p *Problem) RowChurn() float64 { return 0.5 * p.Lambda }

// EngineChurn is the price in seconds of one request/s more or less of a model at
// an engine.
func (p *Problem) EngineChurn() float64 { return p.Lambda }
