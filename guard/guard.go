package guard

import (
	"time"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy"
	"github.com/wardrop-lb/wardrop/policy/certify"
)

// Name stands as the policy of a plan that is published in place of a held one.
const Name = "held"

// Rail is what may hold a plan back.
type Rail string

// The rails, in the order in which they are asked.
const (
	RollBack    Rail = "roll-back"   // failures rose after a plan; the last good one is back
	Fresh       Rail = "fresh"       // too little is known of what is going on
	Emptied     Rail = "emptied"     // a row would be left with nothing
	Certificate Rail = "certificate" // the plan is not as good as it says
	Movement    Rail = "movement"    // too much would move at once
)

// Rails lists the rails.
var Rails = []Rail{RollBack, Fresh, Emptied, Certificate, Movement}

// Limits are what an operator may set, as fractions of 0 to 1.
type Limits struct {
	Movement float64 // the most of all traffic that may move at once; 1 is no limit
	Fresh    float64 // the least part of clusters, and of engines, that must be heard of; 0 is no limit
}

// DefaultLimits are half and half.
func DefaultLimits() Limits { return Limits{Movement: 0.5, Fresh: 0.5} }

// Heard is of how many of those that are usually heard of there is something fresh.
type Heard struct{ Fresh, Known int }

// Tried is attempts at an engine and how many of them failed.
type Tried struct{ Attempts, Failed float64 }

// Inputs is what a tick knows beside its view and plans.
type Inputs struct {
	Limits Limits
	// Problem is what the plan claims a certificate of; nil when it claims none.
	Problem *policy.Problem
	// Trouble says that the policy gave no plan, and that next is a fallback already.
	Trouble bool
	// Released lets the plan through, whatever holds it.
	Released bool
	// Clusters are those with a live report, of those that have reported; Engines those
	// with a fresh reading, of those that live and have been read.
	Clusters, Engines Heard
	// Tried is what data planes have tried since the last tick, by engine.
	Tried map[string]Tried
}

// Hold says why the policy's plan does not go out.
type Hold struct {
	Rail   Rail      `json:"rail"`
	Reason string    `json:"reason"` // for operators, with the figures
	Since  time.Time `json:"since"`
	Ticks  int       `json:"ticks"` // held by this rail so far, this one included
	// Figure is what was measured and Limit what it is held against, as fractions.
	Figure float64 `json:"figure"`
	Limit  float64 `json:"limit"`
	// Until is when a roll-back ends by itself; other holds end with their cause.
	Until time.Time `json:"until,omitzero"`
}

// Verdict is what may be published.
type Verdict struct {
	// Plan is the policy's, or the last one on the engines that live.
	Plan *fleet.Plan
	// Hold is nil when it is the policy's.
	Hold *Hold
	// RolledBack says that a roll-back began with this tick.
	RolledBack bool
}

// Guard is what is remembered from tick to tick. The zero value is ready. Not safe for
// concurrent use.
type Guard struct {
	moves   movement
	watch   watch
	checker certify.Checker
	hold    Hold // of the last tick; its Ticks are 0 when there was none
}

// Check says what may be published of a valid view's new plan. last is the plan in force, nil
// at the start; next the policy's. Neither is kept nor changed. now does not go back.
//
// A plan is held by movement, or for want of signals, only against one that a policy has
// made: after none, or a fallback, anything is better than what is there.
func (g *Guard) Check(view *fleet.View, last, next *fleet.Plan, in Inputs, now time.Time) Verdict {
	g.watch.observe(in.Tried, now)
	if last != nil {
		g.moves.compare(last, next)
	}
	rolledBack := !in.Released && g.watch.failing(next, now)
	switch {
	case in.Released:
		g.watch.release()
	case g.watch.back.in(now):
		hold := g.watch.back.hold()
		return Verdict{Plan: held(view, g.watch.back.plan), Hold: g.held(hold, now), RolledBack: rolledBack}
	case !in.Trouble:
		if hold, base := g.judge(view, last, next, &in); hold != nil {
			if base == nil {
				base = held(view, last)
			}
			return Verdict{Plan: base, Hold: g.held(hold, now)}
		}
	}
	g.hold = Hold{}
	if last != nil && !in.Trouble && !policy.IsFallback(last) {
		g.watch.published(&g.moves, last, next, now)
	}
	return Verdict{Plan: next}
}

// judge asks the rails; base is the plan to publish instead where it is known already.
func (g *Guard) judge(view *fleet.View, last, next *fleet.Plan, in *Inputs) (hold *Hold, base *fleet.Plan) {
	proven := last != nil && !policy.IsFallback(last)
	if proven {
		if hold := fresh(in); hold != nil {
			return hold, nil
		}
	}
	if last != nil {
		if hold := g.moves.emptiedHold(view, last); hold != nil {
			return hold, nil
		}
	}
	if in.Problem != nil {
		if _, err := g.checker.Check(view, last, next, *in.Problem); err != nil {
			return &Hold{Rail: Certificate, Reason: "the plan is not what it says: " + err.Error(), Figure: next.Gap, Limit: in.Problem.MaxGap}, nil
		}
	}
	if proven {
		return g.moves.hold(view, last, next, in.Limits.Movement)
	}
	return nil, nil
}

// held is the last plan on the engines that live.
func held(view *fleet.View, last *fleet.Plan) *fleet.Plan {
	plan := policy.Rescale(view, last)
	plan.Policy = Name
	return plan
}

// held counts for how long the same rail has held.
func (g *Guard) held(h *Hold, now time.Time) *Hold {
	h.Since, h.Ticks = now, 1
	if g.hold.Ticks > 0 && g.hold.Rail == h.Rail {
		h.Since, h.Ticks = g.hold.Since, g.hold.Ticks+1
	}
	g.hold = *h
	return h
}
