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
	control *control.Control // with the history alone
}

// play runs a scenario of scenarios/ up to an instant, as production would.
func play(t *testing.T, name string, until time.Duration, change func(*sim.Scenario)) *moment {
	t.Helper()
	s, err := loadScenario(filepath.Join("..", "..", "scenarios", name+".yaml"))
	require.NoError(t, err)
	if change != nil {
		change(s)
	}
	s.Shorten(until)
	kept, err := history.Open(t.TempDir(), 1<<30)
	require.NoError(t, err)
	m := &moment{t: t, scenario: s}
	var records suppose.Recorder
	_, err = sim.Run(context.Background(), s, "optimal", sim.Policies()["optimal"], sim.Options{Seed: 1, Planned: func(p sim.Planned) {
		m.Planned = p
		m.ticks = append(m.ticks, p)
		for _, r := range records.Tick(recordOf(&p)) {
			require.NoError(t, kept.Add(r))
		}
	}})
	require.NoError(t, err)
	m.control = control.New(control.Options{Config: s.Config, Store: &store.Memory{}, History: kept, Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	return m
}

// recordOf is what the control plane records of a tick.
func recordOf(p *sim.Planned) (*suppose.Record, bool, *suppose.Held) {
	r := control.NewRecord(p.Policy, map[string]string{}, p.View, p.Plan, p.Hold)
	if p.Hold == nil {
		return r, p.Fresh, nil
	}
	return r, p.Fresh, suppose.NewHeld(string(p.Hold.Rail), p.Hold.Reason, p.Hold.Since, p.Plan, p.Wanted)
}

