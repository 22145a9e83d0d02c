package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy"
	"github.com/wardrop-lb/wardrop/policy/optimal"
	"github.com/wardrop-lb/wardrop/suppose"
	"github.com/wardrop-lb/wardrop/tick"
)

// ErrNoPlan says that there is nothing yet to ask about.
var ErrNoPlan = errors.New("there is no plan yet")

// asks is how many questions that need solving are answered at a time: more would only make
// the next plan late.
const asks = 1

// about gives what is in force, when it is a question's turn; done ends that.
func (c *Control) about(ctx context.Context) (s *State, solve suppose.Solver, done func(), err error) {
	if s = c.State(); s == nil {
		return nil, nil, nil, ErrNoPlan
	}
	done, err = c.turn(ctx)
	return s, solver(c.inForce(time.Now()).Policy), done, err
}

func (c *Control) turn(ctx context.Context) (done func(), err error) {
	select {
	case c.asking <- struct{}{}:
		return func() { <-c.asking }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// solver makes plans as a policy would from nothing but a view and the last plan.
func solver(c config.Policy) suppose.Solver {
	return func(view *fleet.View, last *fleet.Plan) (*fleet.Plan, error) {
		return tick.Policy(c, optimal.Options{Run: parallel}).Plan(view, last)
	}
}

// WhatIf gives the plan that would follow if something were different now.
func (c *Control) WhatIf(ctx context.Context, changes suppose.Changes) (*suppose.Outcome, error) {
	s, solve, done, err := c.about(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return suppose.WhatIf(s.View, s.Plan, changes, solve)
}

// Thresholds tells what would have to be different for an engine to get traffic of a row.
func (c *Control) Thresholds(ctx context.Context, cluster, model, engine string) ([]suppose.Threshold, error) {
	s, solve, done, err := c.about(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return suppose.Thresholds(s.View, s.Plan, cluster, model, engine, solve)
}

// Advise tells where another engine would save time, which one idles, which distance hurts.
func (c *Control) Advise(ctx context.Context) (*suppose.Advice, error) {
	s, solve, done, err := c.about(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return suppose.Advise(s.View, s.Plan, solve)
}

// mostSteps bounds the plans between that one explanation goes through.
const mostSteps = 500

// WhyChange explains how one recorded plan became another. The error wraps history.ErrGone if
// neither this member nor another that answers has recorded one of them.
func (c *Control) WhyChange(ctx context.Context, from, to [2]uint64) (*suppose.Change, error) {
	done, err := c.turn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	c.catchUp(ctx, from)
	records, err := c.history.Span(from, to)
	if err != nil {
		return nil, err
	}
	if len(records) > mostSteps {
		return nil, fmt.Errorf("%d plans lie between: ask for %d at most", len(records), mostSteps)
	}
	return suppose.Explain(records, func(settings string, view *fleet.View, last *fleet.Plan) (*fleet.Plan, error) {
		if ctx.Err() != nil {
			return nil, ctx.Err() // who asked has gone
		}
		if settings == suppose.Frozen {
			return policy.Rescale(view, last), nil
		}
		var p config.Policy
		if err := json.Unmarshal([]byte(settings), &p); err != nil {
			return nil, fmt.Errorf("the policy's settings cannot be read: %w", err)
		}
		return solver(p)(view, last)
	})
}
