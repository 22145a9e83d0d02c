package route

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/fleet"
)

// moved counts the slots that changed owner, by name, among those whose owner
// before and after is not except.
func moved(a, b *Row, except string) (others, all float64) {
	size := len(owners(a))
	for s := range size {
		was, is := a.targets[owners(a)[s]].Engine.Name, b.targets[owners(b)[s]].Engine.Name
		if was == is {
			continue
		}
		all += 1 / float64(size)
		if was != except && is != except {
			others += 1 / float64(size)
		}
	}
	return others, all
}

// without takes an engine out of a snapshot's row and spreads its weight.
func without(s *fleet.Snapshot, gone int) *fleet.Snapshot {
	out := *s
	row := s.Rows[0]
	row.Targets = nil
	for _, t := range s.Rows[0].Targets {
		if int(t.Engine) != gone {
			t.Weight /= 1 - s.Rows[0].Targets[gone].Weight
			row.Targets = append(row.Targets, t)
		}
	}
	out.Rows = []fleet.SnapshotRow{row}
	return &out
}

func TestField_22_RemovingOneMovesItsKeysAlone(t *testing.T) {
	s := snapshot(even(10)...)
	flights := NewFlights()
	a := New(s, flights, 0.5, nil).Row("m")
	b := New(without(s, 3), flights, 0.5, nil).Row("m")
	others, all := moved(a, b, "e0003")
	require.InDelta(t, 0.1, all, 0.02)
	require.Less(t, others, 0.01, "calibration moves a few in a thousand, hashing none")
}

func TestField_23_EveryMemberGetsItsPart(t *testing.T) {
	s := snapshot(even(10)...)
	flights := NewFlights()
	router := New(s, flights, 0.5, nil)
	for range 5 { // engines leave and come back
		router = New(without(s, 3), flights, 0.5, router)
		require.Len(t, router.Row("m").targets, 9)
		router = New(s, flights, 0.5, router)
		got := 0
		for _, owner := range owners(router.Row("m")) {
			if owner == 3 {
				got++
			}
		}
		require.InDelta(t, 0.1, float64(got)/float64(len(owners(router.Row("m")))), 0.003)
	}
}

func TestField_25_WeightsAreWeights(t *testing.T) {
	r := newTestRow(0.5, 1.0/11, 10.0/11)
	used := map[int]int{}
	for key := range uint64(11_000) {
		e, c := take(t, r, key, 1, 0)
		used[e]++
		c.Release()
	}
	require.InDelta(t, 1000, used[0], 150)
	require.InDelta(t, 10_000, used[1], 150)
}

// TestField_26_ANewcomerTakesFromAllAlike: one that warms up beside another takes
// nothing from it that the plan does not say, and gives it nothing.
func TestField_26_ANewcomerTakesFromAllAlike(t *testing.T) {
	before := newTestRow(0.5, 0.475, 0.475, 0.05, 0)
	after := newTestRow(0.5, 0.45, 0.45, 0.05, 0.05)
	others, all := moved(before, after, "e0003")
	require.InDelta(t, 0.05, all, 0.01)
	require.Less(t, others, 0.005)
	got := make([]float64, 4)
	for _, i := range owners(after) {
		got[i] += 1 / float64(len(owners(after)))
	}
	require.InDelta(t, 0.05, got[2], 0.002, "the one that was warming up has no surge")
}

// TestField_74_ReplicasAgree: two data planes that share nothing but the snapshot
// send each session to the same engine.
func TestField_74_ReplicasAgree(t *testing.T) {
	w := randomWeights(rand.New(rand.NewPCG(7, 4)), 20)
	a, b := newTestRow(0.5, w...), New(snapshot(w...), NewFlights(), 0.5, New(snapshot(even(20)...), NewFlights(), 0.5, nil)).Row("m")
	for key := range uint64(2000) {
		h := HashKey(KeySession, "m", []byte{byte(key), byte(key >> 8)})
		p, q := a.Pick(h, 100, 0), b.Pick(h, 100, 1e9)
		require.Equal(t, p.At(0), q.At(0))
	}
}

// TestField_85_PrefixMemoryIsFixed: a million prompts that nobody sent before
// leave it as it was.
func TestField_85_PrefixMemoryIsFixed(t *testing.T) {
	s := NewPopularity(16)
	size := len(s.counts)
	var p Prefix
	part := make([]byte, 2*prefixBlock)
	i := uint64(0)
	allocs := testing.AllocsPerRun(100_000, func() {
		i++
		for b := range 8 {
			part[b] = byte(i >> (8 * b))
		}
		p.Reset()
		p.Add(part)
		s.Key(&p, 16, int64(i))
	})
	require.Zero(t, allocs)
	require.Len(t, s.counts, size)
	require.Less(t, s.total.Load(), 2*s.window)
}

// TestField_86_PromptsOfAnySizeTakeBoundedMemory: what is kept of a prompt does
// not grow with it, nor does the sketch with the fleet.
func TestField_86_PromptsOfAnySizeTakeBoundedMemory(t *testing.T) {
	var p Prefix
	part := make([]byte, 1<<20)
	for range 64 {
		p.Add(part)
	}
	require.LessOrEqual(t, cap(p.hashes), 2*maxBlocks)
	require.True(t, p.Full())
	require.LessOrEqual(t, len(NewPopularity(1_000_000).counts)*4, 4<<20, "bytes")
}
