package proxy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
)

// uneven gives most to the first engine of three and nothing to the last, and sheds half of
// batch; the last has twice the capacity of the others.
func uneven(s *fleet.Snapshot) {
	s.GoodFor = 30 * time.Second
	s.Engines[2].Capacity = 20
	row := &s.Rows[0]
	row.Shed[fleet.Batch] = 0.5
	for i, w := range []float64{0.75, 0.25, 0} {
		row.Targets[i].Weight = w
	}
}

func (p *DataPlane) weights() (out []float64) {
	for _, t := range p.table.Load().rows["m"].Targets() {
		out = append(out, t.Weight)
	}
	return out
}

// TestOldSnapshot: with the control plane away a data plane goes on, by weights that need it less
// and less; when it is back they are its own at once.
func TestOldSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engines := []*worker{{takes: seconds(1)}, {takes: seconds(1)}, {takes: seconds(1)}}
		w := newWhole(t, engines[0], engines[1], engines[2])
		s := *w.plane.Snapshot()
		s.Version++
		uneven(&s)
		require.NoError(t, w.plane.apply(&s))
		begin := time.Now()
		sent := 0
		until := func(age time.Duration) {
			for ; time.Since(begin) < age; sent++ {
				w.send(chat, 0)
				time.Sleep(250 * time.Millisecond)
			}
		}
		aged := func() float64 { return w.plane.Status(time.Now()).Aged }
		metric := func(name, value string) {
			t.Helper()
			require.NoError(t, testutil.CollectAndCompare((*collector)(w.plane), metricText(name, value), name))
		}

		until(80 * time.Second)
		require.Zero(t, aged())
		require.Equal(t, []float64{0.75, 0.25, 0}, w.plane.weights())
		require.Zero(t, engines[2].hits.Load())
		metric("wardrop_proxy_snapshot_aged", "0")
		metric("wardrop_proxy_snapshot_stale", "1")
		until(91 * time.Second)
		require.Equal(t, 0.1, aged())
		require.InDeltaSlice(t, []float64{0.7, 0.25, 0.05}, w.plane.weights(), 1e-9)
		until(331 * time.Second)
		require.Equal(t, 0.5, aged())
		require.InDelta(t, 0.25, w.plane.table.Load().rows["m"].Shed[fleet.Batch], 1e-9)
		require.InDelta(t, 331, w.plane.Status(time.Now()).Age, 1)
		until(640 * time.Second)
		require.Equal(t, 1.0, aged())
		require.Equal(t, []float64{0.25, 0.25, 0.5}, w.plane.weights())
		require.Zero(t, w.plane.table.Load().rows["m"].Shed[fleet.Batch])
		metric("wardrop_proxy_snapshot_aged", "1")

		// An engine that answers nothing gets nothing, and its part again when it is back.
		engines[2].hole.Store(true)
		without := false
		for age := 640 * time.Second; age < 940*time.Second; age += 5 * time.Second {
			until(age)
			without = without || slices.Equal(w.plane.weights(), []float64{0.5, 0.5, 0})
		}
		require.True(t, without)
		engines[2].hole.Store(false)
		until(1100 * time.Second)
		require.Equal(t, []float64{0.25, 0.25, 0.5}, w.plane.weights())

		time.Sleep(20 * time.Second) // what was sent is answered
		ended := w.answers()
		require.Len(t, ended, sent)
		for _, rec := range ended {
			require.Equal(t, http.StatusOK, rec.Code, "it never stops")
		}
		id := ended[len(ended)-1].Header().Get("X-Wardrop-Decision")
		d, ok := w.plane.Decision(id)
		require.True(t, ok)
		require.Equal(t, 1.0, d.Aged)

		again := s
		require.NoError(t, w.plane.apply(&again))
		require.Equal(t, 1.0, aged(), "the same again is as old as it was")
		next := s
		next.Time = s.Time.Add(2 * time.Second) // which by the time of day is old
		require.NoError(t, w.plane.apply(&next))
		require.Zero(t, aged())
		require.Equal(t, []float64{0.75, 0.25, 0}, w.plane.weights())
		require.Zero(t, w.plane.Status(time.Now()).Age)
	})
}

