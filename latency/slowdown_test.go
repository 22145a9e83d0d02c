package latency_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/latency"
)

// TestLoadUndoesPhi: Load finds the load that holds so many requests.
func TestLoadUndoesPhi(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := fleet.Profile{
			T0: rapid.Float64Range(0.01, 100).Draw(t, "t0"), UMax: rapid.Float64Range(0.01, 1e4).Draw(t, "umax"),
			Batch: rapid.Float64Range(1, 1e4).Draw(t, "batch"), Kappa: 0.9, Spread: rapid.Float64Range(0, 10).Draw(t, "spread"),
		}
		m := latency.New(p)
		u := m.Saturation() * rapid.Float64Range(1e-6, 3).Draw(t, "load")
		require.InEpsilon(t, u, m.Load(m.Phi(u)), 1e-9)
	})
	require.Zero(t, latency.New(near).Load(0))
	require.Zero(t, latency.New(near).Load(math.NaN()))
}

// paced drives an engine and shows a Slowdown every two seconds what went on; it calls
// each with the second and the factor.
func paced(d *driven, s *latency.Slowdown, m *latency.Model, seconds int, each func(second int, factor float64)) {
	for second := 2; second <= seconds; second += 2 {
		var sum latency.Observation
		finished := d.finished
		d.run(2, func(o latency.Observation) { sum.Rate, sum.InEngine = sum.Rate+o.Rate/2, o.InEngine })
		s.Observe(m, latency.Pace{Seconds: 2, Arrived: sum.Rate, Finished: float64(d.finished-finished) / 2, InEngine: sum.InEngine})
		each(second, s.Factor())
	}
}

// TestSlowdownOfEngines: an engine at any load that it can carry, after steps of the load
// up and down too, is never taken for slow by the profile that was learned of it
// at light load; one that turns four times slower is found by the time that 300
// requests have come, or a minute, and it is cleared once it is not slow any more.
func TestSlowdownOfEngines(t *testing.T) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			m := latency.New(learn(t, e, 1, func(o latency.Observation) latency.Observation { return o }).Profile())
			for seed := range uint64(4) {
				var s latency.Slowdown
				d := drive(t, e, 0.5*e.saturation, seed)
				for _, load := range []float64{0.5, 0.1, 0.9, 0.3, 1.3, 0.5} {
					d.rate = load * e.saturation
					paced(d, &s, &m, 200, func(second int, factor float64) {
						require.Equal(t, 1.0, factor, "%v s after the load became %v, seed %v", second, load, seed)
					})
				}
				d.rate = 0.3 * e.saturation
				paced(d, &s, &m, 300, func(int, float64) {})
				found := 0
				d.engine.SetSlowdown(4)
				paced(d, &s, &m, 240, func(second int, factor float64) {
					if found == 0 && factor > 1.5 {
						found = second
					}
				})
				require.Positive(t, found, "seed %v", seed)
				assert.LessOrEqual(t, float64(found), max(60, 300/d.rate), "seed %v", seed)
				assert.Less(t, s.Factor(), 5.0, "seed %v", seed)
				d.engine.SetSlowdown(1)
				paced(d, &s, &m, 600, func(int, float64) {})
				require.Less(t, s.Factor(), 1.1, "seed %v", seed)
			}
		})
	}
}

// TestSlowdownIsNoLatch: an engine that gets nothing, because it is slow, is tried again.
func TestSlowdownIsNoLatch(t *testing.T) {
	m := latency.New(near)
	var s latency.Slowdown
	for range 30 {
		s.Observe(&m, latency.Pace{Seconds: 2, Arrived: 20, Finished: 20, InEngine: m.Phi(80)})
	}
	require.InDelta(t, 4, s.Factor(), 1)
	for range 30 {
		s.Observe(&m, latency.Pace{Seconds: 2})
	}
	require.Less(t, s.Factor(), 1.3)
	// Enough to see that it is well again, and too little to say so by what was before.
	for range 5 {
		s.Observe(&m, latency.Pace{Seconds: 2, Arrived: 20, Finished: 20, InEngine: m.Phi(20)})
	}
	require.Less(t, s.Factor(), 1.2)
}

// TestSlowdownTakesNoNonsense: whatever it is shown, the factor is between 1 and 16.
func TestSlowdownTakesNoNonsense(t *testing.T) {
	m := latency.New(near)
	rapid.Check(t, func(t *rapid.T) {
		var s latency.Slowdown
		number := rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 1e3), rapid.SampledFrom([]float64{0, math.NaN(), math.Inf(1), -1, 1e300}))
		for range rapid.IntRange(1, 20).Draw(t, "observations") {
			s.Observe(&m, latency.Pace{Seconds: number.Draw(t, "seconds"), Arrived: number.Draw(t, "arrived"), Finished: number.Draw(t, "finished"), InEngine: number.Draw(t, "in")})
			require.True(t, s.Factor() >= 1 && s.Factor() <= 16.0001, "%v", s.Factor())
		}
	})
}
