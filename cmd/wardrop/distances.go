package main

import (
	"context"
	"fmt"
	"io"

	"github.com/wardrop-lb/wardrop/admin"
	"github.com/wardrop-lb/wardrop/control"
)

type distancesCmd struct {
	askFlags
}

// Run shows the distances.
func (c *distancesCmd) Run(env *environment) error {
	return show(&c.askFlags, env, func(ctx context.Context, a admin.Client) (*admin.Distances, error) { return a.Distances(ctx) }, writeDistances)
}

func writeDistances(w io.Writer, a *admin.Distances) error {
	if len(a.Distances) == 0 {
		_, err := fmt.Fprintln(w, "There are no distances.")
		return err
	}
	return writeTable(w, a.Distances, []column[control.Distance]{
		{"CLUSTER", func(d control.Distance) string { return d.Cluster }},
		{"REGION", func(d control.Distance) string { return d.Region }},
		{"ENGINE", func(d control.Distance) string { return d.Engine }},
		{"DISTANCE", func(d control.Distance) string { return milliseconds(d.Seconds) }},
		{"SOURCE", func(d control.Distance) string { return d.Source }},
		{"CONFIGURED", func(d control.Distance) string {
			if d.Source != control.SourceMeasured {
				return ""
			}
			return milliseconds(d.Configured)
		}},
		{"AGE", func(d control.Distance) string {
			if d.Age == nil {
				return ""
			}
			return age(*d.Age)
		}},
	})
}

func milliseconds(s float64) string { return fmt.Sprintf("%.3gms", 1e3*s) }
