package proxy

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
)

func TestRateLooksBackOneWindow(t *testing.T) {
	var c counter
	at := time.Unix(0, 0)
	rate, total, covered := c.rate(at)
	require.Zero(t, rate)
	require.Zero(t, covered)
	require.Zero(t, total)
	for range 40 { // 20 s at 100/s
		for range 50 {
			c.add()
		}
		at = at.Add(500 * time.Millisecond)
		rate, total, covered = c.rate(at)
		require.InDelta(t, 100, rate, 1e-9)
	}
	require.Equal(t, uint64(2000), total)
	require.Equal(t, window.Seconds(), covered)
	for range 20 { // and 10 s of nothing
		at = at.Add(500 * time.Millisecond)
		rate, _, _ = c.rate(at)
	}
	require.Zero(t, rate, "what is older than the window is forgotten")
	require.LessOrEqual(t, len(c.history.samples), 22, "memory is bounded")
}

// TestIdleCountersAreSmall, and tell the same of the window as if every sample had been kept.
func TestIdleCountersAreSmall(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c counter
		var all []sample
		at := time.Unix(0, 0)
		for range rapid.IntRange(1, 100).Draw(t, "samples") {
			at = at.Add(500 * time.Millisecond)
			c.total.Add(uint64(rapid.SampledFrom([]int{0, 0, 0, 0, 7}).Draw(t, "grown")))
			all = append(all, sample{at, float64(c.total.Load())})
			first := all[0]
			for _, s := range all[:len(all)-1] {
				if at.Sub(s.at) >= window {
					first = s
				}
			}
			grown, covered := c.history.sample(at, float64(c.total.Load()))
			require.Equal(t, float64(c.total.Load())-first.total, grown)
			require.InDelta(t, at.Sub(first.at).Seconds(), covered.Seconds(), 0.5)
		}
		for range 40 {
			at = at.Add(500 * time.Millisecond)
			c.rate(at)
		}
		require.LessOrEqual(t, len(c.history.samples), 2)
	})
}

func TestMeanOfTheWindow(t *testing.T) {
	var m mean
	at := time.Unix(0, 0)
	require.Zero(t, m.seconds(at))
	m.observe(2 * time.Second)
	m.observe(4 * time.Second)
	at = at.Add(time.Second)
	require.InDelta(t, 3, m.seconds(at), 1e-9)
	require.Zero(t, m.seconds(at.Add(window)), "nothing was observed lately")
}

// TestProberTakesTheLeast dials through a function that sets the distance.
func TestProberTakesTheLeast(t *testing.T) {
	fail := true
	p := newProber(func(context.Context, string, string) (net.Conn, error) {
		if fail {
			return nil, net.ErrClosed
		}
		a, b := net.Pipe()
		_ = b.Close()
		return a, nil
	})
	s := evenSnapshot("http://127.0.0.1:1", "https://[::1]")
	s.Engines[0].Region, s.Engines[1].Region = "eu", "us"
	p.round(t.Context(), nil, 0)
	p.round(t.Context(), s, 0)
	require.Empty(t, p.report(time.Now()), "a failed probe is no distance")
	fail = false
	p.round(t.Context(), s, 1)
	got := p.report(time.Now())
	require.Equal(t, []string{"eu", "us"}, []string{got[0].Region, got[1].Region})
	require.Less(t, got[0].Seconds, 1.0)
	require.Less(t, got[0].Age, 1.0)
	require.InDelta(t, 100, p.report(time.Now().Add(100 * time.Second))[0].Age, 1)
	require.Empty(t, p.report(time.Now().Add(distanceLease+time.Minute)), "what was long ago is no distance")
	s.Engines[1].Region = "eu"
	p.round(t.Context(), s, 3)
	require.Len(t, p.report(time.Now()), 1, "a region without engines is forgotten")
}

