package route

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wardrop-lb/wardrop/fleet"
)

// row builds a snapshot of one row over engines of the given weights, each
// predicted to take one second.
// Pick, PickAny and PickPrefix decide by one kind of key.
func (r *Row) Pick(h uint64, work, now int64) Pick {
	return r.Decide(Query{Source: KeySession, Hash: h, Work: work, Now: now})
}

func (r *Row) PickAny(h uint64, work, now int64) Pick {
	return r.Decide(Query{Source: KeyNone, Hash: h, Work: work, Now: now})
}

func (r *Row) PickPrefix(h uint64, work, now int64) Pick {
	return r.Decide(Query{Source: KeyPrefix, Hash: h, Work: work, Now: now})
}

func snapshot(weights ...float64) *fleet.Snapshot {
	s := &fleet.Snapshot{Cluster: "c", Rows: []fleet.SnapshotRow{{Model: "m"}}}
	for i, w := range weights {
		s.Engines = append(s.Engines, fleet.SnapshotEngine{Name: fmt.Sprintf("e%04d", i), Capacity: 10})
		s.Rows[0].Targets = append(s.Rows[0].Targets, fleet.Target{Engine: int32(i), Weight: w, Predicted: 1})
	}
	return s
}

func newTestRow(eps float64, weights ...float64) *Row {
	return New(snapshot(weights...), NewFlights(), eps, nil).Row("m")
}

func randomWeights(rng *rand.Rand, n int) []float64 {
	w, sum := make([]float64, n), 0.0
	for i := range w {
		w[i] = 0.25 + rng.ExpFloat64()
		sum += w[i]
	}
	for i := range w {
		w[i] /= sum
	}
	return w
}

func owners(r *Row) []uint32 { return r.table.slots }

func TestSharesFollowWeights(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{2, 10, 100, 1000} {
		w := randomWeights(rng, n)
		r := newTestRow(0.5, w...)
		got := make([]float64, n)
		for _, i := range owners(r) {
			got[i] += 1 / float64(len(owners(r)))
		}
		sum := 0.0
		for i := range w {
			sum += (got[i]/w[i] - 1) * (got[i]/w[i] - 1)
		}
		require.Less(t, math.Sqrt(sum/float64(n)), 0.015, "rms error of the shares of %d engines", n)
	}
}

// TestRaisingAWeightMovesSlotsOnlyToIt holds the race to its property: without
// calibration, an engine whose weight rises only gains.
func TestRaisingAWeightMovesSlotsOnlyToIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 20).Draw(t, "engines")
		w, sum := make([]float64, n), 0.0
		names := make([]string, n)
		for i := range w {
			w[i] = rapid.Float64Range(0.1, 5).Draw(t, "weight")
			sum += w[i]
			names[i] = fmt.Sprintf("engine-%d", i)
		}
		for i := range w {
			w[i] /= sum
		}
		raised := rapid.IntRange(0, n-1).Draw(t, "raised")
		race := newRace(names, fine*leastEngines)
		before, after := make([]uint32, fine*leastEngines), make([]uint32, fine*leastEngines)
		race.run(w, before)
		w[raised] *= rapid.Float64Range(1.01, 3).Draw(t, "factor") // the others' times stay, to the bit
		race.run(w, after)
		for s := range before {
			if before[s] != after[s] && after[s] != uint32(raised) {
				t.Fatalf("slot %d moved from %d to %d, though only %d was raised", s, before[s], after[s], raised)
			}
		}
	})
}

func TestSmallShiftsMoveFewKeys(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	w := randomWeights(rng, 1000)
	shifted, sum := make([]float64, len(w)), 0.0
	for i := range w {
		shifted[i] = w[i] * (0.99 + 0.02*rng.Float64())
		sum += shifted[i]
	}
	least := 0.0
	for i := range w {
		shifted[i] /= sum
		least += math.Abs(shifted[i]-w[i]) / 2
	}
	a, b := owners(newTestRow(0.5, w...)), owners(newTestRow(0.5, shifted...))
	moved := 0.0
	for s := range a {
		if a[s] != b[s] {
			moved += 1 / float64(len(a))
		}
	}
	require.Less(t, moved, 2*least, "keys moved against the least movement that the weights force")
}

func TestDataPlanesAgree(t *testing.T) {
	w := randomWeights(rand.New(rand.NewPCG(5, 6)), 50)
	a, b := newTestRow(0.5, w...), newTestRow(0.5, w...)
	require.Equal(t, owners(a), owners(b))
	for key := range uint64(1000) {
		p, q := a.Pick(mix(key), 100, 0), b.Pick(mix(key), 100, 0)
		require.Equal(t, p, q)
	}
}

