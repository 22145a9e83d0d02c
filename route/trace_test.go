package route

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/fleet"
)

// randomSnapshot has one row, of engines with and without weight, with and without a limit.
func randomSnapshot(rng *rand.Rand) *fleet.Snapshot {
	s := &fleet.Snapshot{Cluster: "c", Epoch: 1, Version: 1, Replicas: 1 + rng.IntN(2)}
	row := fleet.SnapshotRow{Model: "m", Utilisation: rng.Float64()}
	n, sum := 1+rng.IntN(40), 0.0
	for i := range n {
		s.Engines = append(s.Engines, fleet.SnapshotEngine{Name: fmt.Sprintf("e%02d", i), Capacity: 1 + rng.Float64()})
		t := fleet.Target{Engine: int32(i), Predicted: 0.1 + rng.Float64()}
		if i == 0 || rng.IntN(4) > 0 {
			t.Weight = rng.ExpFloat64() + 0.01
		}
		if rng.IntN(3) == 0 {
			t.Limit = float64(1 + rng.IntN(4))
		}
		sum += t.Weight
		row.Targets = append(row.Targets, t)
	}
	for i := range row.Targets {
		row.Targets[i].Weight /= sum
	}
	s.Rows = []fleet.SnapshotRow{row}
	return s
}

// copied is a snapshot as a file gives it.
func copied(t *testing.T, s *fleet.Snapshot) *fleet.Snapshot {
	t.Helper()
	b, err := json.Marshal(s)
	require.NoError(t, err)
	out := new(fleet.Snapshot)
	require.NoError(t, json.Unmarshal(b, out))
	return out
}

// decided is one decision with what came of it.
type decided struct {
	query Query
	trace Trace
	order []int
}

// traffic is a row under random load, and what it decides.
type traffic struct {
	rng  *rand.Rand
	row  *Row
	held []Charge
	now  int64
}

// disturb changes what decisions look at.
func (f *traffic) disturb() {
	f.now += int64(f.rng.IntN(50e6))
	for len(f.held) > 60 || len(f.held) > 0 && f.rng.IntN(3) == 0 {
		k := f.rng.IntN(len(f.held))
		f.held[k].Release()
		f.held[k] = f.held[len(f.held)-1]
		f.held = f.held[:len(f.held)-1]
	}
	i := f.rng.IntN(len(f.row.targets))
	switch f.rng.IntN(30) {
	case 0:
		f.row.targets[i].Flight.passOver(f.now, f.now+int64(f.rng.IntN(1e9)))
	case 1, 2:
		f.row.targets[i].Flight.Recovered(f.now)
	}
}

func (f *traffic) decide() *decided {
	d := &decided{query: Query{
		Source: KeySource(f.rng.IntN(5)), Hash: mix(uint64(f.rng.IntN(300))), Work: int64(1 + f.rng.IntN(2000)), Now: f.now,
	}}
	q := d.query
	q.Trace = &d.trace
	p := f.row.Decide(q)
	if f.rng.IntN(8) == 0 {
		f.row.Prefer(&p, f.row.targets[f.rng.IntN(len(f.row.targets))].Engine.Name)
	}
	for tries := f.rng.IntN(3); ; tries-- {
		c, ok := f.row.Take(&p, q.Work, f.now)
		if ok {
			d.order, f.held = append(d.order, p.At(0)), append(f.held, c)
			break
		}
		if tries <= 0 {
			return d
		}
		f.disturb() // it waits for room
	}
	for f.rng.IntN(4) == 0 {
		i, c, ok := f.row.TakeNext(&p, q.Work, f.now)
		if !ok {
			break
		}
		d.order, f.held = append(d.order, i), append(f.held, c)
	}
	return d
}

