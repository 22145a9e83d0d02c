package dashboard_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/admin"
	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/control"
	"github.com/wardrop-lb/wardrop/dashboard"
	"github.com/wardrop-lb/wardrop/internal/testturn"
	"github.com/wardrop-lb/wardrop/policy/optimal"
	"github.com/wardrop-lb/wardrop/store"
)

// places are where the regions of the large fleet are.
var places = []struct {
	name      string
	lat, long float64
}{
	{"frankfurt", 50.1, 8.7}, {"london", 51.5, -0.1}, {"stockholm", 59.3, 18.1}, {"madrid", 40.4, -3.7}, {"milan", 45.5, 9.2}, {"virginia", 38.9, -77.5}, {"ohio", 40.0, -83.0},
	{"oregon", 45.6, -121.2}, {"texas", 32.8, -96.8}, {"montreal", 45.5, -73.6}, {"sao-paulo", -23.6, -46.6}, {"santiago", -33.4, -70.7}, {"cape-town", -33.9, 18.4}, {"dubai", 25.2, 55.3},
	{"mumbai", 19.1, 72.9}, {"singapore", 1.35, 103.8}, {"tokyo", 35.7, 139.7}, {"seoul", 37.6, 127.0}, {"sydney", -33.9, 151.2}, {"hong-kong", 22.3, 114.2},
}

const (
	largeClusters, largeEngines, largeModels = 100, 10_000, 20
	// perMinute is how often a plan is made by default.
	perMinute = 30
)

// large is 100 clusters and 10,000 engines in 20 regions, with 20 models of 500 engines each.
func large(tb testing.TB, policy, tick string) *config.Config {
	var b strings.Builder
	fmt.Fprintf(&b, "policy: {name: %s, tick: %s}\nregions:\n", policy, tick)
	for _, p := range places {
		fmt.Fprintf(&b, "  - {name: %s, coordinates: [%g, %g]}\n", p.name, p.lat, p.long)
	}
	b.WriteString("clusters:\n")
	for c := range largeClusters {
		fmt.Fprintf(&b, "  - {name: %s-%02d, region: %s}\n", places[c%len(places)].name, c, places[c%len(places)].name)
	}
	b.WriteString("engines:\n")
	for e := range largeEngines {
		place := places[e/largeModels%len(places)].name
		fmt.Fprintf(&b, "  - {name: %s-%05d, region: %s, url: \"http://127.0.0.1:%d\", kind: vllm, models: [model-%02d], profile: {t0: %dms, u_max: %d, batch: 64}}\n",
			place, e, place, 10_000+e, e%largeModels, 800+e%7*100, 9+e%5)
	}
	b.WriteString("demand:\n")
	for c := range largeClusters {
		for m := range largeModels {
			fmt.Fprintf(&b, "  - {cluster: %s-%02d, model: model-%02d, rate: %g}\n", places[c%len(places)].name, c, m, float64(10+(c*7+m*3)%30))
		}
	}
	cfg, err := config.Parse("large.yaml", []byte(b.String()))
	require.NoError(tb, err)
	return cfg
}

// counted counts what a server sends.
type counted struct {
	net.Listener
	sent *atomic.Int64
}

type countedConn struct {
	net.Conn
	sent *atomic.Int64
}

func (l counted) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return countedConn{c, l.sent}, nil
}

func (c countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.sent.Add(int64(n))
	return n, err
}

// startLarge runs a control plane of the large fleet, whose demand is another at every tick, and
// gives the page's address and how many bytes were sent.
func startLarge(tb testing.TB, policy, tick string) (url string, sent *atomic.Int64) {
	tb.Helper()
	testturn.Take(tb)
	cfg := large(tb, policy, tick)
	c := control.New(control.Options{Config: cfg, Store: &store.Memory{}, Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	board := dashboard.New(c)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	sent = new(atomic.Int64)
	s := &http.Server{Handler: admin.Control(c, prometheus.NewRegistry(), admin.Options{Board: board})}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}, 4)
	run := func(f func()) { go func() { f(); done <- struct{}{} }() }
	run(func() { _ = s.Serve(counted{l, sent}) })
	run(func() { _ = c.Run(ctx) })
	run(func() { _ = board.Run(ctx) })
	run(func() { stir(ctx, c, cfg) })
	tb.Cleanup(func() {
		cancel()
		_ = s.Close()
		for range 4 {
			<-done
		}
	})
	require.Eventually(tb, func() bool { return c.State() != nil }, time.Minute, 20*time.Millisecond)
	return "http://" + l.Addr().String(), sent
}

// stir changes all of the demand by some percent after each plan.
func stir(ctx context.Context, c *control.Control, cfg *config.Config) {
	random := rand.New(rand.NewPCG(1, 2))
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.Changed():
		}
		next := *cfg
		next.Demand = slices.Clone(cfg.Demand)
		for i := range next.Demand {
			next.Demand[i].Rate *= 1 + 0.05*random.NormFloat64()
		}
		c.Reload(&next)
	}
}

// watched counts the updates of a page and how long they took, layout included: with the map that
// comes at every tick, and with what is asked for then.
const watched = `window.updates = [], window.fetched = [0];
	new PerformanceObserver((l) => l.getEntries().forEach((e) => (e.name === "wardrop-update" ? window.updates : window.fetched).push(e.duration))).observe({ type: "measure" })`

