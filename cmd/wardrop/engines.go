package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/wardrop-lb/wardrop/admin"
	"github.com/wardrop-lb/wardrop/control"
)

type enginesCmd struct {
	askFlags
}

// Run shows the engines.
func (c *enginesCmd) Run(env *environment) error {
	return show(&c.askFlags, env, func(ctx context.Context, a admin.Client) (*admin.Engines, error) { return a.Engines(ctx) }, writeEngines)
}

func writeEngines(w io.Writer, a *admin.Engines) error {
	if len(a.Engines) == 0 {
		_, err := fmt.Fprintln(w, "There are no engines.")
		return err
	}
	reading := func(cell func(*control.EngineReading) string) func(control.Engine) string {
		return func(e control.Engine) string {
			if e.Reading == nil {
				return ""
			}
			return cell(e.Reading)
		}
	}
	return writeTable(w, a.Engines, []column[control.Engine]{
		{"ENGINE", func(e control.Engine) string { return e.Name }},
		{"REGION", func(e control.Engine) string { return e.Region }},
		{"KIND", func(e control.Engine) string { return e.Kind }},
		{"STATE", engineState},
		{"RUNNING", reading(func(r *control.EngineReading) string { return number(r.Running, "%.0f") })},
		{"WAITING", reading(func(r *control.EngineReading) string { return number(r.Waiting, "%.0f") })},
		{"KV", reading(func(r *control.EngineReading) string {
			if r.KVUsage == nil {
				return ""
			}
			return fmt.Sprintf("%.0f%%", 100*(*r.KVUsage))
		})},
		{"LOAD", func(e control.Engine) string { return positive(e.Load, "%.4g") }},
		{"CAPACITY", func(e control.Engine) string { return positive(e.Capacity, "%.4g") }},
		{"PROFILE", engineProfile},
		{"PENALTY", func(e control.Engine) string { return positive(e.Penalty, "%.3gs") }},
		{"AGE", reading(func(r *control.EngineReading) string {
			if r.Age == nil {
				return ""
			}
			return age(*r.Age)
		})},
		{"READ BY", reading(func(r *control.EngineReading) string { return r.Cluster })},
		{"TROUBLE", reading(func(r *control.EngineReading) string { return strings.Join(strings.Fields(r.Error), " ") })},
	})
}

// engineProfile says what an engine is taken for: the time of a request alone, and how well
// that is known.
func engineProfile(e control.Engine) string {
	switch p := e.Profile; p.Source {
	case control.SourceConfigured:
		return fmt.Sprintf("%.3gs", p.T0)
	case control.SourceLearned:
		if p.Doubt >= 1 { // of others of its kind
			return fmt.Sprintf("~%.3gs", p.T0)
		}
		return fmt.Sprintf("%.3gs ±%.0f%%", p.T0, 100*p.Doubt)
	case control.SourceGuessed:
		return "learning"
	}
	return ""
}

// engineState says in which state an engine is, and what limits it.
func engineState(e control.Engine) string {
	out := e.State
	if e.Reason != "" {
		out += fmt.Sprintf(" (%s; for %.0fs)", e.Reason, e.Left)
	}
	if e.Slowdown > 1 {
		out += fmt.Sprintf(", slow x%.1f", e.Slowdown)
	}
	if e.Ramp > 0 && e.Ramp < 1 {
		out += fmt.Sprintf(", ramping %.0f%%", 100*e.Ramp)
	}
	return out
}