// A decision that is decided again from what it looked at comes out the same, whatever others do
// to the counters meanwhile.
func TestReplayIsIdentical(t *testing.T) {
	const rows, each = 200, 520
	rng, cut, tried, spilled := rand.New(rand.NewPCG(1, 2)), 0, 0, 0
	for n := range rows {
		s := randomSnapshot(rng)
		flights := NewFlights()
		f := &traffic{rng: rng, row: New(s, flights, 0.25, nil).Row("m"), now: 1e15}
		again := New(copied(t, s), NewFlights(), 0.25, nil).Row("m")
		var other sync.WaitGroup
		end := make(chan struct{})
		if n%2 == 1 {
			other.Go(func() { interfere(f.row, end) })
		}
		for range each {
			f.disturb()
			d := f.decide()
			order, err := again.Replay(d.query, d.trace.Looks(), d.trace.Cut())
			if d.trace.Cut() {
				cut++
				require.ErrorIs(t, err, ErrCut)
				continue
			}
			tried++
			require.NoError(t, err, "%+v", d.trace.Looks())
			require.Equal(t, d.order, order, "%+v", d.trace.Looks())
			for _, l := range d.trace.Looks() {
				require.False(t, l.Kind == LookCharge && l.State == Full && float32(l.InFlight) < l.Bound, "%+v: full it was", l)
				if l.State == Over || l.State == Failing || l.State == Full {
					spilled++
					break
				}
			}
		}
		close(end)
		other.Wait()
	}
	t.Logf("%d decisions replayed, %d passed engines over, %d cut", tried, spilled, cut)
	require.GreaterOrEqual(t, tried, 100_000)
	require.Less(t, cut, tried/1000)
	require.Greater(t, spilled, tried/10, "the easy ones alone prove little")
}

// interfere charges and releases at another core.
func interfere(r *Row, end chan struct{}) {
	rng := rand.New(rand.NewPCG(3, 4))
	for {
		select {
		case <-end:
			return
		default:
		}
		t := &r.targets[rng.IntN(len(r.targets))]
		if c, _, ok := t.Flight.charge(int64(rng.IntN(5000)), 0, t.Limit); ok {
			c.Release()
		}
	}
}

// What was recorded by one snapshot does not come out by another, or by less than was seen.
func TestReplayDeparts(t *testing.T) {
	s := randomSnapshot(rand.New(rand.NewPCG(5, 6)))
	row := New(s, NewFlights(), 0.25, nil).Row("m")
	var trace Trace
	q := Query{Source: KeySession, Hash: 7, Work: 100, Trace: &trace}
	p := row.Decide(q)
	_, ok := row.Take(&p, q.Work, 0)
	require.True(t, ok)
	looks := trace.Looks()

	fresh := func(s *fleet.Snapshot, eps float64) *Row { return New(s, NewFlights(), eps, nil).Row("m") }
	order, err := fresh(s, 0.25).Replay(q, looks, false)
	require.NoError(t, err)
	require.Equal(t, []int{p.At(0)}, order)
	_, err = fresh(s, 0.25).Replay(q, looks[:len(looks)-2], false)
	require.ErrorContains(t, err, "further")
	moved := copied(t, s)
	for i := range moved.Rows[0].Targets {
		moved.Rows[0].Targets[i].Weight = 0
	}
	moved.Rows[0].Targets[(p.At(0)+1)%len(s.Engines)].Weight = 1
	_, err = fresh(moved, 0.25).Replay(q, looks, false)
	require.ErrorContains(t, err, "target")
	other := append([]Look(nil), looks...)
	for i := range other {
		if other[i].Kind == LookProbe {
			other[i].Bound *= 2
		}
	}
	_, err = fresh(s, 0.25).Replay(q, other, false)
	require.ErrorContains(t, err, "bound")
	_, err = fresh(s, 0.25).Replay(q, append(looks, Look{Kind: LookNext, Target: 1000}), false)
	require.ErrorContains(t, err, "no target")
	_, err = fresh(s, 0.25).Replay(q, looks, true)
	require.ErrorIs(t, err, ErrCut)
}

