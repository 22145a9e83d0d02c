package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/guard"
	"github.com/wardrop-lb/wardrop/history"
	"github.com/wardrop-lb/wardrop/policy"
	"github.com/wardrop-lb/wardrop/policy/optimal"
	"github.com/wardrop-lb/wardrop/policy/proportional"
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

// Plans lists the plans that are recorded, the oldest first.
func (c *Control) Plans() []history.Entry { return c.history.Entries() }

// mostSteps bounds the plans between that one explanation goes through.
const mostSteps = 500

// WhyChange explains how one recorded plan became another. The error wraps history.ErrGone if
// one of them is not recorded.
func (c *Control) WhyChange(ctx context.Context, from, to [2]uint64) (*suppose.Change, error) {
	done, err := c.turn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
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

// record keeps the plan that has just gone out, where it is new, and what was held back of the
// policy's. It does not wait for the disk: where that is slower than plans change, some are not
// recorded.
func (l *leader) record(cfg *config.Config, pins map[string]string, view *fleet.View, plan, wanted *fleet.Plan, changed bool) {
	var held *suppose.Held
	rail := ""
	if l.hold != nil {
		rail = string(l.hold.Rail)
	}
	if !l.records.Wants(changed, rail) {
		return
	}
	if l.hold != nil {
		held = suppose.NewHeld(rail, l.hold.Reason, l.hold.Since, plan, wanted)
	}
	for _, r := range l.records.Tick(NewRecord(cfg.Policy, pins, view, plan, l.hold), changed, held) {
		select {
		case l.recorded <- r:
		default:
		}
	}
}

// NewRecord is what there is to remember of a plan in force: the policy's settings, the overrides
// by key and value, the view that it was made of, and what holds the policy's own plan back, nil
// where nothing does. None of them is to be changed afterwards.
func NewRecord(p config.Policy, pins map[string]string, view *fleet.View, plan *fleet.Plan, hold *guard.Hold) *suppose.Record {
	settings, _ := json.Marshal(p)   // of numbers and names: it cannot fail
	if p.Name != proportional.Name { // who alone looks at it
		calm := *view
		calm.Engines = slices.Clone(view.Engines)
		for i := range calm.Engines {
			calm.Engines[i].Busy = 0
		}
		view = &calm
	}
	r := &suppose.Record{
		Epoch: plan.Epoch, Version: plan.Version, Time: plan.Time, View: view, Plan: plan, Settings: string(settings), Overrides: pins,
	}
	if hold != nil {
		r.Hold = hold.Reason
	}
	return r
}

// keepHistory writes what is recorded until ctx is done.
func (c *Control) keepHistory(ctx context.Context) {
	said := false
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-c.recorded:
			err := c.history.Add(r)
			if err != nil && !said {
				c.log.Warn("plans are not recorded", "error", err)
			}
			said = err != nil
		}
	}
}
