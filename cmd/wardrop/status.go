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

// overview is the control plane as the member that leads sees it, and the members.
type overview struct {
	*admin.Status
	Members []memberStatus `json:"members"`
}

// Run shows how the control plane and its data planes are.
func (c *statusCmd) Run(env *environment) error {
	var last *overview
	err := showAnswer(&c.askFlags, env, func(ctx context.Context) (*overview, error) {
		o, err := c.look(ctx)
		last = o
		return o, err
	}, func(w io.Writer, o *overview) error { return writeStatus(w, o, time.Now()) })
	if err == nil && !c.Watch && troubled(last, time.Now()) {
		return errTrouble
	}
	return err
}

func (c *statusCmd) look(ctx context.Context) (*overview, error) {
	members, err := c.members()
	if err != nil {
		return nil, err
	}
	o := &overview{Members: askMembers(ctx, members)}
	i := leading(o.Members)
	if i < 0 {
		return nil, errors.New(o.Members[0].Error)
	}
	o.Status = o.Members[i].Status
	return o, nil
}

// troubled tells whether an operator should look.
func troubled(o *overview, now time.Time) bool {
	if !o.Leading || o.Epoch == 0 || o.Trouble != "" || o.Hold != nil || now.Sub(o.Published) > lateAfter {
		return true
	}
	for _, m := range o.Members {
		if m.Status == nil {
			return true
		}
	}
	for _, p := range o.DataPlanes {
		if p.Refused != "" || p.Epoch < o.Epoch {
			return true
		}
	}
	for _, f := range o.Followers {
		if f.Refused != "" {
			return true
		}
	}
	return false
}

func writeStatus(w io.Writer, o *overview, now time.Time) error {
	s := o.Status
	switch {
	case s.Leading && s.Epoch == 0 || !s.Leading && s.Leader == "" && len(o.Members) == 1:
		fmt.Fprintln(w, "There is no plan yet.")
	case !s.Leading && s.Leader == "":
		fmt.Fprintln(w, "No member leads: no plan is made until a majority of them runs. Data planes go on by the last one.")
	case !s.Leading:
		fmt.Fprintf(w, "%s leads, as far as the others know, and does not answer.\n", s.Leader)
	default:
		fmt.Fprintf(w, "plan %d.%d (epoch.version), policy %s, published %s ago, tick %.3g ms", s.Epoch, s.Version, s.Policy, age(now.Sub(s.Published).Seconds()), 1e3*s.TickTook)
		if s.Policy == "optimal" {
			fmt.Fprintf(w, ", gap %.1e", s.Gap)
		}
		fmt.Fprintln(w)
	}
	if s.Trouble != "" {
		fmt.Fprintf(w, "a fallback is in force: %s\n", s.Trouble)
	}
	if s.Hold != nil {
		fmt.Fprintf(w, "the policy's plan is held back, for %s: %s\n", age(now.Sub(s.Hold.Since).Seconds()), s.Hold.Reason)
		fmt.Fprintln(w, "`wardrop override release` lets it through.")
	}
	if err := writeMembers(w, o.Members); err != nil {
		return err
	}
	if len(s.Overrides) > 0 {
		if err := writeOverrides(w, s.Overrides, now); err != nil {
			return err
		}
	}
	if err := writeFollowers(w, s.Followers); err != nil {
		return err
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

// writeMembers shows the members where there are several.
func writeMembers(w io.Writer, members []memberStatus) error {
	if len(members) == 1 {
		return nil
	}
	return writeTable(w, members, []column[memberStatus]{
		{"MEMBER", func(m memberStatus) string { return m.Name }},
		{"ADMIN", func(m memberStatus) string { return m.Admin }},
		{"DOES", func(m memberStatus) string {
			switch {
			case m.Status == nil:
				return "not answer"
			case m.Leads:
				return fmt.Sprintf("lead, epoch %d", m.Epoch)
			case m.Status.Leader == "":
				return "wait for a majority"
			}
			return "stand by"
		}},
		{"REPORTS", func(m memberStatus) string {
			if m.Status == nil {
				return ""
			}
			return fmt.Sprint(len(m.Status.DataPlanes))
		}},
		{"REASON", func(m memberStatus) string { return m.Error }},
	})
}

// writeFollowers shows who is connected and reports nothing, if anybody.
func writeFollowers(w io.Writer, list []control.Follower) error {
	if len(list) == 0 {
		return nil
	}
	return writeTable(w, list, []column[control.Follower]{
		{"FOLLOWER", func(f control.Follower) string { return f.Instance }},
		{"KIND", func(f control.Follower) string { return f.Kind }},
		{"CLUSTER", func(f control.Follower) string { return f.Cluster }},
		{"HAS", func(f control.Follower) string {
			if f.Epoch == 0 {
				return ""
			}
			return fmt.Sprintf("%d.%d", f.Epoch, f.Version)
		}},
		{"CONNECTED", func(f control.Follower) string { return age(f.Connected) }},
		{"REFUSED", func(f control.Follower) string { return f.Refused }},
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
