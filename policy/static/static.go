package static

import (
	"fmt"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy/internal/table"
)

// Name is what configuration calls the policy.
const Name = "static"

// Policy gives every row the configured weights. It keeps nothing between
// calls, so one value may be used by many goroutines.
type Policy struct{}

// New makes the policy.
func New() *Policy { return &Policy{} }

// Name is Name.
func (*Policy) Name() string { return Name }

// Plan gives a row's engines weights in proportion to Engine.Weight, or to
// capacity where all of them are 0. last is not used. Loads and terms are
// recorded at the weights, loads beyond the caps too; the objective counts
// network and engines; Bound and Gap are 0, for nothing is claimed. Shed is 0
// wherever an engine serves the model. The error is that of view.Validate.
func (*Policy) Plan(view *fleet.View, _ *fleet.Plan) (*fleet.Plan, error) {
	if err := view.Validate(); err != nil {
		return nil, fmt.Errorf("static: %w", err)
	}
	t := table.New(view)
	plan, index := t.Plan(Name)
	for i := range plan.Rows {
		weigh(t, plan.Rows[i].Arcs)
	}
	t.SetLoads(plan, index)
	t.SetTerms(plan, index)
	return plan, nil
}

func weigh(t *table.Table, arcs []fleet.Arc) {
	weight := func(e int32) float64 { return t.Engines[e].Weight }
	if sumOf(arcs, weight) == 0 {
		weight = func(e int32) float64 { return t.Cap[e] }
	}
	sum := sumOf(arcs, weight)
	for j := range arcs {
		arcs[j].Weight = weight(arcs[j].Engine) / sum
	}
}

func sumOf(arcs []fleet.Arc, weight func(int32) float64) float64 {
	sum := 0.0
	for _, a := range arcs {
		sum += weight(a.Engine)
	}
	return sum
}
