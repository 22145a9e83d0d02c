package optimal

import (
	"errors"
	"fmt"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy"
	"github.com/wardrop-lb/wardrop/policy/certify"
	"github.com/wardrop-lb/wardrop/policy/internal/table"
)

// Name is what configuration, metrics and plans call the policy.
const Name = "optimal"

// Options are the policy's settings. The zero value means the defaults.
type Options struct {
	// Problem holds prices and tolerances; nil means policy.DefaultProblem.
	Problem *policy.Problem
	// Run calls job(0), ..., job(n-1), in any order or at once, and returns when
	// all are done; nil means one after the other. The package starts no
	// goroutine of its own: who wants the components solved in parallel says how
	// here. The plan does not depend on it.
	Run func(n int, job func(i int))
}

// Policy is the optimizer. One value must not be used by two goroutines at once.
type Policy struct {
	problem policy.Problem
	run     func(n int, job func(i int))
}

// New makes the policy. Settings out of range are reported by Plan.
func New(o Options) *Policy {
	p := &Policy{problem: policy.DefaultProblem(), run: o.Run}
	if o.Problem != nil {
		p.problem = *o.Problem
	}
	if p.run == nil {
		p.run = func(n int, job func(i int)) {
			for i := range n {
				job(i)
			}
		}
	}
	return p
}

// Name is Name.
func (*Policy) Name() string { return Name }

// Problem is what the policy solves; policy/certify judges its plans by it.
func (p *Policy) Problem() policy.Problem { return p.problem }

// Plan solves the view. The plan's rows, arcs and terms are those that
// fleet.Plan describes; latency, congestion and cap prices are the solver's, at
// the loads before snapping, so that the totals of a row's used arcs agree.
//
// Where the last weights of a whole component still fit and cost no more than
// most of MaxGap above the optimum, they stay to the bit: unchanged input moves
// nothing, and neither does demand that moves by a per cent where the churn price
// suits the engines' latencies.
//
// A row without demand keeps its last weights on the engines that live, or goes
// where a request would cost least, in proportion to spare capacity. A model
// that no engine serves is shed entirely. An engine that left the view since the
// last plan gives up its traffic at once; what the other engines had is theirs
// at the old weights, and staying put is worth the churn price there alone.
//
// It is an error when the view or the settings are not valid, when the solver
// fails, or when the certificate does not confirm the plan: last should then
// stay in force (see policy.Rescale).
func (p *Policy) Plan(view *fleet.View, last *fleet.Plan) (*fleet.Plan, error) {
	if err := errors.Join(view.Validate(), p.problem.Validate()); err != nil {
		return nil, fmt.Errorf("optimal: %w", err)
	}
	t := table.New(view)
	r := newResult(t, &p.problem, t.Last(last))
	if err := p.solve(r); err != nil {
		return nil, fmt.Errorf("optimal: %w", err)
	}
	// The neatest weights that the certificate accepts.
	var failed error
	for _, level := range []neatness{neat, priced, raw} {
		plan := r.plan(level)
		cert, err := certify.Measure(view, last, plan, p.problem)
		limit := p.problem.MaxGap
		if level != raw && !r.stayed {
			// Leave the next plan some room to keep these weights.
			limit *= 0.5
		}
		if err == nil && cert.Gap > limit {
			err = fmt.Errorf("gap %.3g exceeds %.3g", cert.Gap, limit)
		}
		if err == nil {
			plan.Objective, plan.Bound, plan.Gap = cert.Objective, cert.Bound, cert.Gap
			return plan, nil
		}
		failed = err
	}
	return nil, fmt.Errorf("optimal: %w", failed)
}

// solve answers every component with demand, and collects the answers in order.
func (p *Policy) solve(r *result) error {
	all := components(r.t, &p.problem)
	done := make([]*interior, len(all))
	stays := make([]*stayer, len(all))
	errs := make([]error, len(all))
	p.run(len(all), func(i int) {
		done[i], stays[i], errs[i] = p.solveComponent(r, &all[i])
	})
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i, s := range done {
		if s != nil {
			r.take(s)
		}
		if stays[i] != nil {
			stays[i].take()
			r.stayed = true
		}
	}
	return nil
}

// solveComponent reads r and changes nothing in it. Where the last weights are
// still good it returns them, with the solution that showed it if one was
// needed; else the solution.
func (p *Policy) solveComponent(r *result, c *component) (*interior, *stayer, error) {
	if r.last == nil || p.problem.Lambda == 0 {
		s, err := solveNetwork(r, nil, c)
		return s, nil, err
	}
	stay := newStayer(r, c)
	if stay != nil {
		if stay.goodByOwnPrices() {
			return nil, stay, nil
		}
		// Without churn the network is smaller and bounds the cost from below.
		s, err := solveNetwork(r, nil, c)
		if err == nil && s != nil && stay.goodBySolution(s) {
			return s, stay, nil
		}
	}
	s, err := solveNetwork(r, r.last, c)
	if err == nil && s != nil && stay != nil && stay.goodBySolution(s) {
		return s, stay, nil
	}
	return s, nil, err
}

func solveNetwork(r *result, last *table.Last, c *component) (*interior, error) {
	n := build(r.t, r.p, last, c)
	if n == nil {
		return nil, nil
	}
	s := newInterior(n)
	return s, s.run()
}
