package route

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wardrop-lb/wardrop/fleet"
)

// TestSlotsAreTheRaces: a table is what comes of drawing every engine's arrivals far beyond
// the time when the last slot has one, and keeping each slot's earliest.
func TestSlotsAreTheRaces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var names []string
		var weights []float64
		for i := range rapid.IntRange(1, 40).Draw(t, "engines") {
			names = append(names, fmt.Sprint("e", i))
			weights = append(weights, rapid.SampledFrom([]float64{0, 1e-6, 0.01, 0.5, 1}).Draw(t, "weight"))
		}
		weights[0]++
		table := newSlotTable(names, weights, size{1, calibrationPasses})

		want, sum := make([]float64, len(weights)), 0.0
		for _, w := range weights {
			sum += w
		}
		for i, w := range weights {
			if w/sum >= weightFloor {
				want[i] = w / sum
			}
		}
		adjusted := slices.Clone(want)
		slots := make([]uint32, len(table.slots))
		for range calibrationPasses {
			allArrivals(names, adjusted, slots)
			calibrate(adjusted, want, slots)
		}
		allArrivals(names, adjusted, slots)
		require.Equal(t, slots, table.slots)
	})
}

func allArrivals(names []string, weights []float64, slots []uint32) {
	best := slices.Repeat([]float32{math.MaxFloat32}, len(slots))
	for i, name := range names {
		if weights[i] == 0 {
			continue
		}
		for state, at := xxhash.Sum64String(name), 0.0; at < 40*float64(len(slots)); {
			state += phi
			x := mix(state)
			at += exponential[x>>(64-quantileBits)] * (1 / weights[i])
			if s := x % uint64(len(slots)); float32(at) < best[s] {
				slots[s], best[s] = uint32(i), float32(at)
			}
		}
	}
}

// TestSoonIsNearlyTheSame: a router that had to be there soon sends nearly all keys where the
// one does that takes its place, which borrows none of its tables.
func TestSoonIsNearlyTheSame(t *testing.T) {
	s := aFleet(1000)
	flights := NewFlights()
	soon := NewSoon(s, flights, 0.5, inTurn)
	well := New(s, flights, 0.5, soon)
	same := 0
	const keys = 20_000
	for i := range uint64(keys) {
		a, b := soon.Row("m").Pick(mix(i), 1, 0), well.Row("m").Pick(mix(i), 1, 0)
		if a.At(0) == b.At(0) {
			same++
		}
	}
	t.Logf("%.1f %% of the keys go to the same engine", 100*float64(same)/keys)
	require.Greater(t, float64(same)/keys, 0.9)
	require.Less(t, same, keys)
	require.Equal(t, New(s, flights, 0.5, nil).Row("m").table, well.Row("m").table)
	again := New(s, flights, 0.5, well)
	require.Same(t, &well.Row("m").table.slots[0], &again.Row("m").table.slots[0], "while that lends its own")
}

// aFleet has a row of engines whose weights differ by up to three times.
func aFleet(engines int) *fleet.Snapshot {
	s := &fleet.Snapshot{Cluster: "c", Rows: []fleet.SnapshotRow{{Model: "m"}}}
	sum := 0.0
	for i := range engines {
		s.Engines = append(s.Engines, fleet.SnapshotEngine{Name: fmt.Sprint("e", i), Capacity: 1})
		w := 1 + float64(i*7%engines)/float64(engines)*2
		s.Rows[0].Targets = append(s.Rows[0].Targets, fleet.Target{Engine: int32(i), Weight: w, Predicted: 1})
		sum += w
	}
	for i := range s.Rows[0].Targets {
		s.Rows[0].Targets[i].Weight /= sum
	}
	return s
}
