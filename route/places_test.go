package route

import (
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/fleet"
)

// alone is a snapshot of a cluster with one data plane.
func alone(weights ...float64) *fleet.Snapshot {
	s := snapshot(weights...)
	s.Replicas = 1
	return s
}

func takePrefix(t *testing.T, r *Row, h uint64, work int64) (Pick, Charge) {
	t.Helper()
	p := r.PickPrefix(h, work, 0)
	c, ok := r.Take(&p, work, 0)
	require.True(t, ok)
	return p, c
}

func TestNewPrefixesGoWhereThereIsRoom(t *testing.T) {
	most := func(s *fleet.Snapshot) float64 {
		s.Rows[0].Utilisation = 0.9
		r := New(s, NewFlights(), 0.5, nil).Row("m")
		for i := range uint64(800) {
			takePrefix(t, r, mix(i), 100)
		}
		return slices.Max(load(r)) / (800 * 100 / 8)
	}
	remembering, hashing := most(alone(even(8)...)), most(snapshot(even(8)...))
	require.Less(t, remembering, 1.03)
	require.Greater(t, hashing, 1.05, "which hashing within its bound cannot")
}

func TestPrefixesThatComeAgainGoWhereTheyWere(t *testing.T) {
	r := New(alone(even(8)...), NewFlights(), 0.5, nil).Row("m")
	var first []int
	for i := range uint64(200) {
		p, c := takePrefix(t, r, mix(i), 100)
		require.False(t, p.Remembered)
		first = append(first, p.At(0))
		if i%2 == 0 {
			c.Release()
		}
	}
	for i := range uint64(200) {
		p, c := takePrefix(t, r, mix(i), 1)
		require.Equal(t, first[i], p.At(0))
		require.True(t, p.Remembered)
		c.Release()
	}
}

// TestAHotPrefixSpills: what is remembered binds no more than a hash does.
func TestAHotPrefixSpills(t *testing.T) {
	r := New(alone(even(8)...), NewFlights(), 0.5, nil).Row("m")
	for i := range uint64(800) {
		h := mix(i)
		if i%2 == 0 {
			h = 7
		}
		takePrefix(t, r, h, 100)
	}
	require.LessOrEqual(t, slices.Max(load(r)), 1.5*800*100/8+100)
}

func TestWhatIsRememberedOutlivesSnapshots(t *testing.T) {
	flights := NewFlights()
	old := New(alone(even(4)...), flights, 0.5, nil)
	places := map[uint64]string{}
	for i := range uint64(100) {
		p, c := takePrefix(t, old.Row("m"), mix(i), 1)
		places[i] = old.Row("m").Targets()[p.At(0)].Engine.Name
		c.Release()
	}
	// e0000 is gone, so that numbers change, and e0001 is to get nothing.
	s := alone(even(4)...)
	s.Engines = s.Engines[1:]
	s.Rows[0].Targets = s.Rows[0].Targets[:3]
	for i, w := range []float64{0, 0.5, 0.5} {
		s.Rows[0].Targets[i].Weight = w
	}
	row := New(s, flights, 0.5, old).Row("m")
	for i := range uint64(100) {
		p, c := takePrefix(t, row, mix(i), 1)
		name := row.Targets()[p.At(0)].Engine.Name
		if was := places[i]; was == "e0002" || was == "e0003" {
			require.Equal(t, was, name)
		} else {
			require.Contains(t, []string{"e0002", "e0003"}, name)
			require.False(t, p.Remembered)
		}
		c.Release()
	}
}

func TestAnEngineThatFailsIsRememberedForLater(t *testing.T) {
	r := New(alone(even(4)...), NewFlights(), 0.5, nil).Row("m")
	p, c := takePrefix(t, r, 7, 1)
	c.Release()
	was := p.At(0)
	f := r.targets[was].Flight
	f.passOver(0, 100)
	p, c = takePrefix(t, r, 7, 1)
	c.Release()
	require.NotEqual(t, was, p.At(0))
	f.passUntil.Store(0)
	p, c = takePrefix(t, r, 7, 1)
	c.Release()
	require.Equal(t, was, p.At(0))
}

// TestAnotherEngineThanTheRememberedOneIsNone: whether it was full or another was wanted.
func TestAnotherEngineThanTheRememberedOneIsNone(t *testing.T) {
	r := New(alone(even(4)...), NewFlights(), 0.5, nil).Row("m")
	p, c := takePrefix(t, r, 7, 1)
	c.Release()
	was := p.At(0)
	p = r.PickPrefix(7, 1, 0)
	require.True(t, p.Remembered)
	r.Prefer(&p, r.targets[was].Engine.Name)
	require.True(t, p.Remembered)
	r.Prefer(&p, r.targets[(was+1)%4].Engine.Name)
	require.False(t, p.Remembered)

	r.targets[was].Limit = 1
	_, _, ok := r.targets[was].Flight.charge(0, 0, 1)
	require.True(t, ok)
	p = r.PickPrefix(7, 1, 0)
	require.True(t, p.Remembered)
	_, ok = r.Take(&p, 1, 0)
	require.True(t, ok)
	require.NotEqual(t, was, p.At(0))
	require.False(t, p.Remembered)
}

