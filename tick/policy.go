package tick

import (
	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy"
	"github.com/wardrop-lb/wardrop/policy/optimal"
	"github.com/wardrop-lb/wardrop/policy/proportional"
	"github.com/wardrop-lb/wardrop/policy/static"
)

// Policy makes the configured policy; o is how the optimizer runs.
func Policy(c config.Policy, o optimal.Options) policy.Policy {
	switch c.Name {
	case static.Name:
		return static.New()
	case proportional.Name:
		return proportional.New(proportional.Options{Gain: c.Gain, Smoothing: c.Smoothing, Delay: c.Delay})
	}
	if o.Problem == nil {
		problem := Problem(c)
		o.Problem = &problem
	}
	return optimal.New(o)
}

// Problem is what a configuration's optimal policy minimises.
func Problem(c config.Policy) policy.Problem {
	p := policy.DefaultProblem()
	p.Lambda = c.Churn.Seconds()
	p.Refuse[fleet.Critical] = c.Shed.Critical.Seconds()
	p.Refuse[fleet.Standard] = c.Shed.Standard.Seconds()
	p.Refuse[fleet.Batch] = c.Shed.Batch.Seconds()
	return p
}