// A request that waits for room is told by its last try: what an earlier one looked at beyond a
// trace's end does not make that incomplete.
func TestTraceOfTheLastTryIsWhole(t *testing.T) {
	const engines = 40
	s := &fleet.Snapshot{Cluster: "c", Epoch: 1, Version: 1, Rows: []fleet.SnapshotRow{{Model: "m"}}}
	for i := range engines {
		s.Engines = append(s.Engines, fleet.SnapshotEngine{Name: fmt.Sprintf("e%02d", i), Capacity: 1})
		s.Rows[0].Targets = append(s.Rows[0].Targets, fleet.Target{Engine: int32(i), Weight: 1. / engines, Predicted: 1, Limit: 1})
	}
	r := New(s, NewFlights(), 100, nil).Row("m")
	var trace Trace
	q := Query{Source: KeySession, Hash: 7, Work: 100, Trace: &trace}
	p := r.Decide(q)
	row := trace.looks[0]
	var held []Charge
	for i := range r.targets {
		c, _, ok := r.targets[i].Flight.charge(1, 0, 1)
		require.True(t, ok)
		held = append(held, c)
		if i%8 > 0 {
			r.targets[i].Flight.passOver(0, 1e9)
		}
	}
	_, ok := r.Take(&p, q.Work, 0)
	require.False(t, ok)
	require.True(t, trace.Cut(), "the failing ones alone fill it")
	for i := range held {
		held[i].Release()
	}
	c, ok := r.Take(&p, q.Work, 0)
	require.True(t, ok)
	c.Release()
	require.False(t, trace.Cut())
	require.Equal(t, row, trace.looks[0])
	order, err := New(s, NewFlights(), 100, nil).Row("m").Replay(q, trace.Looks(), trace.Cut())
	require.NoError(t, err)
	require.Equal(t, []int{p.At(0)}, order)
}

// A record that goes on after the last engine that a pick may name is none of a decision's.
func TestReplayEnds(t *testing.T) {
	s := &fleet.Snapshot{Cluster: "c", Epoch: 1, Version: 1, Rows: []fleet.SnapshotRow{{Model: "m"}}}
	for i := range 8 {
		s.Engines = append(s.Engines, fleet.SnapshotEngine{Name: fmt.Sprint("e", i), Capacity: 1})
		s.Rows[0].Targets = append(s.Rows[0].Targets, fleet.Target{Engine: int32(i), Weight: 1. / 8, Predicted: 1})
	}
	r := New(s, NewFlights(), 1, nil).Row("m")
	var trace Trace
	q := Query{Source: KeySession, Hash: 7, Work: 100, Trace: &trace}
	p := r.Decide(q)
	_, ok := r.Take(&p, q.Work, 0)
	for n := 1; ok; n++ {
		require.LessOrEqual(t, n, MaxOrder)
		_, _, ok = r.TakeNext(&p, q.Work, 0)
	}
	again := New(s, NewFlights(), 1, nil).Row("m")
	order, err := again.Replay(q, trace.Looks(), false)
	require.NoError(t, err)
	require.Len(t, order, MaxOrder)
	_, err = again.Replay(q, append(trace.Looks(), Look{Kind: LookNext}), false)
	require.ErrorContains(t, err, "were recorded")
}

// A trace that was compacted tells of the same engines.
func TestCompact(t *testing.T) {
	f := &traffic{rng: rand.New(rand.NewPCG(9, 10)), now: 1e15}
	f.row = New(randomSnapshot(f.rng), NewFlights(), 0.25, nil).Row("m")
	for range 1000 {
		f.disturb()
		d := f.decide()
		was := append([]Look(nil), d.trace.Looks()...)
		names := d.trace.Compact(f.row.Names())
		require.LessOrEqual(t, len(names), len(was))
		for i, l := range d.trace.Looks() {
			if l.Target >= 0 {
				require.Equal(t, f.row.Names()[was[i].Target], names[l.Target])
			}
			l.Target = was[i].Target
			require.Equal(t, was[i], l)
		}
	}
}

func TestTraceAllocatesNothing(t *testing.T) {
	r := New(randomSnapshot(rand.New(rand.NewPCG(7, 8))), NewFlights(), 0.25, nil).Row("m")
	trace, i := new(Trace), uint64(0)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		i++
		p := r.Decide(Query{Source: KeyPrefix, Hash: mix(i / 2), Work: 100, Trace: trace})
		if c, ok := r.Take(&p, 100, 0); ok {
			c.Release()
		}
	}))
}

func BenchmarkDecide(b *testing.B) {
	for name, trace := range map[string]*Trace{"traced": {}, "untraced": nil} {
		b.Run(name, func(b *testing.B) {
			r := New(randomSnapshot(rand.New(rand.NewPCG(7, 8))), NewFlights(), 0.25, nil).Row("m")
			b.ReportAllocs()
			for i := uint64(0); b.Loop(); i++ {
				p := r.Decide(Query{Source: KeySource(i % 5), Hash: mix(i), Work: 100, Trace: trace})
				if c, ok := r.Take(&p, 100, 0); ok {
					c.Release()
				}
			}
		})
	}
}