// fill puts so many requests into each engine and bounds each to ten.
func fill(t *testing.T, r *Row, requests ...int) {
	t.Helper()
	for i, n := range requests {
		r.targets[i].Limit = 10
		for range n {
			_, _, ok := r.targets[i].Flight.charge(1, 0, 10)
			require.True(t, ok)
		}
	}
}

// TestFullRowKeepsCaches: a prefix whose engine is full goes elsewhere as long as there is room,
// and nowhere when there is hardly any; what has no cache anywhere takes what there is.
func TestFullRowKeepsCaches(t *testing.T) {
	for name, s := range map[string]*fleet.Snapshot{"remembered": alone(even(4)...), "hashed": snapshot(even(4)...)} {
		for _, others := range []int{2, 8} {
			r := New(s, NewFlights(), 5, nil).Row("m")
			p, c := takePrefix(t, r, 7, 1)
			c.Release()
			inside := slices.Repeat([]int{others}, 4)
			inside[p.At(0)] = 10
			fill(t, r, inside...)
			q := r.PickPrefix(7, 1, 0)
			require.Equal(t, p.At(0), q.At(0), name)
			_, ok := r.Take(&q, 1, 0)
			require.Equal(t, others == 2, ok, name)
			require.Equal(t, others == 2, q.At(0) != p.At(0), name)
			any := r.PickAny(7, 1, 0)
			_, ok = r.Take(&any, 1, 0)
			require.True(t, ok, name)
		}
	}
}

// TestPlaceIsWhereItWent: a new prefix whose engine turns out to be full is remembered where
// there was room.
func TestPlaceIsWhereItWent(t *testing.T) {
	r := New(alone(even(4)...), NewFlights(), 5, nil).Row("m")
	p := r.PickPrefix(7, 1, 0)
	inside := []int{0, 0, 0, 0}
	inside[p.At(0)] = 10
	fill(t, r, inside...)
	was := p.At(0)
	c, ok := r.Take(&p, 1, 0)
	require.True(t, ok)
	require.NotEqual(t, was, p.At(0))
	c.Release()
	q := r.PickPrefix(7, 1, 0)
	require.True(t, q.Remembered)
	require.Equal(t, p.At(0), q.At(0))
}

// TestDataPlanesAgreeWithoutAMemory: of several, none can know where another sent a
// prefix.
func TestDataPlanesAgreeWithoutAMemory(t *testing.T) {
	s := snapshot(even(8)...)
	s.Replicas = 2
	a, b := New(s, NewFlights(), 0.5, nil).Row("m"), New(s, NewFlights(), 0.5, nil).Row("m")
	for i := range uint64(200) {
		p, c := takePrefix(t, a, mix(i), 1)
		q, d := takePrefix(t, b, mix(i), 1)
		require.Equal(t, p.At(0), q.At(0))
		if i%3 == 0 {
			_, other := takePrefix(t, a, mix(i<<32), 1) // a has had other things to do
			other.Release()
		}
		c.Release()
		d.Release()
	}
	require.Nil(t, a.places)
}

func TestPlacesAreBoundedAndSafe(t *testing.T) {
	var p places
	_, ok := p.get(1)
	require.False(t, ok)
	var all sync.WaitGroup
	for n := range uint64(4) {
		all.Go(func() {
			for i := range uint64(2 * manyPlaces) {
				h := mix(i)
				p.put(h, uint32(h>>7))
				if x, ok := p.get(mix(i ^ n)); ok {
					if x != uint32(mix(i^n)>>7) {
						t.Error("a place is another's")
						return
					}
				}
			}
		})
	}
	all.Wait()
}

func TestPickPrefixAllocatesNothing(t *testing.T) {
	r := New(alone(even(8)...), NewFlights(), 0.5, nil).Row("m")
	r.PickPrefix(1, 1, 0)
	i := uint64(0)
	require.Zero(t, testing.AllocsPerRun(1000, func() { i++; r.PickPrefix(mix(i/2), 1, 0) }))
}

// BenchmarkPickPrefix picks for prefixes of which every other came before.
func BenchmarkPickPrefix(b *testing.B) {
	r := New(alone(even(100)...), NewFlights(), 0.5, nil).Row("m")
	b.ReportAllocs()
	for i := range uint64(b.N) {
		sink = r.PickPrefix(mix(i>>1), 100, 0)
	}
}
