package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/control"
	"github.com/wardrop-lb/wardrop/explain"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/history"
	"github.com/wardrop-lb/wardrop/policy/optimal"
	"github.com/wardrop-lb/wardrop/sim"
	"github.com/wardrop-lb/wardrop/store"
	"github.com/wardrop-lb/wardrop/suppose"
	"github.com/wardrop-lb/wardrop/tick"
)

// moment is a scenario at an instant: what the control plane then knows, and what it recorded.
type moment struct {
	t        *testing.T
	scenario *sim.Scenario
	sim.Planned
	ticks   []sim.Planned
	result  *sim.Result
	trips   []sim.Trip // of the last minute, those that have ended; only if they are asked about
	command string     // that is asked by
}

// play runs a scenario of scenarios/ up to an instant, as production would. Change is made before,
// and trips says that single requests are asked about.
func play(t *testing.T, name string, until time.Duration, change func(*sim.Scenario), trips bool) *moment {
	t.Helper()
	s, err := loadScenario(filepath.Join("..", "..", "scenarios", name+".yaml"))
	require.NoError(t, err)
	if change != nil {
		change(s)
	}
	s.Shorten(until)
	m := &moment{t: t, scenario: s}
	o := sim.Options{Seed: 1, Planned: func(p sim.Planned) {
		m.Planned = p
		m.ticks = append(m.ticks, p)
	}}
	if trips {
		o.Routed = func(x sim.Trip) {
			if x.Arrived > until-time.Minute {
				m.trips = append(m.trips, x)
			}
		}
	}
	m.result, err = sim.Run(context.Background(), s, "optimal", sim.Policies()["optimal"], o)
	require.NoError(t, err)
	return m
}

// recorded is a control plane that has recorded what there was to record.
func (m *moment) recorded() *control.Control {
	m.t.Helper()
	kept, err := history.Open(m.t.TempDir(), 1<<30)
	require.NoError(m.t, err)
	var records suppose.Recorder
	for i := range m.ticks {
		for _, r := range records.Tick(recordOf(&m.ticks[i])) {
			require.NoError(m.t, kept.Add(r))
		}
	}
	return control.New(control.Options{Config: m.scenario.Config, Store: &store.Memory{}, History: kept, Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
}

// recordOf is what the control plane records of a tick.
func recordOf(p *sim.Planned) (*suppose.Record, bool, *suppose.Held) {
	r := control.NewRecord(p.Policy, map[string]string{}, p.View, p.Plan, p.Hold)
	if p.Hold == nil {
		return r, p.Fresh, nil
	}
	return r, p.Fresh, suppose.NewHeld(string(p.Hold.Rail), p.Hold.Reason, p.Hold.Since, p.Plan, p.Wanted)
}

// solve makes plans as the control plane's questions do.
func (m *moment) solve(view *fleet.View, last *fleet.Plan) (*fleet.Plan, error) {
	return tick.Policy(m.scenario.Config.Policy, optimal.Options{}).Plan(view, last)
}

// tickAt is the last tick up to a time.
func (m *moment) tickAt(at time.Duration) sim.Planned {
	out := m.ticks[0]
	for _, p := range m.ticks {
		if p.At <= at {
			out = p
		}
	}
	return out
}

// weight asks as `wardrop why weight` does.
func (m *moment) weight(cluster, model, engine string) (*explain.Weight, []string) {
	m.t.Helper()
	w, err := explain.Known{View: m.View}.Weight(m.Plan, cluster, model, engine)
	require.NoError(m.t, err)
	words := w.Words
	if engine != "" && w.Engines[0].Weight == 0 {
		list, err := suppose.Thresholds(m.View, m.Plan, cluster, model, engine, m.solve)
		require.NoError(m.t, err)
		for _, x := range list {
			words = append(words, x.Words)
		}
	}
	return w, words
}

// whatIf asks as `wardrop what-if` does.
func (m *moment) whatIf(c suppose.Changes) *suppose.Outcome {
	m.t.Helper()
	o, err := suppose.WhatIf(m.View, m.Plan, c, m.solve)
	require.NoError(m.t, err)
	return o
}

// changed asks as `wardrop why change` does, for the plans in force at two times.
func (m *moment) changed(from, to time.Duration) *suppose.Change {
	m.t.Helper()
	c, err := m.recorded().WhyChange(m.t.Context(), m.planAt(from), m.planAt(to))
	require.NoError(m.t, err)
	return c
}

func (m *moment) planAt(at time.Duration) [2]uint64 { return [2]uint64{1, m.tickAt(at).Plan.Version} }
