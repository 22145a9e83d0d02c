package main

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/proxy"
	"github.com/wardrop-lb/wardrop/route"
	"github.com/wardrop-lb/wardrop/sim"
)

// decisionOf is a simulated request's decision as a data plane tells it.
func decisionOf(t *sim.Trip) *proxy.Decision {
	d := &proxy.Decision{
		ID: fmt.Sprint("c-", t.Number), Time: time.Unix(0, 0).UTC().Add(t.Arrived), Cluster: t.Cluster, Model: t.Model, Priority: t.Priority.String(),
		Epoch: 1, Version: t.Version, Utilisation: t.Utilisation, ShedPart: t.ShedPart, RetriesLeft: t.RetriesLeft, Refused: t.Refused,
		Key: t.Source.String(), KeyHash: t.Hash, Depth: t.Depth, Work: t.Work, Cut: t.Cut, Remembered: t.Remembered, Seconds: t.Ended.Seconds(),
	}
	for _, l := range t.Looks {
		p := proxy.Probe{Look: l.Kind.String(), State: l.State.String(), InFlight: l.InFlight, Bound: l.Bound}
		if l.Target >= 0 {
			p.Engine = t.Targets[l.Target]
		}
		d.Probes = append(d.Probes, p)
	}
	for _, x := range t.Tries {
		d.Attempts = append(d.Attempts, proxy.Attempt{
			Engine: x.Engine, After: x.After.Seconds(), Outcome: x.Outcome, FirstByte: x.FirstToken.Seconds(),
			Expected: x.Size * x.Predicted, Predicted: x.Predicted,
		})
		d.Picked = cmp.Or(d.Picked, x.Engine)
	}
	if t.Done {
		d.Status = http.StatusOK
	}
	return d
}

// trip is the first request that a scenario's data planes route as wanted.
func (m *moment) trip(wanted func(*sim.Trip) bool) *sim.Trip {
	m.t.Helper()
	for i := range m.trips {
		if wanted(&m.trips[i]) {
			return &m.trips[i]
		}
	}
	require.Fail(m.t, "no request is routed so")
	return nil
}

func whySoLong(m *moment) []string {
	hung := m.scenario.Events[0]
	require.Equal(m.t, []any{"e1", "hang"}, []any{hung.Engine, hung.Do})
	x := m.trip(func(x *sim.Trip) bool { return x.Arrived > time.Duration(hung.At) && len(x.Tries) > 1 })
	d := decisionOf(x)
	require.Equal(m.t, []string{"e1", "stalled"}, []string{d.Attempts[0].Engine, d.Attempts[0].Outcome}, "it went to the one that hangs")
	require.GreaterOrEqual(m.t, x.Tries[1].After, time.Duration(m.scenario.Config.Proxy.StallAfter))
	require.NotEqual(m.t, "e1", d.Attempts[1].Engine)
	require.Positive(m.t, x.Tries[1].FirstToken)
	require.Greater(m.t, x.Tries[1].After, 9*(x.Ended-x.Tries[1].After), "nearly all the time it waited for e1")
	return d.Words()
}

func whyNotAtHome(m *moment) []string {
	x := m.trip(func(x *sim.Trip) bool {
		return x.Cluster == "eu" && slices.ContainsFunc(x.Looks, func(l route.Look) bool { return l.State == route.Over && x.Targets[l.Target] == "eu-2" })
	})
	d := decisionOf(x)
	require.Equal(m.t, "eu-2", d.Probes[1].Engine, "the first of its key's sequence")
	// The bound is what Little's law says that it holds at its weight, and half as much again.
	p := m.tickAt(x.Arrived)
	require.Equal(m.t, p.Plan.Version, x.Version)
	row, share, all := p.Plan.Row("eu", "chat"), 0.0, 0.0
	for _, a := range row.Arcs {
		held := a.Weight * (a.Network + p.Plan.Engines[a.Engine].Seconds)
		all += held
		if p.Plan.Engines[a.Engine].Name == "eu-2" {
			share = held
		}
	}
	bound := (1 + m.scenario.Config.Proxy.Bound) * share / all * float64(d.Probes[0].InFlight+d.Work)
	require.InEpsilon(m.t, bound, float64(d.Probes[1].Bound), 0.05)
	require.Greater(m.t, float64(d.Probes[1].InFlight), bound)
	return d.WhyNot("eu-2")
}
