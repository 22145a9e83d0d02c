package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/wardrop-lb/wardrop/admin"
	"github.com/wardrop-lb/wardrop/control"
)

type statusCmd struct {
	askFlags
}

// lateAfter is how old the plan, or a data plane's report, may be before that is trouble.
const lateAfter = 30 * time.Second

// errTrouble ends the command with an exit code for scripts; what it is has been said.
var errTrouble = errors.New("not all is well")

// Run shows how the control plane and its data planes are.
func (c *statusCmd) Run(env *environment) error {
	var last *admin.Status
	err := show(&c.askFlags, env, func(ctx context.Context, a admin.Client) (*admin.Status, error) {
		s, err := a.Status(ctx)
		last = s
		return s, err
	}, func(w io.Writer, s *admin.Status) error { return writeStatus(w, s, time.Now()) })
	if err == nil && !c.Watch && troubled(last, time.Now()) {
		return errTrouble
	}
	return err
}

// troubled tells whether an operator should look.
func troubled(s *admin.Status, now time.Time) bool {
	if s.Epoch == 0 || s.Trouble != "" || now.Sub(s.Published) > lateAfter {
		return true
	}
	for _, p := range s.DataPlanes {
		if p.Refused != "" || p.Epoch < s.Epoch {
			return true
		}
	}
	return false
}

func writeStatus(w io.Writer, s *admin.Status, now time.Time) error {
	if s.Epoch == 0 {
		fmt.Fprintln(w, "There is no plan yet.")
	} else {
		fmt.Fprintf(w, "plan %d.%d (epoch.version), policy %s, published %s ago, tick %.3g ms", s.Epoch, s.Version, s.Policy, age(now.Sub(s.Published).Seconds()), 1e3*s.TickTook)
		if s.Policy == "optimal" {
			fmt.Fprintf(w, ", gap %.1e", s.Gap)
		}
		fmt.Fprintln(w)
	}
	if s.Trouble != "" {
		fmt.Fprintf(w, "a fallback is in force: %s\n", s.Trouble)
	}
	if len(s.DataPlanes) == 0 {
		_, err := fmt.Fprintln(w, "No data plane reports.")
		return err
	}
	return writeTable(w, s.DataPlanes, []column[control.DataPlane]{
		{"CLUSTER", func(p control.DataPlane) string { return p.Cluster }},
		{"DATA PLANE", func(p control.DataPlane) string { return p.Instance }},
		{"ROUTES BY", func(p control.DataPlane) string {
			if p.Epoch == 0 {
				return ""
			}
			return fmt.Sprintf("%d.%d", p.Epoch, p.Version)
		}},
		{"BEHIND", func(p control.DataPlane) string { return behind(p, s) }},
		{"REPORTED", func(p control.DataPlane) string { return age(p.Age) + " ago" }},
		{"REFUSED", func(p control.DataPlane) string { return p.Refused }},
	})
}

// behind says by how much a data plane's plan is not the newest.
func behind(p control.DataPlane, s *admin.Status) string {
	switch {
	case p.Epoch == 0:
		return "no plan"
	case p.Epoch < s.Epoch:
		return "an epoch"
	case p.Version < s.Version:
		return fmt.Sprintf("%d versions", s.Version-p.Version)
	}
	return ""
}
