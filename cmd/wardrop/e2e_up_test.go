package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/internal/testaddr"
	"github.com/wardrop-lb/wardrop/internal/testturn"
)

var (
	readyLine = regexp.MustCompile(`(?m)^Ready after (\d+\.\d) s\.`)
	planeLine = regexp.MustCompile(`(?m)^  (\S+) +(http://\S+)/v1   models: (.*)$`)
	adminLine = regexp.MustCompile(`(?m)^Admin: control plane (http://\S+?)((?:, \S+ http://\S+?)+)$`)
	whyLine   = regexp.MustCompile(`(?m)^  wardrop (why weight .*)$`)
)

// ready is what `up` says once it routes.
type ready struct {
	seconds float64
	urls    map[string]string // of the data planes, by cluster
	models  map[string]string
	admins  map[string]string // of the data planes, by cluster
	control string            // admin URL
	why     []string          // the command it proposes
}

func (p *process) ready() ready {
	p.t.Helper()
	text := p.says("\nAdmin: ")
	p.until("the last line is whole", func() bool { text = p.stdout.String(); return adminLine.MatchString(text) })
	r := ready{urls: map[string]string{}, models: map[string]string{}, admins: map[string]string{}}
	m := readyLine.FindStringSubmatch(text)
	require.NotNil(p.t, m, text)
	var err error
	r.seconds, err = strconv.ParseFloat(m[1], 64)
	require.NoError(p.t, err)
	for _, m := range planeLine.FindAllStringSubmatch(text, -1) {
		r.urls[m[1]], r.models[m[1]] = m[2], m[3]
	}
	m = adminLine.FindStringSubmatch(text)
	r.control = m[1]
	for part := range strings.SplitSeq(strings.TrimPrefix(m[2], ", "), ", ") {
		cluster, url, _ := strings.Cut(part, " ")
		r.admins[cluster] = url
	}
	m = whyLine.FindStringSubmatch(text)
	require.NotNil(p.t, m, text)
	r.why = strings.Fields(m[1])
	return r
}

func readReport(t *testing.T, path string) (r upReport) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &r))
	return r
}

// requireReportKeys holds the report to its form, key by key: others parse it.
func requireReportKeys(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var report any
	require.NoError(t, json.Unmarshal(data, &report))
	top := requireKeys(t, report, "requests", "engines", "plan", "load", "seconds")
	require.NotEmpty(t, top["requests"])
	for _, x := range top["requests"].([]any) {
		requireKeys(t, x, "cluster", "model", "engine", "count", "failed")
	}
	for _, e := range top["engines"].(map[string]any) {
		requireKeys(t, e, "load", "capacity")
	}
	requireKeys(t, top["plan"], "epoch", "version", "policy", "objective", "bound", "gap", "rows", "engines")
}

// requireNothingLost checks that every request of the load was answered and that
// the report's parts tell the same.
func requireNothingLost(t *testing.T, r upReport) {
	t.Helper()
	require.NotNil(t, r.Load)
	require.Zero(t, r.Load.Failed, r.Load.LastError)
	require.Zero(t, r.Load.Shed)
	require.Positive(t, r.Load.Sent)
	require.Equal(t, r.Load.Sent, r.Load.Succeeded)
	attempts, loads := uint64(0), 0.0
	for _, x := range r.Requests {
		require.Zero(t, x.Failed, x)
		attempts += x.Count
	}
	require.Equal(t, r.Load.Sent, attempts)
	for _, e := range r.Engines {
		loads += e.Load
	}
	require.InEpsilon(t, float64(attempts)/r.Seconds, loads, 1e-6)
}

func TestUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	begin := time.Now()
	p := start(t, "up", "--for", "3s", "--load", "--report", path)
	r := p.ready()
	require.Less(t, time.Since(begin), 5*time.Second)
	require.Less(t, r.seconds, 5.0)
	require.Equal(t, map[string]string{"america": "demo, demo-large", "europe": "demo, demo-large"}, r.models)
	requireAnswer(t, r.urls["europe"], "demo-large")
	a, err := ask(r.urls["america"], "demo", 4, true)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(a.body, "data: [DONE]\n\n"), a.body)

	require.Zero(t, p.wait())
	require.Regexp(t, `(?m)^load: \d+ sent, \d+ answered, 0 shed, 0 failed$`, p.stdout.String())
	require.Regexp(t, `(?m)^CLUSTER +MODEL +ENGINE +WEIGHT +REQ/S +FIRST BYTE +IN FLIGHT +REQUESTS +FAILED$`, p.stdout.String())
	require.Regexp(t, `(?m)^europe +demo +eu-1 +0\.\d{3} +\d+\.\d +\d+ ms +0 +\d+ +0$`, p.stdout.String())
	require.Regexp(t, `(?m)^plan 1\.\d+ \(epoch\.version\), policy optimal, gap \S+, tick \d+\.\d ms$`, p.stdout.String())
	require.NotContains(t, p.stdout.String(), "\x1b", "no terminal, nothing to draw over")
	requireReportKeys(t, path)
	report := readReport(t, path)
	require.Zero(t, report.Load.Failed, report.Load.LastError)
	require.Equal(t, report.Load.Sent, report.Load.Succeeded)
	require.Len(t, report.Engines, 5)
	require.Len(t, report.Plan.Rows, 4)
	require.LessOrEqual(t, report.Plan.Gap, 1e-4)
	require.InDelta(t, 3, report.Seconds, 1)
	require.NotContains(t, p.log.String(), "level=ERROR")
}

func TestUpStopsWhenTold(t *testing.T) {
	for name, signal := range map[string]os.Signal{"SIGINT": os.Interrupt, "SIGTERM": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, "up", "--load", "--quiet")
			r := p.ready()
			var s fleet.Snapshot
			require.True(t, get(r.admins["europe"]+"/v1/snapshot", &s))
			require.Zero(t, p.stop(signal))
			for _, url := range r.urls {
				requireRefused(t, strings.TrimPrefix(url, "http://"))
			}
			for _, e := range s.Engines {
				requireRefused(t, strings.TrimPrefix(e.URL, "http://"))
			}
			require.NotContains(t, p.stdout.String(), "CLUSTER", "--quiet draws no table")
			require.NotContains(t, p.log.String(), "level=WARN")
			require.NotContains(t, p.log.String(), "level=ERROR")
		})
	}
}

// TestASecondSignalEndsAtOnce: the first lets what is in flight finish, and a
// person who does not want to wait for it says so again.
func TestASecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	p := start(t, "up", "--quiet")
	r := p.ready()
	answered := make(chan error, 1)
	go func() {
		_, err := ask(r.urls["europe"], "demo", 8000, false)
		answered <- err
	}()
	p.until("it is in flight", func() bool {
		var stats []struct {
			InFlight int `json:"in_flight"`
		}
		get(r.admins["europe"]+"/v1/engines", &stats)
		for _, s := range stats {
			if s.InFlight > 0 {
				return true
			}
		}
		return false
	})
	begin := time.Now()
	for ended := false; !ended; {
		_ = p.cmd.Process.Signal(os.Interrupt)
		select {
		case <-p.done:
			ended = true
		case <-time.After(poll):
		}
	}
	require.Less(t, time.Since(begin), 20*time.Second, "less than what is in flight may take")
	require.Error(t, <-answered)
}

func TestUpThatHadNoTimeSaysSo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	code, _, stderr := command(t, "up", "--for", "1ns", "--report", path)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "wardrop: --for: the time was up before every data plane could route\n")
	require.NoFileExists(t, path)
}

// TestUpTalk runs the talk's example through real sockets: what the optimizer
// promises is what the engines get.
func TestUpTalk(t *testing.T) {
	testturn.Take(t)
	path := filepath.Join(t.TempDir(), "report.json")
	p := start(t, "up", "--scenario", "talk", "--for", "15s", "--report", path)
	p.ready()
	require.Zero(t, p.wait())
	r := readReport(t, path)
	requireNothingLost(t, r)
	counts := map[string]float64{}
	for _, x := range r.Requests {
		counts[x.Cluster+" to "+x.Engine] += float64(x.Count)
	}
	require.InDelta(t, 0.25, counts["a to far"]/(counts["a to far"]+counts["a to near"]), 0.03)
	require.Zero(t, counts["c to near"])
	for name, e := range r.Engines {
		require.LessOrEqual(t, e.Load, e.Capacity, name)
	}
	require.LessOrEqual(t, r.Plan.Gap, 1e-4)
}

// TestUpTakesOtherPortsThanTheDemos: a port of a built-in configuration that is
// taken stops nobody; one that a file names does.
func TestUpTakesOtherPortsThanTheDemos(t *testing.T) {
	p := start(t, "up", "--quiet")
	first := p.ready()
	q := start(t, "up", "--quiet")
	second := q.ready()
	require.NotEqual(t, first.control, second.control)
	requireAnswer(t, second.urls["europe"], "demo")

	// The commands that it proposes work.
	code, stdout, stderr := command(t, second.why...)
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "demo at europe: ")

	taken := strings.TrimPrefix(first.control, "http://")
	file := newFile(t, fmt.Sprintf("control: {admin: %q}\n", taken)+valid)
	code, _, stderr = command(t, "up", "-c", file)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "wardrop: admin: listen tcp "+taken+": bind: address already in use\n")
}

