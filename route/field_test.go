package route

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Tests named TestField_NN hold what makes a failure of other routers impossible
// here; the number is the case's in the project's catalogue of field failures,
// docs/failures.md. They stand in the package where the behaviour lives.

// take picks and charges as the request path does.
func take(t testing.TB, r *Row, key uint64, work, now int64) (int, Charge) {
	t.Helper()
	p := r.Pick(mix(key), work, now)
	c, ok := r.Take(&p, work, now)
	require.True(t, ok)
	return p.At(0), c
}

func even(n int) []float64 {
	w := make([]float64, n)
	for i := range w {
		w[i] = 1 / float64(n)
	}
	return w
}

// again makes rows with nothing in flight, all over one table.
func again(weights ...float64) func() *Row {
	first := New(snapshot(weights...), NewFlights(), 0.5, nil)
	return func() *Row { return New(snapshot(weights...), NewFlights(), 0.5, first).Row("m") }
}

// load is the work in flight by engine.
func load(r *Row) []float64 {
	out := make([]float64, len(r.targets))
	for i := range r.targets {
		out[i] = float64(r.targets[i].Flight.work.Load())
	}
	return out
}

// requireBound holds every engine to its share, however the work came there.
func requireBound(t *testing.T, r *Row, work float64) {
	t.Helper()
	total := float64(r.flights.work.Load())
	for i, got := range load(r) {
		require.LessOrEqual(t, got, r.allowance*r.targets[i].Share*total+work+1e-6, "engine %d", i)
	}
}

func TestField_01_MissLooksAtLoad(t *testing.T) {
	r := newTestRow(0.5, even(4)...)
	for range 50 { // crowded, by keys that others hold
		r.targets[2].Flight.Charge(100, 0)
	}
	home := 0
	for key := range uint64(400) { // none was ever seen before
		if owners(r)[mix(key)&r.table.mask] == 2 {
			home++
		}
		p := r.Pick(mix(key), 100, 0)
		require.NotEqual(t, 2, p.At(0))
	}
	require.Greater(t, home, 50, "the crowded engine is home to many of these keys")
}

func TestField_02_FewRequestsSpread(t *testing.T) {
	r := newTestRow(0.5, even(8)...)
	used := map[int]int{}
	for key := range uint64(400) { // never more than one in flight
		e, c := take(t, r, key, 100, 0)
		used[e]++
		c.Release()
	}
	require.Len(t, used, 8)
	for e, n := range used {
		require.InDelta(t, 50, n, 30, "engine %d", e)
	}
}

// TestField_05_AffinityUnderPressure: one session takes all it may, and the others
// keep the engine that they had.
func TestField_05_AffinityUnderPressure(t *testing.T) {
	r := newTestRow(0.5, even(4)...)
	const keys = 400
	home := make([]int, keys)
	for key := range uint64(keys) {
		home[key] = int(owners(r)[mix(key)&r.table.mask])
	}
	const hot = 7
	for range 300 {
		_, c := take(t, r, hot, 100, 0)
		defer c.Release()
	}
	kept := 0
	for key := range uint64(keys) {
		p := r.Pick(mix(key), 100, 0)
		at := &r.targets[home[key]]
		if float64(at.Flight.work.Load()) < r.allowance*at.Share*float64(r.flights.work.Load())+100 {
			require.Equal(t, home[key], p.At(0), "an engine with room keeps all of its keys")
			kept++
			continue
		}
		require.Positive(t, p.Spilled)
		again := r.Pick(mix(key), 100, 0)
		require.Equal(t, p.At(0), again.At(0), "what spills goes to one and the same next engine")
	}
	require.Greater(t, kept, keys/3)
}

func TestField_07_CountersOutliveSnapshots(t *testing.T) {
	flights := NewFlights()
	old := New(snapshot(0.5, 0.5), flights, 0.5, nil)
	c := old.Row("m").targets[0].Flight.Charge(100, 0)
	for range 10 {
		flights.Trim(func(string, string) bool { return false })
		next := New(snapshot(0.4, 0.6), flights, 0.5, old)
		require.Equal(t, int64(1), next.Row("m").targets[0].Flight.Requests())
		old = next
	}
	c.Release()
	require.Zero(t, old.Row("m").targets[0].Flight.Requests())
	require.Zero(t, old.Row("m").flights.work.Load())
}

// TestField_08_LoadIsAlwaysThisMoments: eight picks from one snapshot, as old as it
// may be, see one another.
func TestField_08_LoadIsAlwaysThisMoments(t *testing.T) {
	fresh := again(even(4)...)
	for hot := range uint64(200) {
		r := fresh()
		used := map[int]int{}
		for range 8 {
			e, _ := take(t, r, hot, 100, 0)
			used[e]++
		}
		for e, n := range used {
			require.LessOrEqual(t, n, 4, "key %d, engine %d", hot, e)
		}
		requireBound(t, r, 100)
	}
}

