package main

import (
	"context"
	"fmt"
	"io"

	"github.com/wardrop-lb/wardrop/admin"
	"github.com/wardrop-lb/wardrop/control"
)

type demandCmd struct {
	askFlags
}

// Run shows the demand.
func (c *demandCmd) Run(env *environment) error {
	return show(&c.askFlags, env, func(ctx context.Context, a admin.Client) (*admin.Demand, error) { return a.Demand(ctx) }, writeDemand)
}

func writeDemand(w io.Writer, a *admin.Demand) error {
	if len(a.Demand) == 0 {
		_, err := fmt.Fprintln(w, "There is no demand.")
		return err
	}
	measured := func(cell func(control.Demand) string) func(control.Demand) string {
		return func(d control.Demand) string {
			if d.DataPlanes == 0 {
				return ""
			}
			return cell(d)
		}
	}
	return writeTable(w, a.Demand, []column[control.Demand]{
		{"CLUSTER", func(d control.Demand) string { return d.Cluster }},
		{"MODEL", func(d control.Demand) string { return d.Model }},
		{"PRIORITY", func(d control.Demand) string { return d.Priority.String() }},
		{"REQ/S", func(d control.Demand) string { return fmt.Sprintf("%.4g", d.Rate) }},
		{"FORECAST", func(d control.Demand) string { return positive(100*d.Missed, "±%.0f%%") }},
		{"BURSTY", func(d control.Demand) string { return positive(d.Dispersion, "%.1f") }},
		{"SOURCE", func(d control.Demand) string { return d.Source }},
		{"REQUESTS", measured(func(d control.Demand) string { return fmt.Sprint(d.Requests) })},
		{"RETRIES", func(d control.Demand) string { return positive(float64(d.Retries), "%.0f") }},
		{"CANCELLED", func(d control.Demand) string { return positive(float64(d.Cancelled), "%.0f") }},
		{"PROMPT", perRequest(func(d control.Demand) uint64 { return d.PromptTokens })},
		{"CACHED", func(d control.Demand) string {
			return positive(100*float64(d.CachedTokens)/max(float64(d.PromptTokens), 1), "%.0f%%")
		}},
		{"OUTPUT", perRequest(func(d control.Demand) uint64 { return d.OutputTokens })},
		{"DATA PLANES", measured(func(d control.Demand) string { return fmt.Sprint(d.DataPlanes) })},
		{"AGE", measured(func(d control.Demand) string { return age(d.Age) })},
	})
}

// perRequest writes a mean of tokens; "~" where most of it is by sizes alone.
func perRequest(tokens func(control.Demand) uint64) func(control.Demand) string {
	return func(d control.Demand) string {
		if d.Samples == 0 {
			return ""
		}
		about := ""
		if 2*d.Estimated > d.Samples {
			about = "~"
		}
		return fmt.Sprintf("%s%.0f", about, float64(tokens(d))/float64(d.Samples))
	}
}