func TestUnchangedRowKeepsItsTable(t *testing.T) {
	flights := NewFlights()
	a := New(snapshot(0.5, 0.5), flights, 0.5, nil)
	b := New(snapshot(0.5, 0.5), flights, 0.5, a)
	c := New(snapshot(0.4, 0.6), flights, 0.5, b)
	require.Same(t, &owners(a.Row("m"))[0], &owners(b.Row("m"))[0])
	require.NotSame(t, &owners(b.Row("m"))[0], &owners(c.Row("m"))[0])
}

func TestPickNamesDistinctEnginesAndIsNeverEmpty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "engines")
		w, sum := make([]float64, n), 0.0
		for i := range w {
			w[i] = rapid.SampledFrom([]float64{0, 0.00001, 1, 5}).Draw(t, "weight")
			sum += w[i]
		}
		if sum < 1 {
			w[0] = 1
		}
		r := newTestRow(rapid.Float64Range(0.05, 2).Draw(t, "eps"), w...)
		for i := range r.targets {
			r.targets[i].Flight.Charge(rapid.Int64Range(0, 1000).Draw(t, "work"), 0)
			if rapid.Bool().Draw(t, "fails") {
				r.targets[i].Flight.passOver(0, 10)
			}
		}
		p := r.Pick(rapid.Uint64().Draw(t, "key"), 100, 5)
		for more := true; more; {
			_, more = r.Next(&p)
		}
		if p.Len() == 0 || p.Len() > MaxOrder {
			t.Fatalf("%d engines in the order", p.Len())
		}
		seen := map[int]bool{}
		for i := range p.Len() {
			if seen[p.At(i)] {
				t.Fatalf("engine %d is in the order twice", p.At(i))
			}
			seen[p.At(i)] = true
		}
		if n >= 2 && p.Len() < 2 {
			t.Fatal("no fallback, though there are two engines")
		}
	})
}

// TestBoundHoldsWhateverTheKeys drives one hot key: no engine may hold more than
// (1 + eps) of its share plus a request.
func TestBoundHoldsWhateverTheKeys(t *testing.T) {
	const eps, work = 0.5, 100
	r := newTestRow(eps, 0.5, 0.3, 0.2)
	for range 1000 {
		p := r.Pick(42, work, 0)
		r.targets[p.At(0)].Flight.Charge(work, 0)
	}
	total := float64(r.flights.work.Load())
	for i := range r.targets {
		load := float64(r.targets[i].Flight.work.Load())
		require.LessOrEqual(t, load, (1+eps)*r.targets[i].Share*total+work+1e-6, "engine %d", i)
	}
}

func TestHotKeyStaysOnAsFewEnginesAsTheBoundAllows(t *testing.T) {
	r := newTestRow(0.5, 0.25, 0.25, 0.25, 0.25)
	used := map[int]int{}
	for range 300 {
		p := r.Pick(7, 10, 0)
		c := r.targets[p.At(0)].Flight.Charge(10, 0)
		defer c.Release()
		used[p.At(0)]++
	}
	require.LessOrEqual(t, len(used), 3, "one engine holds up to 1.5/4, so three hold it all")
}

func TestLowLoadKeepsAffinity(t *testing.T) {
	r := newTestRow(0.5, 0.9, 0.1)
	for key := range uint64(200) {
		p := r.Pick(mix(key), 100, 0)
		require.Equal(t, int(owners(r)[mix(key)&r.table.mask]), p.At(0), "an idle engine is never full")
	}
}

// TestShareFollowsPredictedTime: by Little's law a slow engine holds more work
// at the same weight, and must be allowed to.
func TestShareFollowsPredictedTime(t *testing.T) {
	s := snapshot(0.5, 0.5)
	s.Rows[0].Targets[1].Predicted = 3
	r := New(s, NewFlights(), 0.5, nil).Row("m")
	require.InDelta(t, 0.25, r.targets[0].Share, 1e-12)
	require.InDelta(t, 0.75, r.targets[1].Share, 1e-12)
}

func TestFailingEngineIsPassedOverForItsLease(t *testing.T) {
	r := newTestRow(0.5, 0.5, 0.5)
	require.True(t, r.PassOver(0, 0, 100))
	for key := range uint64(500) {
		p := r.Pick(mix(key), 1, 99)
		require.Equal(t, 1, p.At(0))
		next, ok := r.Next(&p)
		require.True(t, ok)
		require.Equal(t, 0, next, "it stays as the last fallback")
	}
	first := func(now int64) (n int) {
		for key := range uint64(500) {
			p := r.Pick(mix(key), 1, now)
			if p.At(0) == 0 {
				n++
			}
		}
		return n
	}
	require.Equal(t, 1, first(100), "a lease ends by itself: one request probes")
	require.Equal(t, 0, first(100+probeInterval-1))
	require.Equal(t, 1, first(100+probeInterval))
	r.targets[0].Flight.Recovered(100)
	require.InDelta(t, 250, first(100+probeInterval), 60, "an answer ends the probing")
}