// startEngine runs an engine as a process of its own.
func startEngine(t *testing.T, name, addr string, more ...string) *process {
	t.Helper()
	p := start(t, append([]string{"testengine", "--name", name, "--listen", addr, "--t0", "100ms"}, more...)...)
	p.says("test engine " + name + ": OpenAI requests at http://" + addr + "/v1")
	return p
}

// TestUpInFrontOfRunningEngines has two engines of its own and one to simulate.
func TestUpInFrontOfRunningEngines(t *testing.T) {
	one, two, listen := testaddr.Own(t), testaddr.Own(t), testaddr.Own(t)
	startEngine(t, "one", one)
	startEngine(t, "two", two)
	path := filepath.Join(t.TempDir(), "report.json")
	p := start(t, "up", "--for", "4s", "--load", "--report", path, "-c", newFile(t, fmt.Sprintf(`
control: {admin: %q}
clusters:
  - {name: here, region: r, listen: %q, distances: {r: 1ms}}
engines:
  - {name: one, region: r, url: "http://%s", models: [demo], profile: {t0: 100ms, u_max: 125, batch: 200}}
  - {name: two, region: r, url: "http://%s", models: [demo], profile: {t0: 100ms, u_max: 125, batch: 200}}
  - {name: three, region: r, models: [demo], profile: {t0: 100ms, u_max: 125, batch: 200}}
demand:
  - {cluster: here, model: demo, rate: 45}
`, testaddr.Own(t), listen, one, two)))
	r := p.ready()
	require.Equal(t, "http://"+listen, r.urls["here"])
	seen := map[string]bool{}
	p.until("every engine has answered", func() bool {
		seen[requireAnswer(t, r.urls["here"], "demo").engine] = true
		return len(seen) == 3
	})
	require.Zero(t, p.wait())
	report := readReport(t, path)
	require.Zero(t, report.Load.Failed, report.Load.LastError)
	for _, name := range []string{"one", "two", "three"} {
		require.Positive(t, report.Engines[name].Load, name)
	}
	// They are not `up`'s to end.
	require.Equal(t, http.StatusOK, status("http://"+one+"/health"))
}

// TestUpAppliesDistances compares the way to an engine 150 ms away with asking it
// without a network between. The minimum of several is free of the machine's noise.
func TestUpAppliesDistances(t *testing.T) {
	const distance = 150 * time.Millisecond
	p := start(t, "up", "--quiet", "-c", newFile(t, fmt.Sprintf(`
control: {admin: %q}
policy: {name: static}
clusters:
  - {name: a, region: a, distances: {a: 5ms, c: %s}}
engines:
  - {name: near, region: a, models: [demo], profile: {t0: 200ms, u_max: 125, batch: 200}}
  - {name: far, region: c, models: [demo], profile: {t0: 200ms, u_max: 125, batch: 200}}
`, testaddr.Own(t), distance)))
	r := p.ready()
	least := map[string]time.Duration{}
	count := map[string]int{}
	see := func(name string, a answer) {
		if d, ok := least[name]; !ok || a.took < d {
			least[name] = a.took
		}
		count[name]++
	}
	p.until("both engines have answered several times", func() bool {
		a := requireAnswer(t, r.urls["a"], "demo")
		see(a.engine, a)
		return count["near"] >= 8 && count["far"] >= 8
	})
	var s fleet.Snapshot
	require.True(t, get(r.admins["a"]+"/v1/snapshot", &s))
	for _, e := range s.Engines {
		for range 8 {
			see("network-free "+e.Name, requireAnswer(t, e.URL, "demo"))
		}
	}
	const noise = 2 * time.Millisecond
	require.GreaterOrEqual(t, least["far"], least["network-free far"]+distance-noise)
	require.GreaterOrEqual(t, least["near"], least["network-free near"]+5*time.Millisecond-noise)
	require.Less(t, least["near"], least["far"]-distance/2)
	// What the plan rests on is measured, and right.
	for _, x := range s.Rows[0].Targets {
		want := map[string]float64{"near": 0.005, "far": distance.Seconds()}[s.Engines[x.Engine].Name]
		require.InDelta(t, want, x.Network, 0.02)
	}
}
