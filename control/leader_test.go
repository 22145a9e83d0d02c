package control

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/store"
	"github.com/wardrop-lb/wardrop/tick"
)

// elected is a store that gives the terms that a test sends.
type elected struct {
	store.Memory
	terms  chan store.Term
	leader string
}

func (s *elected) Lead(ctx context.Context, _ uint64) (store.Term, error) {
	select {
	case t := <-s.terms:
		return t, nil
	case <-ctx.Done():
		return store.Term{}, ctx.Err()
	}
}

func (s *elected) Leader() string { return s.leader }

// report keeps reporting for both clusters of file.
func report(ctx context.Context, c *Control) {
	for n := uint64(1); ; n++ {
		for _, cluster := range []string{"a", "c"} {
			c.reports.add(&pb.ReportRequest{
				Cluster: cluster, Instance: cluster, Sequence: n,
				Demands: []*pb.Demand{{Model: "demo", Priority: 1, Rate: 60, Window: 10, Count: 30 * n}},
			}, time.Now())
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// TestTerms: who stands by makes no plan and knows what the leader knows; who leads
// plans at once, until another may.
func TestTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &elected{terms: make(chan store.Term), leader: "other"}
		c := newControl(t, parse(t, strings.Replace(file, "20ms", "2s", 1)), st, "")
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		wg.Go(func() { report(ctx, c) })
		wg.Go(func() {
			if err := c.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Nil(t, c.State())
		require.False(t, c.Leading())
		require.True(t, c.Ready())
		require.NotEmpty(t, c.memory.Forecasts(), "it has measured all the while")

		lost := make(chan struct{})
		begin := time.Now()
		st.terms <- store.Term{Epoch: 5, Lost: lost}
		synctest.Wait()
		require.Equal(t, begin, time.Now(), "the first plan takes no time")
		require.True(t, c.Leading())
		first := c.State()
		require.Equal(t, uint64(5), first.Plan.Epoch)
		require.Equal(t, uint64(1), first.Plan.Version)
		require.InDelta(t, 60, first.Forecasts[tick.Source{Cluster: "a", Model: "demo", Priority: fleet.Standard}].Rate, 1)
		close(lost)
		synctest.Wait()
		require.False(t, c.Leading())
		time.Sleep(time.Minute)
		require.Same(t, first, c.State(), "it makes no more plans")

		begin = time.Now()
		st.terms <- store.Term{Epoch: 9, Lost: make(chan struct{})}
		synctest.Wait()
		require.Equal(t, begin, time.Now())
		require.Equal(t, uint64(9), c.State().Plan.Epoch)
		require.Equal(t, uint64(1), c.State().Plan.Version)
	})
}

// A cluster without data planes is waited for once in a process's life, not at every
// take-over.
func TestGatherIsOfTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControl(t, parse(t, file), &store.Memory{}, "")
		begin := time.Now()
		c.gather(t.Context())
		require.Equal(t, gatherFor, time.Since(begin))
		c.gather(t.Context())
		require.Equal(t, gatherFor, time.Since(begin))
	})
}

// TestClockGoesBack: data planes take only what is newer, whatever the leader's clock says.
func TestClockGoesBack(t *testing.T) {
	l := &leader{Control: newControl(t, parse(t, file), &store.Memory{}, ""), epoch: 1}
	l.tick(now)
	l.tick(now.Add(2 * time.Second))
	require.Equal(t, uint64(1), l.State().Plan.Version)
	l.tick(now.Add(-time.Hour))
	require.Equal(t, uint64(2), l.State().Plan.Version)
	require.Equal(t, now.Add(-time.Hour), l.State().Plan.Time)
	l.tick(now.Add(-time.Hour + 2*time.Second))
	require.Equal(t, uint64(2), l.State().Plan.Version)
}

// weightsOf are the weights of cluster a for demo, by engine.
func weightsOf(l *leader) map[string]float64 {
	out := map[string]float64{}
	s := l.State().Plan
	for _, a := range s.Row("a", "demo").Arcs {
		out[s.Engines[a.Engine].Name] = a.Weight
	}
	return out
}