// TestAgeOfWhatWasSaved: it begins with what the time of day says, and whatever that says,
// requests are served.
func TestAgeOfWhatWasSaved(t *testing.T) {
	for name, c := range map[string]struct {
		published time.Time
		aged      float64
	}{
		"just now":           {time.Now(), 0},
		"five minutes ago":   {time.Now().Add(-331 * time.Second), 0.5},
		"a year ago":         {time.Now().Add(-365 * 24 * time.Hour), 1},
		"in a year":          {time.Now().Add(365 * 24 * time.Hour), 0},
		"at the first hour":  {time.Unix(0, 0), 1},
		"before all of that": {time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), 1},
		"in a far future":    {time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			h := newHarness(t, named(3)...)
			s := *h.plane.Snapshot()
			s.Time = c.published
			uneven(&s)
			require.NoError(t, newPlane(t, config.Proxy{Data: dir}).subscriber.Save(&s))
			h.plane = newPlane(t, config.Proxy{Data: dir})
			require.Equal(t, c.aged, h.plane.Status(time.Now()).Aged)
			require.Equal(t, c.aged, h.plane.Status(time.Now().Add(-time.Hour)).Aged, "a clock that goes back")
			h.plane.age(time.Now().Add(-time.Hour))
			require.Equal(t, c.aged, h.plane.Status(time.Now()).Aged)
			h.plane.age(time.Now().Add(100 * 365 * 24 * time.Hour))
			require.Equal(t, 1.0, h.plane.Status(time.Now()).Aged)
			require.NoError(t, h.plane.apply(h.plane.ageing.plan), "and the same comes from a control plane")
			next := s
			next.Version, next.Time = s.Version+1, time.Now().Add(-time.Hour) // by another's clock
			require.NoError(t, h.plane.apply(&next))
			require.Zero(t, h.plane.Status(time.Now()).Aged)
		})
	}
}

// TestRefusedSnapshotRenewsNothing: what is not taken leaves the one in force, as old as it is.
func TestRefusedSnapshotRenewsNothing(t *testing.T) {
	h := newHarness(t, named(3)...)
	bad := evenSnapshot("http://[broken")
	bad.Version = 9
	before := h.plane.ageing.came
	require.Error(t, h.plane.apply(bad))
	require.Equal(t, before, h.plane.ageing.came)
	require.Equal(t, uint64(1), h.plane.Status(time.Now()).Version)
	h.plane.age(time.Now().Add(100 * time.Hour))
	require.Equal(t, 1.0, h.plane.Status(time.Now()).Aged)
	for i := range 20 {
		h.read(h.post(chat, "X-Session-Id", fmt.Sprint(i)))
	}
}

// metricText is a gauge's page, help left to the collector.
func metricText(name, value string) *strings.Reader {
	help := map[string]string{
		"wardrop_proxy_snapshot_aged":  "Part of the weights that age has taken: so much of them is in proportion to the engines' capacities.",
		"wardrop_proxy_snapshot_stale": "1 when the snapshot is older than it is good for.",
	}[name]
	return strings.NewReader(fmt.Sprintf("# HELP %s %s\n# TYPE %s gauge\n%s %s\n", name, help, name, name, value))
}

// TestServesSoonAndThenWell: what is found on disk is in force at once, with tables that are built
// again, and better, as soon as requests are served.
func TestServesSoonAndThenWell(t *testing.T) {
	dir := t.TempDir()
	h := newHarness(t, named(9)...)
	require.NoError(t, newPlane(t, config.Proxy{Data: dir}).subscriber.Save(h.plane.Snapshot()))
	h.plane = newPlane(t, config.Proxy{Data: dir})
	soon := h.plane.table.Load()
	require.NotNil(t, soon)
	h.plane.age(time.Now())
	well := h.plane.table.Load()
	require.NotSame(t, soon, well)
	h.plane.age(time.Now())
	require.Same(t, well, h.plane.table.Load(), "once")
}
