package tick

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wardrop-lb/wardrop/fleet"
)

// cut is a snapshot of some of ten engines.
func cut(t *rapid.T, name string) *fleet.Snapshot {
	s := &fleet.Snapshot{Cluster: "c"}
	r := fleet.SnapshotRow{Model: "m", Utilisation: rapid.Float64Range(0, 1).Draw(t, name+" utilisation"), Shed: [3]float64{0, 0, 0.3}}
	for i := range 10 {
		if !rapid.Bool().Draw(t, name) {
			continue
		}
		figure := func(what string) float64 { return rapid.Float64Range(0.9, 1.1).Draw(t, name+" "+what) }
		s.Engines = append(s.Engines, fleet.SnapshotEngine{Name: fmt.Sprintf("e%d", i), Capacity: figure("capacity")})
		r.Targets = append(r.Targets, fleet.Target{
			Engine: int32(len(s.Engines) - 1), Weight: figure("weight"), Predicted: figure("predicted"), Network: figure("network"), Limit: math.Ceil(50 * figure("limit")),
		})
	}
	s.Rows = []fleet.SnapshotRow{r}
	return s
}

// TestSteadyStaysNear: what is published is never further from what was computed than is
// allowed, and the same as before wherever that is near enough; weights and shed fractions are
// as they were computed.
func TestSteadyStaysNear(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		last := cut(t, "last")
		Steady(nil, []*fleet.Snapshot{last})
		next := cut(t, "next")
		was := map[string]fleet.Target{}
		for _, x := range last.Rows[0].Targets {
			was[last.Engines[x.Engine].Name] = x
		}
		computed := append([]fleet.Target(nil), next.Rows[0].Targets...)
		utilisation := next.Rows[0].Utilisation
		Steady([]*fleet.Snapshot{last}, []*fleet.Snapshot{next})
		near := func(got, want, old, part, least float64) {
			require.InDelta(t, want, got, max(part*old, least)+1e-6)
			if math.Abs(want-old) <= max(part*old, least) {
				require.Equal(t, old, got)
			}
		}
		for i, got := range next.Rows[0].Targets {
			want := computed[i]
			require.Equal(t, want.Weight, got.Weight)
			old, known := was[next.Engines[got.Engine].Name]
			if !known {
				require.Equal(t, float64(float32(want.Predicted)), got.Predicted)
				continue
			}
			near(got.Predicted, want.Predicted, old.Predicted, steadyPart, 0)
			near(got.Network, want.Network, old.Network, steadyPart, 0)
			near(got.Limit, want.Limit, old.Limit, steadyLimit, steadyRequests)
		}
		require.InDelta(t, utilisation, next.Rows[0].Utilisation, steadyUtilisation)
		require.Equal(t, [3]float64{0, 0, 0.3}, next.Rows[0].Shed)
	})
}

// TestSteadyNeverDriftsAway: figures that creep are followed, in steps.
func TestSteadyNeverDriftsAway(t *testing.T) {
	var last []*fleet.Snapshot
	changes := 0
	for i := range 1000 {
		x := 1 + float64(i)/1000
		next := []*fleet.Snapshot{{Cluster: "c", Engines: []fleet.SnapshotEngine{{Name: "e", Capacity: x}},
			Rows: []fleet.SnapshotRow{{Model: "m", Targets: []fleet.Target{{Predicted: x, Limit: math.Ceil(100 * x)}}}}}}
		Steady(last, next)
		got := next[0].Rows[0].Targets[0]
		require.InEpsilon(t, x, got.Predicted, steadyPart+1e-6)
		require.InEpsilon(t, x, next[0].Engines[0].Capacity, steadyPart+1e-6)
		require.InEpsilon(t, 100*x, got.Limit, steadyLimit+0.01)
		if last != nil && got != last[0].Rows[0].Targets[0] {
			changes++
		}
		last = next
	}
	require.Less(t, changes, 60, "it doubled: that is 35 steps of two parts in a hundred, and 14 of the limit")
}
