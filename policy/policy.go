package policy

import "github.com/wardrop-lb/wardrop/fleet"

// Policy turns a view and the last plan into a plan. An implementation may keep
// buffers between calls, so one value must not be used by two goroutines at
// once; the result depends on the arguments alone, unless an implementation is
// told to trade that for speed.
type Policy interface {
	// Name is what configuration, metrics and plans call the policy.
	Name() string
	// Plan makes the plan for a view. last is the plan in force, nil at the
	// start. An error leaves the last plan in force; it names what is wrong.
	Plan(view *fleet.View, last *fleet.Plan) (*fleet.Plan, error)
}
