package main

import (
	"context"
	"fmt"
	"io"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/wardrop-lb/wardrop/admin"
	"github.com/wardrop-lb/wardrop/control"
	"github.com/wardrop-lb/wardrop/store"
)

type overrideCmd struct {
	List    listOverridesCmd   `cmd:"" default:"withargs" help:"Show what is pinned."`
	Drain   overrideDrainCmd   `cmd:"" help:"Take an engine out of all plans; it finishes what it has."`
	Cap     overrideCapCmd     `cmd:"" help:"Let an engine have at most a part of its capacity; more only where requests would be refused else."`
	Freeze  overrideFreezeCmd  `cmd:"" help:"Keep all weights as they are, but on engines that die."`
	Release overrideReleaseCmd `cmd:"" help:"Let through what the guard holds back, for ten minutes if --for says nothing else."`
	Policy  overridePolicyCmd  `cmd:"" help:"Have another policy plan than the configured one."`
	Remove  removeOverrideCmd  `cmd:"" help:"End an override by the name that the list shows: drain/ENGINE, cap/ENGINE, freeze, release, policy."`
}

// overrideFlags are those of whoever pins something.
type overrideFlags struct {
	changeFlags
	For time.Duration `help:"End it by itself after this time." placeholder:"DURATION"`
	Why string        `help:"Say why, for whoever reads the list at night." placeholder:"TEXT"`
}

// pin keeps an override.
func (f *overrideFlags) pin(env *environment, o store.Override) error {
	a, err := f.client(env.ctx)
	if err != nil {
		return err
	}
	o.Reason = f.Why
	if u, err := user.Current(); err == nil {
		o.By = u.Username
	}
	if f.For > 0 {
		o.Until = time.Now().Add(f.For).Round(0)
	}
	return a.Override(env.ctx, o)
}

type listOverridesCmd struct {
	askFlags
}

// Run lists the overrides.
func (c *listOverridesCmd) Run(env *environment) error {
	return show(&c.askFlags, env, func(ctx context.Context, a admin.Client) (*admin.Overrides, error) {
		return a.Overrides(ctx)
	}, func(w io.Writer, o *admin.Overrides) error { return writeOverrides(w, o.Overrides, time.Now()) })
}

func writeOverrides(w io.Writer, list []store.Override, now time.Time) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "Nothing is overridden.")
		return err
	}
	return writeTable(w, list, []column[store.Override]{
		{"OVERRIDE", store.Override.Key},
		{"VALUE", func(o store.Override) string { return o.Value }},
		{"SINCE", func(o store.Override) string { return age(now.Sub(o.Set).Seconds()) + " ago" }},
		{"ENDS", func(o store.Override) string {
			if o.Until.IsZero() {
				return ""
			}
			return "in " + age(o.Until.Sub(now).Seconds())
		}},
		{"BY", func(o store.Override) string { return o.By }},
		{"WHY", func(o store.Override) string { return o.Reason }},
	})
}

type overrideDrainCmd struct {
	overrideFlags
	Engine string `arg:"" help:"Name of the engine."`
}

// Run drains an engine.
func (c *overrideDrainCmd) Run(env *environment) error {
	if err := c.pin(env, store.Override{Kind: control.OverrideDrain, Subject: c.Engine}); err != nil {
		return err
	}
	_, err := fmt.Fprintf(env.stdout, "%s gets nothing new from the next plan on, and finishes what it has. `wardrop engines` shows how much that is.\n", c.Engine)
	return err
}

type overrideCapCmd struct {
	overrideFlags
	Engine string `arg:"" help:"Name of the engine."`
	Part   string `arg:"" help:"Part of its capacity, like 0.2 or 20%."`
}

// Run caps an engine.
func (c *overrideCapCmd) Run(env *environment) error {
	part := c.Part
	if percent, ok := strings.CutSuffix(c.Part, "%"); ok {
		v, err := strconv.ParseFloat(percent, 64)
		if err != nil {
			return usageError{fmt.Errorf("%q is no part of a capacity: write it like 0.2 or 20%%", c.Part)}
		}
		part = strconv.FormatFloat(v/100, 'g', -1, 64)
	}
	if err := c.pin(env, store.Override{Kind: control.OverrideCap, Subject: c.Engine, Value: part}); err != nil {
		return err
	}
	_, err := fmt.Fprintf(env.stdout, "%s gets at most %s of its capacity from the next plan on.\n", c.Engine, c.Part)
	return err
}

type overrideFreezeCmd struct {
	overrideFlags
}

// Run freezes the weights.
func (c *overrideFreezeCmd) Run(env *environment) error {
	if err := c.pin(env, store.Override{Kind: control.OverrideFreeze}); err != nil {
		return err
	}
	_, err := fmt.Fprintln(env.stdout, "All weights stay as they are, but on engines that die. `wardrop override remove freeze` ends it.")
	return err
}

type overrideReleaseCmd struct {
	overrideFlags
}

// Run lets through what is held back.
func (c *overrideReleaseCmd) Run(env *environment) error {
	if err := c.pin(env, store.Override{Kind: control.OverrideRelease}); err != nil {
		return err
	}
	_, err := fmt.Fprintln(env.stdout, "What is held back goes out with the next plan. `wardrop override` shows until when.")
	return err
}

type overridePolicyCmd struct {
	overrideFlags
	Policy string `arg:"" help:"optimal, static or proportional."`
}

// Run pins a policy.
func (c *overridePolicyCmd) Run(env *environment) error {
	if err := c.pin(env, store.Override{Kind: control.OverridePolicy, Value: c.Policy}); err != nil {
		return err
	}
	_, err := fmt.Fprintf(env.stdout, "%s plans from the next tick on. `wardrop override remove policy` ends it.\n", c.Policy)
	return err
}

type removeOverrideCmd struct {
	changeFlags
	Override string `arg:"" help:"Its name."`
}

// Run ends an override.
func (c *removeOverrideCmd) Run(env *environment) error {
	a, err := c.client(env.ctx)
	if err != nil {
		return err
	}
	if err := a.RemoveOverride(env.ctx, c.Override); err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.stdout, "%s has ended.\n", c.Override)
	return err
}

// drainCmd is the override that operators need most, by its own name.
type drainCmd struct {
	overrideFlags
	Engine string `arg:"" help:"Name of the engine."`
	Undo   bool   `help:"Let the engine serve again."`
}

// Run drains an engine, or lets it serve again.
func (c *drainCmd) Run(env *environment) error {
	if !c.Undo {
		return (&overrideDrainCmd{c.overrideFlags, c.Engine}).Run(env)
	}
	key := store.Override{Kind: control.OverrideDrain, Subject: c.Engine}.Key()
	if err := (&removeOverrideCmd{c.changeFlags, key}).Run(&environment{ctx: env.ctx, stdout: io.Discard, stderr: env.stderr, log: env.log}); err != nil {
		return err
	}
	_, err := fmt.Fprintf(env.stdout, "%s serves again from the next plan on.\n", c.Engine)
	return err
}
