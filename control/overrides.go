package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/store"
)

// Kinds of overrides.
const (
	// OverrideDrain takes the engine that is its subject out of all plans.
	OverrideDrain = "drain"
	// OverrideCap lets the engine that is its subject have at most the part of its capacity
	// that is its value, above 0 and below 1; more only where requests would be refused else.
	OverrideCap = "cap"
	// OverrideFreeze keeps all weights as they are, but on engines that die.
	OverrideFreeze = "freeze"
	// OverrideRelease lets plans through that are held back. It ends by itself.
	OverrideRelease = "release"
	// OverridePolicy has the policy that is its value plan, whatever is configured.
	OverridePolicy = "policy"
)

// overrideKinds says of each kind whether it is about an engine and has a value.
var overrideKinds = map[string]struct{ engine, value bool }{
	OverrideDrain:   {engine: true},
	OverrideCap:     {engine: true, value: true},
	OverrideFreeze:  {},
	OverrideRelease: {},
	OverridePolicy:  {value: true},
}

// releaseFor is how long a release counts of which nobody says it: long enough for what is held
// to go out and be seen, and not a guard that is off.
const releaseFor = 10 * time.Minute

// overrides is what operators have pinned, as the store says. Safe for concurrent use.
type overrides struct {
	list atomic.Pointer[[]store.Override]
}

func (o *overrides) set(list []store.Override) { o.list.Store(&list) }

// at lists those that count at a time.
func (o *overrides) at(now time.Time) []store.Override {
	p := o.list.Load()
	if p == nil {
		return []store.Override{}
	}
	return slices.DeleteFunc(slices.Clone(*p), func(o store.Override) bool { return ended(o, now) })
}

func ended(o store.Override, now time.Time) bool { return !o.Until.IsZero() && now.After(o.Until) }

// Overrides lists what operators have pinned and what still counts.
func (c *Control) Overrides(now time.Time) []store.Override { return c.overrides.at(now) }

// ErrOverride is wrapped by errors that say what is wrong with an override.
var ErrOverride = errors.New("no such override")

// Override pins something; it counts from the next plan on and survives this process. The
// error wraps ErrOverride if it is the override that is wrong.
func (c *Control) Override(ctx context.Context, o store.Override) error {
	kind, ok := overrideKinds[o.Kind]
	found := slices.ContainsFunc(c.config.Load().Engines, func(e config.Engine) bool { return e.Name == o.Subject })
	switch {
	case !ok:
		return fmt.Errorf("%w: %q is none of drain, cap, freeze, release, policy", ErrOverride, o.Kind)
	case kind.engine && !found:
		return fmt.Errorf("%w: there is no engine %q", ErrOverride, o.Subject)
	case !kind.engine && o.Subject != "":
		return fmt.Errorf("%w: %s is about everything, not %q", ErrOverride, o.Kind, o.Subject)
	case !kind.value && o.Value != "":
		return fmt.Errorf("%w: %s has no value", ErrOverride, o.Kind)
	}
	if o.Kind == OverrideCap {
		if _, ok := partOf(o); !ok {
			return fmt.Errorf("%w: cap wants a part of the capacity above 0 and below 1, not %q", ErrOverride, o.Value)
		}
	}
	if o.Kind == OverridePolicy && !slices.Contains(config.Policies, o.Value) {
		return fmt.Errorf("%w: policy wants one of %s, not %q", ErrOverride, strings.Join(config.Policies, ", "), o.Value)
	}
	if o.Kind == OverrideRelease && o.Until.IsZero() {
		o.Until = o.Set.Add(releaseFor)
	}
	return c.store.Put(ctx, o)
}

// released tells whether an operator lets through what is held back: by saying so, or by
// having another policy plan from now on.
func (c *Control) released(switched bool, now time.Time) bool {
	return slices.ContainsFunc(c.overrides.at(now), func(o store.Override) bool {
		return o.Kind == OverrideRelease || o.Kind == OverridePolicy && switched
	})
}

// RemoveOverride forgets an override by its key; false when there is none.
func (c *Control) RemoveOverride(ctx context.Context, key string) (bool, error) {
	return c.store.Remove(ctx, key)
}

// forget has the store forget what has ended by itself; that it may fail costs nothing.
func (l *leader) forget(ctx context.Context, now time.Time) {
	list := l.overrides.list.Load()
	if list == nil {
		return
	}
	for _, o := range *list {
		if !ended(o, now) {
			continue
		}
		if _, err := l.store.Remove(ctx, o.Key()); err == nil {
			l.log.Info("override ended", "override", o.Key(), "until", o.Until)
		}
	}
}

// inForce is the configuration with what operators have drained, and the policy they want.
func (c *Control) inForce(now time.Time) *config.Config {
	out, drained := *c.config.Load(), map[string]bool{}
	for _, o := range c.overrides.at(now) {
		switch o.Kind {
		case OverridePolicy:
			out.Policy.Name = o.Value
		case OverrideDrain:
			drained[o.Subject] = true
		}
	}
	if len(drained) > 0 {
		out.Engines = slices.Clone(out.Engines)
	}
	for i := range out.Engines {
		if drained[out.Engines[i].Name] {
			out.Engines[i].Drain = true
		}
	}
	return &out
}

// pinned applies the caps to a view and tells whether all weights are frozen.
func (c *Control) pinned(view *fleet.View, now time.Time) (frozen bool) {
	for _, o := range c.overrides.at(now) {
		switch o.Kind {
		case OverrideFreeze:
			frozen = true
		case OverrideCap:
			part, ok := partOf(o)
			i := slices.IndexFunc(view.Engines, func(e fleet.Engine) bool { return e.Name == o.Subject })
			if ok && i >= 0 && (view.Engines[i].Ramp == 0 || part < view.Engines[i].Ramp) {
				view.Engines[i].Ramp = part
			}
		}
	}
	return frozen
}

// pins are the overrides that count at a time, by key and value.
func (c *Control) pins(now time.Time) map[string]string {
	out := map[string]string{}
	for _, o := range c.overrides.at(now) {
		out[o.Key()] = o.Value
	}
	return out
}

// partOf is the part of its capacity that a cap leaves an engine.
func partOf(o store.Override) (float64, bool) {
	part, err := strconv.ParseFloat(o.Value, 64)
	return part, err == nil && part > 0 && part < 1
}

// Admit takes a member in (store.Embedded.Admit). Only a control plane with an embedded store
// has members that join.
func (c *Control) Admit(ctx context.Context, joins store.Peer) ([]store.Peer, error) {
	s, ok := c.store.(*store.Embedded)
	if !ok {
		return nil, errors.New("this control plane's store is not embedded: its members need not join")
	}
	return s.Admit(ctx, joins)
}
