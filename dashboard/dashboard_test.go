package dashboard_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/admin"
	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/control"
	"github.com/wardrop-lb/wardrop/dashboard"
	"github.com/wardrop-lb/wardrop/store"
)

// small is a control plane that plans by what is configured, without data planes.
const small = `
policy: {tick: 20ms}
regions: [{name: a, coordinates: [50, 8]}, {name: c, coordinates: [1, 103]}]
clusters: [{name: a, region: a}, {name: c, region: c}]
engines:
  - {name: near, region: a, url: "http://near", models: [demo], profile: {t0: 200ms, u_max: 125, batch: 200}}
  - {name: far, region: c, url: "http://far", models: [demo, big], profile: {t0: 200ms, u_max: 100, batch: 160}}
  - {name: other, region: c, url: "http://other", models: [big], profile: {t0: 200ms, u_max: 100, batch: 160}}
demand:
  - {cluster: a, model: demo, rate: 120}
  - {cluster: c, model: demo, rate: 40}
`

// serveSmall runs the control plane of a text, and serves it.
func serveSmall(t *testing.T, text string) (*control.Control, *config.Config, string) {
	t.Helper()
	cfg, err := config.Parse("w.yaml", []byte(text))
	require.NoError(t, err)
	c := control.New(control.Options{Config: cfg, Store: &store.Memory{}, Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	board := dashboard.New(c)
	s := httptest.NewServer(admin.Control(c, prometheus.NewRegistry(), admin.Options{Board: board}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}, 2)
	go func() { _ = c.Run(ctx); done <- struct{}{} }()
	go func() { _ = board.Run(ctx); done <- struct{}{} }()
	t.Cleanup(func() {
		cancel()
		<-done
		<-done
		http.DefaultClient.CloseIdleConnections()
		s.Close()
	})
	require.Eventually(t, func() bool { return c.State() != nil }, 20*time.Second, 5*time.Millisecond)
	return c, cfg, s.URL
}

func get(t *testing.T, url string, header ...string) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, body
}

func getJSON[T any](t *testing.T, url string) (out T) {
	t.Helper()
	resp, body := get(t, url)
	require.Equal(t, http.StatusOK, resp.StatusCode, string(body))
	require.NoError(t, json.Unmarshal(body, &out))
	return out
}

// flows are read back from what is sent.
type mapAnswer struct {
	dashboard.Map
	Flows [][4]float64 `json:"flows"`
}

// TestMapAddsUp: what is shown is what the plan says, however it is summed up.
func TestMapAddsUp(t *testing.T) {
	c, _, url := serveSmall(t, small)
	m := getJSON[mapAnswer](t, url+"/v1/map")
	require.InDelta(t, 160, float64(m.Totals.Rate), 1e-6)
	require.Equal(t, []float64{50, 8}, m.Regions[0].At)
	sum, byRegion := 0.0, map[int]float64{}
	for _, f := range m.Flows {
		sum += f[2]
		byRegion[int(f[1])] += f[2]
		require.Positive(t, f[3])
	}
	require.InEpsilon(t, 160-float64(m.Totals.Shed), sum, 1e-3)
	for i, r := range m.Regions {
		require.InEpsilon(t, float64(r.Load), byRegion[i], 1e-3, r.Name)
	}
	row := c.State().Plan.Row("a", "demo")
	for _, a := range row.Arcs {
		if c.State().Plan.Engines[a.Engine].Name == "far" {
			require.InEpsilon(t, a.Weight*120, m.Flows[1][2], 1e-3)
		}
	}
	require.Equal(t, 3, m.Totals.Engines)
	require.Equal(t, 2, m.Totals.Used)

	m = getJSON[mapAnswer](t, url+"/v1/map?model=big")
	require.Zero(t, m.Totals.Rate)
	require.Empty(t, m.Flows)
	require.Len(t, m.Regions, 1, "nobody serves it in the other")
	require.Equal(t, 2, m.Totals.Engines)
}

// TestMapSaysWhatIsAway: an engine that is not in the plan is counted where it is.
func TestMapSaysWhatIsAway(t *testing.T) {
	c, _, url := serveSmall(t, small)
	require.NoError(t, c.Override(t.Context(), store.Override{Kind: control.OverrideDrain, Subject: "near"}))
	require.Eventually(t, func() bool {
		m := getJSON[mapAnswer](t, url+"/v1/map")
		return m.Totals.Live == 2 && m.Regions[0].Away == 1 && m.Regions[0].Engines == 0 && len(m.Overrides) == 1
	}, 10*time.Second, 10*time.Millisecond)
	require.Positive(t, getJSON[mapAnswer](t, url+"/v1/map").Totals.Shed, "one engine cannot serve all")
}

// TestMapBeforeTheFirstPlan: who waits for a plan sees what is configured.
func TestMapBeforeTheFirstPlan(t *testing.T) {
	cfg, err := config.Parse("w.yaml", []byte(small))
	require.NoError(t, err)
	c := control.New(control.Options{Config: cfg, Store: &store.Memory{}, Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	s := httptest.NewServer(admin.Control(c, prometheus.NewRegistry(), admin.Options{Board: dashboard.New(c)}))
	defer s.Close()
	m := getJSON[mapAnswer](t, s.URL+"/v1/map")
	require.Zero(t, m.Version)
	require.Len(t, m.Clusters, 2)
	require.Len(t, m.Regions, 2)
	require.Equal(t, 2, m.Regions[1].Away)
	page := getJSON[dashboard.EnginePage](t, s.URL+"/v1/engine?name=near")
	require.Empty(t, page.Plan)
	require.Empty(t, getJSON[dashboard.Weights](t, s.URL+"/v1/weights?cluster=a&model=demo").Points)
	http.DefaultClient.CloseIdleConnections()
}

// elsewhere is a store of which another member leads.
type elsewhere struct{ store.Memory }

func (*elsewhere) Lead(ctx context.Context, _ uint64) (store.Term, error) {
	<-ctx.Done()
	return store.Term{}, ctx.Err()
}

func (*elsewhere) Leader() string { return "b" }

// TestStandby: a member that does not lead says who does, and where that is.
func TestStandby(t *testing.T) {
	cfg, err := config.Parse("w.yaml", []byte(small+`
control:
  members:
    - {name: a, listen: "127.0.0.1:1", admin: "127.0.0.1:2", peer: "127.0.0.1:3"}
    - {name: b, listen: "127.0.0.1:4", admin: "127.0.0.1:5", peer: "127.0.0.1:6"}
`))
	require.NoError(t, err)
	c := control.New(control.Options{Config: cfg, Store: &elsewhere{}, Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	s := httptest.NewServer(admin.Control(c, prometheus.NewRegistry(), admin.Options{Board: dashboard.New(c)}))
	defer s.Close()
	m := getJSON[mapAnswer](t, s.URL+"/v1/map")
	require.False(t, m.Leading)
	require.Equal(t, "b", m.Leader)
	require.Equal(t, "127.0.0.1:5", m.LeaderAdmin)
	http.DefaultClient.CloseIdleConnections()
}

// TestMapIsShort: numbers have four significant digits.
func TestMapIsShort(t *testing.T) {
	_, _, url := serveSmall(t, small)
	_, body := get(t, url+"/v1/map")
	require.Less(t, len(body), 2000)
	require.NotRegexp(t, `\d\.0*[1-9]\d{4}`, regexp.MustCompile(`"\d{4}-[^"]*"`).ReplaceAllString(string(body), ""))
}

// TestLive: an event comes at once and after every tick, packed or not.
func TestLive(t *testing.T) {
	_, _, url := serveSmall(t, small)
	for _, packed := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/v1/live?model=demo", nil)
		require.NoError(t, err)
		req.Header.Set("Accept-Encoding", map[bool]string{true: "br, gzip;q=0.8", false: "gzip;q=0"}[packed])
		resp, err := http.DefaultTransport.RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
		var body io.Reader = resp.Body
		require.Equal(t, packed, resp.Header.Get("Content-Encoding") == "gzip")
		if packed {
			body, err = gzip.NewReader(body)
			require.NoError(t, err)
		}
		last := time.Time{}
		for lines, n := bufio.NewReader(body), 0; n < 3; {
			line, err := lines.ReadString('\n')
			require.NoError(t, err)
			data, ok := strings.CutPrefix(line, "data: ")
			if !ok {
				continue
			}
			var m mapAnswer
			require.NoError(t, json.Unmarshal([]byte(data), &m))
			require.Equal(t, "demo", m.Model)
			require.False(t, m.Now.Before(last))
			last = m.Now
			n++
		}
		cancel()
		_ = resp.Body.Close()
	}
}

// TestWeights: the past begins with the first plan, and has what changed since.
func TestWeights(t *testing.T) {
	c, cfg, url := serveSmall(t, small)
	ask := func(query string) dashboard.Weights {
		return getJSON[dashboard.Weights](t, url+"/v1/weights?cluster=a&model=demo"+query)
	}
	require.Eventually(t, func() bool { return len(ask("").Points) > 0 }, 10*time.Second, 10*time.Millisecond)
	first := ask("")
	require.InDelta(t, 1, float64(first.Points[0].Regions["a"]+first.Points[0].Regions["c"]), 1e-3)
	require.Empty(t, first.Points[0].From)
	next := *cfg
	next.Demand = append(next.Demand[:0:0], cfg.Demand...)
	next.Demand[0].Rate = 60
	c.Reload(&next)
	after := fmt.Sprintf("&after=%d", first.Points[len(first.Points)-1].Time)
	require.Eventually(t, func() bool { return len(ask(after).Points) > 0 }, 10*time.Second, 10*time.Millisecond)
	p := ask(after).Points[0]
	require.NotEmpty(t, p.From)
	require.Greater(t, float64(p.Moved), 0.01)
	require.Greater(t, float64(p.Engines["near"]), float64(first.Points[0].Engines["near"]))
	require.InDelta(t, 60, float64(p.Rate), 1e-6)
	whole := getJSON[dashboard.Weights](t, url+"/v1/weights?model=demo").Points[0]
	require.InDelta(t, 160, float64(whole.Rate), 1e-6, "all clusters together")
	require.InEpsilon(t, float64(first.Points[0].Regions["a"])*120/160, float64(whole.Regions["a"]), 1e-3, "c sends nothing there")
	resp, _ := get(t, url+"/v1/weights?cluster=a&model=demo&after=x")
	require.Equal(t, http.StatusBadRequest, resp.StatusCode)
	require.Empty(t, getJSON[dashboard.Weights](t, url+"/v1/weights?cluster=nobody&model=demo").Points)
}

// TestWeightsOfBefore: a dashboard that begins knows what is recorded.
func TestWeightsOfBefore(t *testing.T) {
	c, cfg, _ := serveSmall(t, small)
	next := *cfg
	next.Demand = append(next.Demand[:0:0], cfg.Demand...)
	next.Demand[0].Rate = 60
	require.Eventually(t, func() bool { return len(c.Plans([2]uint64{})) > 0 }, 10*time.Second, 10*time.Millisecond)
	c.Reload(&next)
	require.Eventually(t, func() bool { return len(c.Plans([2]uint64{})) > 1 }, 10*time.Second, 10*time.Millisecond)
	recorded := c.Plans([2]uint64{})

	board := dashboard.New(c)
	s := httptest.NewServer(admin.Control(c, prometheus.NewRegistry(), admin.Options{Board: board}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { _ = board.Run(ctx); close(done) }()
	t.Cleanup(func() {
		cancel()
		<-done
		http.DefaultClient.CloseIdleConnections()
		s.Close()
	})
	ask := func() []dashboard.WeightPoint {
		return getJSON[dashboard.Weights](t, s.URL+"/v1/weights?cluster=a&model=demo").Points
	}
	require.Eventually(t, func() bool { return len(ask()) > 1 }, 10*time.Second, 10*time.Millisecond)
	points := ask()
	require.Equal(t, fmt.Sprintf("%d.%d", recorded[0].Epoch, recorded[0].Version), points[0].Plan)
	require.Equal(t, recorded[0].Time.UnixMilli(), points[0].Time)
	require.Equal(t, points[0].Plan, points[1].From)
	require.Greater(t, float64(points[1].Moved), 0.01)
}

// TestSearch: words, regions, models and states, sorted and a page at a time.
func TestSearch(t *testing.T) {
	var b strings.Builder
	b.WriteString("policy: {tick: 20ms}\nclusters: [{name: eu-west, region: eu, distances: {eu: 1ms, us: 90ms}}]\nengines:\n")
	for i := range 120 {
		fmt.Fprintf(&b, "  - {name: e%03d, region: %s, url: \"http://host-%d\", models: [%s], profile: {t0: %dms, u_max: 20, batch: 32}}\n", i, []string{"eu", "us"}[i%2], i, []string{"chat", "code"}[i/60], 200+i)
	}
	b.WriteString("demand: [{cluster: eu-west, model: chat, rate: 90}]\n")
	_, _, url := serveSmall(t, b.String())
	ask := func(query string) dashboard.Found { return getJSON[dashboard.Found](t, url+"/v1/search?"+query) }
	all := ask("")
	require.Equal(t, 120, all.Total)
	require.Len(t, all.Engines, 50)
	require.Equal(t, []string{"eu", "us"}, all.Regions)
	require.Equal(t, []string{"chat", "code"}, all.Models)
	last := ask("offset=100")
	require.Len(t, last.Engines, 20)
	require.Equal(t, "e119", last.Engines[19].Name)
	require.Empty(t, ask("offset=1000").Engines)
	require.Len(t, ask("limit=100000").Engines, 120)
	require.Equal(t, 30, ask("region=us&model=code").Total)
	require.Equal(t, 30, ask("q=US+Code").Total, "each word is looked for everywhere")
	require.Equal(t, 1, ask("q=host-77").Total)
	require.Equal(t, []string{"eu-west"}, ask("q=eu-w").Clusters)
	require.Zero(t, ask("state=dead").Total)
	require.Equal(t, 120, ask("state=dead").States["unread"], "the other states are still counted")
	loads := ask("sort=load").Engines
	require.Positive(t, loads[0].Load)
	for i := 1; i < len(loads); i++ {
		require.GreaterOrEqual(t, loads[i-1].Load, loads[i].Load)
	}
	for _, by := range []string{"used", "price", "state", "penalty", "region", "nothing"} {
		require.Len(t, ask("sort="+by).Engines, 50, by)
	}
}

// TestEnginePage: the terms, the curve and the rows are those of the plan.
func TestEnginePage(t *testing.T) {
	c, _, url := serveSmall(t, small)
	p := getJSON[dashboard.EnginePage](t, url+"/v1/engine?name=far")
	require.NotEmpty(t, p.Plan)
	require.Len(t, p.Rows, 4, "of both models that it serves")
	require.Equal(t, "c", p.Rows[0].Cluster, "who sends the most stands first")
	require.Contains(t, p.Rows[0].Words, "far")
	for _, e := range c.State().Plan.Engines {
		if e.Name == "far" {
			require.InEpsilon(t, e.Price(), p.Terms.Total, 1e-9)
			require.InEpsilon(t, e.Seconds, p.Seconds, 1e-9)
		}
	}
	points := p.Curve.Points
	require.InDelta(t, 0.2, float64(points[0][1]), 1e-3, "alone it takes t0")
	for i := 1; i < len(points); i++ {
		require.GreaterOrEqual(t, points[i][1], points[i-1][1], "more load never makes it faster")
	}
	resp, body := get(t, url+"/v1/engine?name=nobody")
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
	require.JSONEq(t, `{"error":"there is no engine \"nobody\""}`, string(body))
	idle := getJSON[dashboard.EnginePage](t, url+"/v1/engine?name=other")
	require.Zero(t, idle.Engine.Load)
	for _, r := range idle.Rows {
		require.Zero(t, r.Rate)
	}
}

// TestFiles: they come packed, are not sent twice, and allow nothing from elsewhere.
func TestFiles(t *testing.T) {
	_, _, url := serveSmall(t, small)
	resp, _ := get(t, url+"/")
	require.Equal(t, http.StatusFound, resp.StatusCode)
	require.Equal(t, "/ui/", resp.Header.Get("Location"))
	resp, plain := get(t, url+"/ui/app.js", "Accept-Encoding", "identity")
	require.Equal(t, "text/javascript; charset=utf-8", resp.Header.Get("Content-Type"))
	require.Contains(t, resp.Header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self';")
	tag := resp.Header.Get("ETag")
	resp, packed := get(t, url+"/ui/app.js", "Accept-Encoding", "gzip")
	require.Equal(t, "gzip", resp.Header.Get("Content-Encoding"))
	z, err := gzip.NewReader(strings.NewReader(string(packed)))
	require.NoError(t, err)
	same, err := io.ReadAll(z)
	require.NoError(t, err)
	require.Equal(t, string(plain), string(same))
	resp, body := get(t, url+"/ui/app.js", "If-None-Match", tag)
	require.Equal(t, http.StatusNotModified, resp.StatusCode)
	require.Empty(t, body)
	for _, path := range []string{"/ui/nothing", "/ui/../admin.go", "/ui/static/app.js"} {
		resp, _ = get(t, url+path)
		require.NotEqual(t, http.StatusOK, resp.StatusCode, path)
	}
}

// TestFilesNameNobodyElse: no file of the page names another address, or has script or style
// within its markup, which the page's policy would refuse.
func TestFilesNameNobodyElse(t *testing.T) {
	files := os.DirFS("static")
	names, err := fs.Glob(files, "*")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	total := 0
	for _, name := range names {
		data, err := fs.ReadFile(files, name)
		require.NoError(t, err)
		total += len(data)
		text := strings.ReplaceAll(string(data), "http://www.w3.org/2000/svg", "")
		text = strings.ReplaceAll(text, "`http://${n[2]}/`", "") // the leader's admin address
		require.NotRegexp(t, `https?://|//[a-z]+\.[a-z]+/`, text, name)
		if strings.HasSuffix(name, ".html") {
			require.NotRegexp(t, `<script(?: [^>]*)?>[^<]|style=|<style|\son[a-z]+=`, text)
		}
		require.NotRegexp(t, regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|\beval\(|document\.write`), text, "what comes from elsewhere is never read as markup: "+name)
	}
	require.Less(t, total, 140_000, "bytes that are not packed")
}