// shown notes when something is there for the first time, in milliseconds since the page was asked
// for.
const shown = `new MutationObserver((_, o) => { if (document.querySelector("%s")) { o.disconnect(); document.body.getBoundingClientRect(); window.shown = performance.now(); } }).observe(document, { childList: true, subtree: true, attributes: true })`

// largePages are those whose bytes are counted.
var largePages = map[string]string{
	"map":     "svg.places .ribbons path",
	"flows":   "svg.flows .ribbons path",
	"engines": "tbody tr:nth-child(50)",
	"engine":  ".chart .point",
	"weights": ".chart path",
}

func largeAddress(page string) string {
	switch page {
	case "map":
		return "/ui/"
	case "flows":
		return "/ui/#/?view=flows"
	case "engine":
		return "/ui/#/engine?name=frankfurt-00000"
	case "weights":
		return "/ui/#/weights?cluster=frankfurt-00&model=model-00"
	}
	return "/ui/#/engines"
}

// TestChromiumLarge: with 100 clusters and 10,000 engines, all of whose demand changes at every
// tick, no page takes more than two megabytes a minute, and all of them show. By the static
// policy every cluster sends to every region: no map has more in it.
func TestChromiumLarge(t *testing.T) {
	url, sent := startLarge(t, "static", "500ms")
	b := open(t, 1280, 860, false)
	for page, there := range largePages {
		b.visit(url+largeAddress(page), there)
		b.do(chromedp.Evaluate[chromedp.Void](watched))
		b.until("window.updates.length >= 1")
		before, updates := sent.Load(), eval[int](b, "window.updates.length")
		b.until(fmt.Sprintf("window.updates.length >= %d", updates+4))
		after := sent.Load()
		ticks := eval[int](b, "window.updates.length") - updates
		kib := float64(after-before) / 1024 / float64(ticks)
		t.Logf("%s: %.1f KiB a tick", page, kib)
		require.Less(t, kib*perMinute, 2048.0, page)
	}
	b.visit(url+"/ui/#/engines?q=tokyo-003&sort=load", "tbody tr")
	b.until("document.querySelectorAll('tbody tr').length > 0 && document.querySelectorAll('tbody tr').length <= 50")
	b.healthy(url)
}

// TestChromiumLargeShot has the picture of the docs, which needs the solver.
func TestChromiumLargeShot(t *testing.T) {
	if !*update {
		t.Skip("only with -update: it makes a picture")
	}
	url, _ := startLarge(t, "optimal", "2s")
	b := open(t, 1280, 860, false)
	b.visit(url+"/ui/", largePages["map"])
	b.shoot("large")
}

// BenchmarkTick is what a tick of the large fleet costs the control plane for its dashboard, when all
// weights change: half of it sums the plan up, half remembers it.
func BenchmarkTick(b *testing.B) {
	cfg := large(b, "optimal", "2s")
	var states []*control.State
	for _, factor := range []float64{1, 1.3} {
		next := *cfg
		next.Demand = slices.Clone(cfg.Demand)
		for i := range next.Demand {
			next.Demand[i].Rate *= 1 + (factor-1)*float64(i%7)
		}
		plan, err := control.Solve(&next, optimal.Options{})
		require.NoError(b, err)
		states = append(states, &control.State{Plan: plan, View: next.View()})
	}
	past := dashboard.NewPast()
	for i := 0; b.Loop(); i++ {
		s := *states[i%2]
		plan := *s.Plan
		plan.Version = uint64(i)
		s.Plan, s.Published = &plan, time.Unix(int64(i), 0)
		past.Add(&s)
	}
}

// BenchmarkChromium shows each page of the large fleet at the default tick: until when its first
// figures stand there, what an update of it takes in the browser, layout included, and what comes
// to the browser in a minute.
func BenchmarkChromium(b *testing.B) {
	url, sent := startLarge(b, "optimal", "2s")
	for _, page := range []string{"map", "flows", "engines", "engine", "weights"} {
		b.Run(page, func(b *testing.B) {
			p := open(b, 1280, 860, false)
			call(p, cdppage.AddScriptToEvaluateOnNewDocument, cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: fmt.Sprintf(shown, largePages[page])})
			p.visit(url+largeAddress(page), largePages[page])
			p.until("performance.getEntriesByName('first-contentful-paint').length > 0")
			paint, shown := eval[float64](p, "performance.getEntriesByName('first-contentful-paint')[0].startTime"), eval[float64](p, "window.shown")
			p.do(chromedp.Evaluate[chromedp.Void](watched))
			p.until("window.updates.length >= 1")
			before, from := sent.Load(), eval[int](p, "window.updates.length")
			b.ResetTimer()
			p.until(fmt.Sprintf("window.updates.length >= %d", from+b.N))
			took := eval[[]float64](p, fmt.Sprintf("window.updates.slice(%d)", from))
			fetched := eval[[]float64](p, "window.fetched")
			slices.Sort(took)
			slices.Sort(fetched)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(paint, "first-paint-ms")
			b.ReportMetric(shown, "shown-ms")
			b.ReportMetric(took[len(took)/2]+fetched[len(fetched)/2], "update-p50-ms")
			b.ReportMetric(took[len(took)-1]+fetched[len(fetched)-1], "update-max-ms")
			b.ReportMetric(float64(sent.Load()-before)/1e6/float64(len(took))*perMinute, "MB/min")
		})
	}
}