func TestNeverMoreThanHalfOfTheCapacityIsPassedOver(t *testing.T) {
	r := newTestRow(0.5, 0.2, 0.2, 0.2, 0.2, 0.2)
	require.True(t, r.PassOver(0, 0, 100))
	require.True(t, r.PassOver(1, 0, 100))
	require.False(t, r.PassOver(2, 0, 100))
	r.targets[0].Flight.Recovered(100)
	require.True(t, r.PassOver(2, 0, 100), "when one recovers there is room again")

	one := newTestRow(0.5, 1)
	require.False(t, one.PassOver(0, 0, 100), "the only engine is never passed over")
}

func TestEnginesOfNoWeightAreFallbacksNearestFirst(t *testing.T) {
	s := snapshot(1, 0, 0)
	s.Rows[0].Targets[1].Predicted = 9
	s.Rows[0].Targets[2].Predicted = 2
	r := New(s, NewFlights(), 0.5, nil).Row("m")
	p := r.Pick(1, 1, 0)
	r.Next(&p)
	r.Next(&p)
	require.Equal(t, []int{0, 2, 1}, []int{p.At(0), p.At(1), p.At(2)})
	_, more := r.Next(&p)
	require.False(t, more)
}

func TestChargeReleasesExactlyOnce(t *testing.T) {
	f := NewFlights().Get("m", "e")
	c := f.Charge(7, 0)
	require.Equal(t, int64(1), f.Requests())
	c.Release()
	c.Release()
	require.Zero(t, f.Requests())
	require.Zero(t, f.work.Load())
	require.Zero(t, f.row.work.Load())
}

func TestTrimKeepsWhatIsInFlight(t *testing.T) {
	flights := NewFlights()
	busy := flights.Get("m", "busy")
	busy.Charge(1, 0)
	flights.Get("m", "idle")
	flights.Get("other", "idle")
	flights.Trim(func(string, string) bool { return false })
	require.Same(t, busy, flights.Get("m", "busy"))
	require.Len(t, flights.rows, 1)
	require.Len(t, flights.rows["m"].engines, 1)
}

func TestKeysOfDifferentSourcesAndModelsDiffer(t *testing.T) {
	a := HashKey(KeySession, "m", []byte("k"))
	require.Equal(t, a, HashKey(KeySession, "m", []byte("k")))
	require.NotEqual(t, a, HashKey(KeyPrefix, "m", []byte("k")))
	require.NotEqual(t, a, HashKey(KeySession, "n", []byte("k")))
}

var sink Pick

func BenchmarkPick(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 10_000} {
		b.Run(fmt.Sprintf("engines=%d", n), func(b *testing.B) {
			r := newTestRow(0.5, randomWeights(rand.New(rand.NewPCG(1, 1)), n)...)
			keys := make([][]byte, 1024)
			for i := range keys {
				keys[i] = fmt.Appendf(nil, "%064d", i*7919)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				sink = r.Pick(HashKey(KeySession, "m", keys[i&1023]), 100, 0)
			}
		})
	}
}

func BenchmarkBuild(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprintf("engines=%d", n), func(b *testing.B) {
			s := snapshot(randomWeights(rand.New(rand.NewPCG(1, 1)), n)...)
			flights := NewFlights()
			for range b.N {
				New(s, flights, 0.5, nil)
			}
		})
	}
}

// TestAnyEvensOutAndKeepsShares: requests without a key lie more evenly than by chance,
// and each engine still gets its weight.
func TestAnyEvensOutAndKeepsShares(t *testing.T) {
	weights := []float64{0.1, 0.1, 0.2, 0.3, 0.3}
	run := func(pick func(r *Row, h uint64) Pick) (worst float64, shares []float64) {
		r := newTestRow(10, weights...)
		rng := rand.New(rand.NewPCG(7, 8))
		shares = make([]float64, len(weights))
		var held []Charge
		const requests = 20_000
		for i := range requests {
			p := pick(r, rng.Uint64())
			c, ok := r.Take(&p, 10, 0)
			require.True(t, ok)
			shares[p.At(0)] += 1.0 / requests
			held = append(held, c)
			if len(held) > 200 { // one of those in flight ends, whichever
				k := rng.IntN(len(held))
				held[k].Release()
				held[k] = held[len(held)-1]
				held = held[:len(held)-1]
			}
			if i > 1000 {
				for k := range r.targets {
					worst += float64(r.targets[k].Flight.work.Load()) / r.targets[k].Share / float64(10*200) / float64(len(weights)) * math.Abs(1-float64(r.targets[k].Flight.work.Load())/r.targets[k].Share/(10*200))
				}
			}
		}
		return worst / requests, shares
	}
	byChance, _ := run(func(r *Row, h uint64) Pick { return r.Pick(h, 10, 0) })
	even, shares := run(func(r *Row, h uint64) Pick { return r.PickAny(h, 10, 0) })
	require.Less(t, even, 0.6*byChance, "the loads' mean distance from their shares")
	for i, w := range weights {
		require.InEpsilon(t, w, shares[i], 0.05)
	}
}