// TestDistanceFollowsTheRoute: probes take the way and some waiting that varies. The
// distance is the way's; when that gets shorter it follows at once, when it gets longer
// within minutes, and what is busy for a while moves it little.
func TestDistanceFollowsTheRoute(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d distance
		at := time.Unix(0, 0)
		seed := rapid.Uint64().Draw(t, "seed")
		random := rand.New(rand.NewPCG(seed, 0))
		probe := func(way float64, over time.Duration) {
			for end := at.Add(over); at.Before(end); at = at.Add(probeInterval / probesByRegion) {
				d.add(way*(1+random.ExpFloat64()), at)
			}
		}
		way := rapid.Float64Range(1e-3, 0.1).Draw(t, "way")
		probe(way, time.Minute)
		require.GreaterOrEqual(t, d.seconds, way)
		require.Less(t, d.seconds, 1.3*way)

		probe(4*way, 15*time.Second) // no more than a busy network
		require.Less(t, d.seconds, 2.2*way)
		probe(way, 20*time.Second)
		require.Less(t, d.seconds, 1.4*way)

		probe(4*way, 5*time.Minute)
		require.Greater(t, d.seconds, 3.8*way, "a longer way is learned in minutes")
		d.add(way/2, at)
		require.Equal(t, way/2, d.seconds, "a shorter one at once")

		at = at.Add(time.Hour) // nothing was heard: that is no hour of a longer way
		for range probesKept {
			d.add(4*way, at)
		}
		require.Less(t, d.seconds, 1.2*way)
		require.LessOrEqual(t, len(d.recent), probesKept)
	})
}

func TestAddress(t *testing.T) {
	for raw, want := range map[string]string{"http://a:1": "a:1", "http://a": "a:80", "https://a": "a:443", "http://[::1]": "[::1]:80"} {
		got, ok := address(raw)
		require.True(t, ok)
		require.Equal(t, want, got)
	}
	_, ok := address("")
	require.False(t, ok)
}

func TestReportSaysWhatWasSeen(t *testing.T) {
	h := newHarness(t, answers("x"), answers("y"))
	p := h.plane
	p.report(time.Unix(100, 0))
	for range 20 {
		h.read(h.post(chat, "X-Priority", "critical"))
	}
	r := p.report(time.Unix(102, 0))
	require.Equal(t, uint64(2), r.Sequence)
	require.Len(t, r.Demands, 1)
	require.Equal(t, uint32(fleet.Critical), r.Demands[0].Priority)
	require.Equal(t, 10.0, r.Demands[0].Rate)
	require.Equal(t, 2.0, r.Demands[0].Window)
	var requests uint64
	for _, o := range r.Observations {
		requests += o.Requests
		require.Positive(t, o.FirstByte)
	}
	require.Equal(t, uint64(20), requests)
}

func TestForgetsWhatTheSnapshotLacks(t *testing.T) {
	h := newHarness(t, answers("x"), answers("y"))
	h.read(h.post(chat))
	s := evenSnapshot(h.engines[0].URL)
	s.Rows[0].Model, s.Engines[0].Name = "n", "other"
	require.NoError(t, h.plane.apply(s))
	m := h.plane.memory
	require.Len(t, m.models, 1)
	require.Len(t, m.seen, 1)
	require.Len(t, m.engines, 1)
}

// TestDataPlaneStartsFromDisk: what one data plane saved serves the next, with
// the control plane away.
func TestDataPlaneStartsFromDisk(t *testing.T) {
	engine := httptest.NewServer(answers("from disk"))
	defer engine.Close()
	dir := t.TempDir()
	first := newPlane(t, config.Proxy{Data: dir})
	require.Equal(t, filepath.Join(dir, "c.snapshot"), first.subscriber.Path)
	require.NoError(t, first.subscriber.Save(evenSnapshot(engine.URL)))

	second := newPlane(t, config.Proxy{Data: dir})
	require.True(t, second.Ready())
	front := httptest.NewServer(second.Handler())
	defer front.Close()
	h := &harness{t: t, url: front.URL, client: &http.Client{}}
	defer h.client.CloseIdleConnections()
	require.Equal(t, "from disk", h.read(h.post(chat)))
}

func TestMetricsAreBoundedAndWhole(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	p, err := New(Options{Cluster: "c", Proxy: config.Proxy{MaxBody: 100, Bound: 0.5}, Control: noControl, Registry: registry, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	engine := httptest.NewServer(answers("x"))
	defer engine.Close()
	require.NoError(t, p.apply(evenSnapshot(engine.URL)))
	front := httptest.NewServer(p.Handler())
	defer front.Close()
	defer p.Close()
	h := &harness{t: t, url: front.URL, client: &http.Client{}}
	defer h.client.CloseIdleConnections()
	for _, model := range []string{"m", "ghost-1", "ghost-2"} {
		h.read(h.post(`{"model":"` + model + `"}`))
	}
	families, err := registry.Gather()
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, f := range families {
		seen[f.GetName()] = true
		require.NotContains(t, f.String(), "ghost", "a client's words are no label")
		require.True(t, strings.HasPrefix(f.GetName(), "wardrop_proxy_"))
	}
	require.Len(t, seen, 16)
}