func TestOverrides(t *testing.T) {
	usually := strings.NewReplacer("rate: 120", "rate: 60", "rate: 40", "rate: 10").Replace(file)
	l := &leader{Control: newControl(t, parse(t, usually), &store.Memory{}, ""), epoch: 1}
	at := now
	seen, end := context.WithCancel(t.Context())
	end() // a watch that has ended looks once
	next := func() map[string]float64 {
		l.store.Watch(seen, l.overrides.set)
		at = at.Add(2 * time.Second)
		l.tick(at)
		return weightsOf(l)
	}
	pin := func(o store.Override) {
		t.Helper()
		o.Set = at
		require.NoError(t, l.Override(t.Context(), o))
	}
	unpin := func(key string) {
		t.Helper()
		found, err := l.RemoveOverride(t.Context(), key)
		require.NoError(t, err)
		require.True(t, found)
	}
	usual := next()
	require.Positive(t, usual["near"])

	pin(store.Override{Kind: OverrideCap, Subject: "near", Value: "0.4"})
	next()
	for _, e := range l.State().Plan.Engines {
		if e.Name == "near" {
			require.InDelta(t, 0.4*100, e.Load, 0.1)
		}
	}
	unpin("cap/near")
	usual = next()

	pin(store.Override{Kind: OverrideFreeze})
	l.Reload(parse(t, strings.Replace(usually, "{a: 5ms, c: 150ms}", "{a: 500ms, c: 5ms}", 1)))
	frozen := next()
	require.Equal(t, frozen, next())
	require.InDelta(t, usual["near"], frozen["near"], 0.02)
	require.Equal(t, "rescale", l.State().Plan.Policy)
	require.Empty(t, l.State().Trouble)
	unpin("freeze")
	require.Less(t, next()["near"], usual["near"]-0.1, "the engine that is nearer now is used")

	pin(store.Override{Kind: OverridePolicy, Value: "static"})
	next()
	require.Equal(t, "static", l.State().Plan.Policy)
	unpin("policy")

	l.Reload(parse(t, usually))
	require.Positive(t, next()["near"])
	pin(store.Override{Kind: OverrideDrain, Subject: "near", Until: at.Add(5 * time.Second)})
	require.Zero(t, next()["near"])
	require.Zero(t, next()["near"])
	require.Len(t, l.Overrides(at), 1)
	require.Positive(t, next()["near"], "it has ended by itself")
	require.Empty(t, l.Overrides(at))
	l.forget(t.Context(), at)
	l.store.Watch(seen, func(list []store.Override) { require.Empty(t, list) })
}

func TestWrongOverrides(t *testing.T) {
	c := newControl(t, parse(t, file), &store.Memory{}, "")
	for want, o := range map[string]store.Override{
		`"melt" is none of drain, cap, freeze, release, policy`:                    {Kind: "melt"},
		`there is no engine "naer"`:                                                {Kind: OverrideDrain, Subject: "naer"},
		`drain has no value`:                                                       {Kind: OverrideDrain, Subject: "near", Value: "1"},
		`freeze is about everything, not "near"`:                                   {Kind: OverrideFreeze, Subject: "near"},
		`cap wants a part of the capacity above 0 and below 1, not "1"`:            {Kind: OverrideCap, Subject: "near", Value: "1"},
		`policy wants one of optimal, static, proportional, not "best"`:            {Kind: OverridePolicy, Value: "best"},
		`cap wants a part of the capacity above 0 and below 1, not "most of them"`: {Kind: OverrideCap, Subject: "near", Value: "most of them"},
	} {
		err := c.Override(t.Context(), o)
		require.ErrorIs(t, err, ErrOverride)
		require.ErrorContains(t, err, want)
	}
	_, err := c.Admit(t.Context(), store.Peer{Name: "b", Addr: "h:1"})
	require.ErrorContains(t, err, "not embedded")
	require.Empty(t, c.Overrides(now))
	var unread config.Policy // what a store of a newer version holds changes nothing
	c.overrides.set([]store.Override{{Kind: "melt"}, {Kind: OverrideCap, Subject: "near", Value: "x"}, {Kind: OverrideCap, Subject: "gone", Value: "0.5"}})
	unread = c.inForce(now).Policy
	require.Equal(t, c.config.Load().Policy, unread)
	v := c.inForce(now).View()
	require.False(t, c.pinned(v, now))
	require.Zero(t, v.Engines[0].Ramp)
}
