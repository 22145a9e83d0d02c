package route

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wardrop-lb/wardrop/fleet"
)

func TestAged(t *testing.T) {
	const good = 30 * time.Second
	for age, want := range map[time.Duration]float64{
		-time.Hour: 0, 0: 0, good: 0, 90*time.Second - 1: 0, 90 * time.Second: 0.1, 149 * time.Second: 0.1, 150 * time.Second: 0.2,
		629 * time.Second: 0.9, 630 * time.Second: 1, 365 * 24 * time.Hour: 1, math.MaxInt64: 1, math.MinInt64: 0,
	} {
		require.Equal(t, want, Aged(age, good), age)
	}
	require.Zero(t, Aged(time.Hour, 0))
	require.Zero(t, Aged(math.MaxInt64, math.MaxInt64))
	require.Equal(t, 1.0, Aged(math.MaxInt64, 1))
}

// aSnapshot has a row of weights that add up to 1, and engines some of which have no capacity.
func aSnapshot(t *rapid.T) *fleet.Snapshot {
	s := &fleet.Snapshot{Cluster: "c", Rows: []fleet.SnapshotRow{{Model: "m", Shed: [fleet.NumPriorities]float64{0, 0.2, 1}}}}
	n := rapid.IntRange(1, 300).Draw(t, "engines")
	sum := 0.0
	for i := range n {
		capacity := rapid.Float64Range(0, 100).Draw(t, "capacity")
		if rapid.IntRange(0, 4).Draw(t, "unknown") == 0 {
			capacity = 0
		}
		s.Engines = append(s.Engines, fleet.SnapshotEngine{Name: fmt.Sprintf("e%03d", i), Capacity: capacity})
		w := rapid.Float64Range(1e-3, 1).Draw(t, "weight")
		if i > 0 && rapid.Bool().Draw(t, "spare") {
			w = 0
		}
		sum += w
		s.Rows[0].Targets = append(s.Rows[0].Targets, fleet.Target{Engine: int32(i), Weight: w, Predicted: 1, Limit: 7})
	}
	for i := range s.Rows[0].Targets {
		s.Rows[0].Targets[i].Weight /= sum
	}
	return s
}

// TestAge: weights always add up to 1, go from where they were to what needs no plan, and leave
// the snapshot that they are of alone.
func TestAge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := aSnapshot(t)
		ill := map[string]bool{}
		for _, e := range s.Engines {
			ill[e.Name] = rapid.IntRange(0, 3).Draw(t, "ill") == 0
		}
		healthy := func(model, engine string) bool { require.Equal(t, "m", model); return !ill[engine] }
		before := *s
		before.Rows = []fleet.SnapshotRow{s.Rows[0]}
		before.Rows[0].Targets = append([]fleet.Target(nil), s.Rows[0].Targets...)

		require.Same(t, s, Age(s, 0, healthy), "to the bit")
		whole := Age(s, 1, healthy).Rows[0].Targets
		last := s
		for step := 1; step <= 10; step++ {
			part := float64(step) / 10
			out := Age(s, part, healthy)
			require.NoError(t, out.Validate())
			require.Equal(t, before, *s)
			sum := 0.0
			for j, now := range out.Rows[0].Targets {
				sum += now.Weight
				from, to := last.Rows[0].Targets[j].Weight, whole[j].Weight
				require.LessOrEqual(t, min(from, to)-1e-12, now.Weight)
				require.GreaterOrEqual(t, max(from, to)+1e-12, now.Weight)
				now.Weight = s.Rows[0].Targets[j].Weight
				require.Equal(t, s.Rows[0].Targets[j], now, "nothing else changes")
			}
			require.Equal(t, 1.0, sum)
			for k, f := range out.Rows[0].Shed {
				require.InDelta(t, (1-part)*s.Rows[0].Shed[k], f, 1e-12)
			}
			last = out
		}
		proportional(t, s, whole, healthy)
	})
}

// proportional checks weights of which nothing is the plan's.
func proportional(t *rapid.T, s *fleet.Snapshot, whole []fleet.Target, healthy func(model, engine string) bool) {
	known, kept, some := 0.0, 0.0, false
	for j, e := range s.Engines {
		if healthy("m", e.Name) && e.Capacity > 0 {
			known += e.Capacity
		} else if healthy("m", e.Name) {
			kept += s.Rows[0].Targets[j].Weight
		}
		some = some || healthy("m", e.Name) && (e.Capacity > 0 || s.Rows[0].Targets[j].Weight > 0)
	}
	if !some {
		return
	}
	for j, e := range s.Engines {
		switch w := whole[j].Weight; {
		case !healthy("m", e.Name):
			require.Zero(t, w)
		case e.Capacity > 0:
			require.InDelta(t, (1-kept)*e.Capacity/known, w, 1e-12)
		case known > 0:
			require.InDelta(t, s.Rows[0].Targets[j].Weight, w, 1e-12)
		}
	}
}

// TestAgeWithoutHealth: where no engine is healthy all count, and where nothing is known of
// capacities the plan stays.
func TestAgeWithoutHealth(t *testing.T) {
	s := &fleet.Snapshot{Cluster: "c", Engines: []fleet.SnapshotEngine{{Name: "a", Capacity: 30}, {Name: "b", Capacity: 10}},
		Rows: []fleet.SnapshotRow{{Model: "m", Targets: []fleet.Target{{Engine: 0, Weight: 0.5}, {Engine: 1, Weight: 0.5}}}}}
	weights := func(part float64, healthy bool) (out []float64) {
		for _, x := range Age(s, part, func(string, string) bool { return healthy }).Rows[0].Targets {
			out = append(out, x.Weight)
		}
		return out
	}
	require.Equal(t, []float64{0.75, 0.25}, weights(1, false))
	require.Equal(t, []float64{0.625, 0.375}, weights(0.5, true))
	s.Engines[0].Capacity, s.Engines[1].Capacity = 0, 0
	require.Equal(t, []float64{0.5, 0.5}, weights(1, true))
	require.Equal(t, []float64{0.5, 0.5}, weights(1, false))
	s.Rows = append(s.Rows, fleet.SnapshotRow{Model: "n"})
	require.Empty(t, Age(s, 1, func(string, string) bool { return true }).Rows[1].Targets)
}