// TestField_09_BurstSeesItself: a burst on many cores at once takes exactly the
// room that there is.
func TestField_09_BurstSeesItself(t *testing.T) {
	fresh := again(even(4)...)
	for range 50 {
		r := fresh()
		for i := range r.targets {
			r.targets[i].Limit = 5
		}
		start, refused := make(chan struct{}), make(chan int, 64)
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				<-start
				p := r.Pick(7, 100, 0)
				if _, ok := r.Take(&p, 100, 0); !ok {
					refused <- 1
				}
			})
		}
		close(start)
		wg.Wait()
		require.Len(t, refused, 64-4*5)
		for i := range r.targets {
			require.Equal(t, int64(5), r.targets[i].Flight.Requests())
		}
	}
}

func TestField_11_HotPrefixSpreads(t *testing.T) {
	r := newTestRow(0.5, even(6)...)
	var p Prefix
	p.Add(make([]byte, 10*prefixBlock))
	popularity := NewPopularity(6)
	for range 1000 { // one and the same prompt
		key, _ := popularity.Key(&p, 6, 0)
		pick := r.Pick(HashPrefix("m", key), 100, 0)
		_, ok := r.Take(&pick, 100, 0)
		require.True(t, ok)
	}
	requireBound(t, r, 100)
}

// TestField_12_CountersAreNeverNegative: releasing twice, releasing what another
// row holds, and many at once leave nothing and never less than nothing.
func TestField_12_CountersAreNeverNegative(t *testing.T) {
	r := newTestRow(0.5, even(3)...)
	var wg sync.WaitGroup
	for g := range uint64(8) {
		wg.Go(func() {
			for i := range uint64(500) {
				p := r.Pick(mix(g*500+i), 10, 0)
				c, _ := r.Take(&p, 10, 0)
				if n := r.targets[p.At(0)].Flight.Requests(); n < 1 {
					t.Errorf("%d in flight at an engine that was just charged", n)
				}
				c.Release()
				c.Release()
			}
		})
	}
	wg.Wait()
	require.Equal(t, make([]float64, 3), load(r))
	require.Zero(t, r.flights.work.Load())
	var none Charge
	none.Release()
	require.False(t, none.Held())
}

// TestField_13_CountersDoNotExpire: whatever the time between, and whatever was
// forgotten meanwhile, a release takes back what its charge added.
func TestField_13_CountersDoNotExpire(t *testing.T) {
	flights := NewFlights()
	r := New(snapshot(even(4)...), flights, 0.5, nil).Row("m")
	e, c := take(t, r, 1, 100, 0)
	flights.Trim(func(string, string) bool { return false })
	c.Release()
	require.Zero(t, r.targets[e].Flight.Requests())
	used := map[int]int{}
	for key := range uint64(400) {
		e, c := take(t, r, key, 100, math.MaxInt64)
		used[e]++
		c.Release()
	}
	require.Len(t, used, 4)
	require.Less(t, used[e], 200, "the engine of the old charge is no magnet")
}

func TestField_17_HeavySessionsAreBounded(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 7))
	r := newTestRow(0.5, even(5)...)
	var held []Charge
	for range 5000 {
		key := uint64(rng.IntN(3)) // three sessions are four fifths of all
		if rng.IntN(5) == 0 {
			key = rng.Uint64()
		}
		work := int64(10 + rng.IntN(1000))
		_, c := take(t, r, key, work, 0)
		if held = append(held, c); len(held) > 200 {
			i := rng.IntN(len(held))
			held[i].Release()
			held[i] = held[len(held)-1]
			held = held[:len(held)-1]
		}
	}
	// A release may leave an engine above its part of what is left, but no new
	// request goes there before all that its key probes are.
	for key := range uint64(200) {
		p := r.Pick(mix(key%3), 100, 0)
		target := &r.targets[p.At(0)]
		limit := r.allowance*target.Share*float64(r.flights.work.Load()) + 100
		if float64(target.Flight.work.Load()) >= limit {
			require.Equal(t, MaxOrder, p.Spilled)
		}
		_, ok := r.Take(&p, 100, 0)
		require.True(t, ok)
	}
}

// TestField_28_AMarkIsALease: with no traffic at all and nobody to clear it, the
// mark ends; from then on a request in each interval asks the engine itself.
func TestField_28_AMarkIsALease(t *testing.T) {
	r := newTestRow(0.5, even(2)...)
	require.True(t, r.PassOver(0, 0, 1000))
	tries := func(now int64) (n int) {
		for key := range uint64(300) {
			if p := r.Pick(mix(key), 1, now); p.At(0) == 0 {
				n++
			}
		}
		return n
	}
	require.Zero(t, tries(999))
	for i := range int64(10) {
		require.Equal(t, 1, tries(1000+i*probeInterval), "one probe each interval, not a crowd and not none")
	}
	r.targets[0].Flight.Recovered(1000)
	require.Greater(t, tries(1001), 100)
}

