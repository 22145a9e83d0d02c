package proportional

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/latency"
)

func view(rate float64) *fleet.View {
	v := &fleet.View{
		Clusters:  []fleet.Cluster{{Name: "c", Region: "r"}},
		Distances: []fleet.Distance{{Cluster: "c", Region: "r", Seconds: 0.001}},
		Demands:   []fleet.Demand{{Cluster: "c", Model: "m", Rate: rate}},
	}
	for _, name := range []string{"a", "b"} {
		v.Engines = append(v.Engines, fleet.Engine{Name: name, Region: "r", Models: []string{"m"}, Busy: -1,
			Profile: fleet.Profile{T0: 1, UMax: 100, Batch: 1e4, Kappa: 0.9}})
	}
	return v
}

func weight(p *fleet.Plan) float64 { return p.Rows[0].Arcs[0].Weight }

// loop closes the controller's loop over two equal engines: the scores of a tick
// are what the last weights cause. It returns engine a's error |w - 1/2| by tick.
func loop(t *testing.T, o Options, rate float64, ticks int) []float64 {
	t.Helper()
	p, v := New(o), view(rate)
	m := latency.New(v.Engines[0].Profile)
	plan, err := p.Plan(v, nil)
	require.NoError(t, err)
	// A small push: linear theory is about small errors.
	plan.Rows[0].Arcs[0].Weight, plan.Rows[0].Arcs[1].Weight = 0.505, 0.495
	var errors []float64
	for range ticks {
		w := weight(plan)
		errors = append(errors, math.Abs(w-0.5))
		v.Engines[0].Busy, v.Engines[1].Busy = m.Phi(rate*w), m.Phi(rate*(1-w))
		plan, err = p.Plan(v, plan)
		require.NoError(t, err)
	}
	return errors
}

// TestStabilityIsWhereTheorySaysIt: a tenth below the limit an error dies away,
// a tenth above it grows until the clamps hold it: the controller oscillates.
func TestStabilityIsWhereTheorySaysIt(t *testing.T) {
	for delay := range 5 {
		for _, load := range []float64{0.5, 0.8} { // of u_max
			elasticity := 1 / (1 - load)
			limit := Limit(delay) / elasticity
			rate := 2 * load * 100
			below := loop(t, Options{Gain: 0.9 * limit, Delay: delay}, rate, 400)
			above := loop(t, Options{Gain: 1.1 * limit, Delay: delay}, rate, 400)
			require.Less(t, below[399], below[0]/100, "delay %d, load %v", delay, load)
			require.Greater(t, above[399]+above[398]+above[397]+above[396], 4*above[0], "delay %d, load %v", delay, load)
		}
	}
}

// TestSmoothingCostsStability: filtering the signal adds lag, so that a gain that
// was stable no longer is.
func TestSmoothingCostsStability(t *testing.T) {
	const rate, delay = 160, 2
	gain := 0.95 * Limit(delay) / 5
	require.Less(t, loop(t, Options{Gain: gain, Delay: delay}, rate, 600)[599], 1e-3)
	require.Greater(t, loop(t, Options{Gain: gain, Delay: delay, Smoothing: 0.5}, rate, 600)[599], 1e-3)
}

func TestLimit(t *testing.T) {
	for delay, want := range []float64{2, 1, 0.618, 0.445, 0.347, 0.285, 0.241} {
		require.InDelta(t, want, Limit(delay), 1e-3)
	}
}

func TestLeaves(t *testing.T) {
	p, v := New(Options{Gain: 0.5}), view(100)
	plan, err := p.Plan(v, nil)
	require.NoError(t, err)
	require.Equal(t, 0.5, weight(plan), "no scores: as capacity says")
	v.Engines[0].Busy, v.Engines[1].Busy = 30, 10
	plan, err = p.Plan(v, plan)
	require.NoError(t, err)
	require.InDelta(t, 0.375, weight(plan), 1e-9, "a quarter less against a quarter more")
	v.Engines[0].Busy, v.Engines[1].Busy = 1e6, 1
	for range 100 {
		plan, err = p.Plan(v, plan)
		require.NoError(t, err)
	}
	require.Greater(t, weight(plan), 0.003, "an engine must keep some traffic to recover by")
	require.InDelta(t, 1, plan.Rows[0].Arcs[0].Weight+plan.Rows[0].Arcs[1].Weight, 1e-12)
	v.Engines[0].Busy = math.NaN()
	_, err = p.Plan(v, plan)
	require.NoError(t, err)
}

func TestBadOptions(t *testing.T) {
	for _, o := range []Options{{Gain: -1}, {Gain: math.NaN()}, {Smoothing: 1}, {Delay: -1}} {
		_, err := New(o).Plan(view(1), nil)
		require.Error(t, err)
	}
}
