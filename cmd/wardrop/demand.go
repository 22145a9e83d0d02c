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
		{"SOURCE", func(d control.Demand) string { return d.Source }},
		{"REQUESTS", measured(func(d control.Demand) string { return fmt.Sprint(d.Requests) })},
		{"DATA PLANES", measured(func(d control.Demand) string { return fmt.Sprint(d.DataPlanes) })},
		{"AGE", measured(func(d control.Demand) string { return age(d.Age) })},
	})
}