// TestField_29_FullIsNoMark: whether an engine is full is counted at each look.
func TestField_29_FullIsNoMark(t *testing.T) {
	s := snapshot(even(1)...)
	s.Rows[0].Targets[0].Limit = 2
	r := New(s, NewFlights(), 0.5, nil).Row("m")
	for range 3600 {
		_, a := take(t, r, 1, 10, 0)
		_, b := take(t, r, 2, 10, 0)
		p := r.Pick(3, 10, 0)
		_, ok := r.Take(&p, 10, 0)
		require.False(t, ok)
		require.Equal(t, 1, p.Len(), "a pick that found no room is as it was")
		a.Release()
		b.Release()
	}
}

// TestField_44_HalfStaysHowManyFailAtOnce: on many cores at the same moment.
func TestField_44_HalfStaysHowManyFailAtOnce(t *testing.T) {
	for _, n := range []int{2, 5, 10} {
		fresh := again(even(n)...)
		for range 100 {
			r := fresh()
			start := make(chan struct{})
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() {
					<-start
					r.PassOver(i, 0, 100)
				})
			}
			close(start)
			wg.Wait()
			passed := 0
			for i := range r.targets {
				if r.targets[i].Flight.PassedOver() {
					passed++
				}
			}
			require.Equal(t, max(1, n/2), passed)
		}
	}
}

func TestField_45_PassedOverMeansNotPicked(t *testing.T) {
	r := newTestRow(0.5, even(6)...)
	require.True(t, r.PassOver(1, 0, 100))
	require.True(t, r.PassOver(4, 0, 100))
	second := map[[2]int]int{}
	for key := range uint64(2000) {
		p := r.Pick(mix(key), 1, 50)
		require.NotContains(t, []int{1, 4}, p.At(0))
		for range MaxOrder - 1 {
			next, ok := r.Next(&p)
			require.True(t, ok)
			require.NotContains(t, []int{1, 4}, next, "while others are well it is no fallback either")
		}
		second[[2]int{p.At(0), p.At(1)}]++
	}
	require.Len(t, second, 4*3)
	for pair, n := range second {
		require.InDelta(t, 2000/12, n, 70, "the next choices of %v spread", pair)
	}
}

// TestField_47_LeasesAreNotShortened: a second mark cannot end the first earlier,
// nor can the answer to a request that was sent before.
func TestField_47_LeasesAreNotShortened(t *testing.T) {
	r := newTestRow(0.5, even(2)...)
	f := r.targets[0].Flight
	picked := func(now int64) bool {
		for key := range uint64(100) {
			if p := r.Pick(mix(key), 1, now); p.At(0) == 0 {
				return true
			}
		}
		return false
	}
	require.True(t, r.PassOver(0, 10, 1000))
	require.True(t, r.PassOver(0, 20, 500))
	require.False(t, picked(999))
	require.True(t, r.PassOver(0, 30, 2000), "a longer one counts")
	require.False(t, picked(1999))
	f.Recovered(29)
	require.False(t, picked(1999), "sent before the mark: it says nothing")
	f.Recovered(31)
	require.True(t, picked(1999))
}

func TestField_48_AllMarkedStillServes(t *testing.T) {
	r := newTestRow(0.5, even(4)...)
	for i := range r.targets { // what the half rule never permits
		r.targets[i].Flight.passOver(0, 100)
	}
	for key := range uint64(100) {
		p := r.Pick(mix(key), 1, 50)
		require.Equal(t, 1, p.Len())
		require.Equal(t, 4, p.Passed, "and the decision says that all were marked")
	}
}

// TestPrefixesAreBoundMoreTightlyWhenItMatters: a prefix is a guess; at high
// utilisation a hot one spreads before it makes an engine much fuller than the rest.
func TestPrefixesAreBoundMoreTightlyWhenItMatters(t *testing.T) {
	const work = 100
	most := func(utilisation float64, pick func(r *Row, h uint64) Pick) float64 {
		s := snapshot(even(8)...)
		s.Rows[0].Utilisation = utilisation
		r := New(s, NewFlights(), 0.5, nil).Row("m")
		for i := range uint64(800) {
			h := mix(i)
			if i%2 == 0 {
				h = 7 // the hot one
			}
			p := pick(r, h)
			_, ok := r.Take(&p, work, 0)
			require.True(t, ok)
		}
		return slices.Max(load(r)) / (800 * work / 8)
	}
	prefix := func(r *Row, h uint64) Pick { return r.PickPrefix(h, work, 0) }
	require.InDelta(t, 1.5, most(0.3, prefix), 0.03)
	require.Less(t, most(0.95, prefix), 1.1)
	require.InDelta(t, 1.5, most(0.95, func(r *Row, h uint64) Pick { return r.Pick(h, work, 0) }), 0.03, "sessions are no guess")
}
