package main

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/admin"
	"github.com/wardrop-lb/wardrop/explain"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/internal/testaddr"
)

// traffic is clients that ask at a steady rate, whatever becomes of the answers.
type traffic struct {
	t        *testing.T
	stop     context.CancelFunc
	running  sync.WaitGroup
	answered atomic.Int64

	mu       sync.Mutex
	failures []string
}

// send starts traffic; every other request asks for a stream if streams is set.
func send(t *testing.T, base string, rate float64, streams bool) *traffic {
	ctx, stop := context.WithCancel(context.Background())
	x := &traffic{t: t, stop: stop}
	x.running.Go(func() {
		tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			x.running.Go(func() { x.ask(base, streams && n%2 == 0) })
		}
	})
	t.Cleanup(func() { stop(); x.running.Wait() })
	return x
}

func (x *traffic) ask(base string, stream bool) {
	a, err := ask(base, "demo", 16, stream)
	if err == nil && a.status == http.StatusOK && (!stream || strings.HasSuffix(a.body, "data: [DONE]\n\n")) {
		x.answered.Add(1)
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.failures = append(x.failures, fmt.Sprintf("%s: stream %t: status %d, error %v, engine %q: %.300s",
		time.Now().Format("15:04:05.000"), stream, a.status, err, a.engine, a.body))
}

// more waits for that many further answers.
func (x *traffic) more(n int64) {
	x.t.Helper()
	until := x.answered.Load() + n
	require.Eventually(x.t, func() bool { return x.answered.Load() >= until }, patience, poll)
}

// end stops the traffic and wants that nothing has failed.
func (x *traffic) end() {
	x.t.Helper()
	x.stop()
	x.running.Wait()
	require.Empty(x.t, x.failures)
}

// roles is a fleet of processes: a control plane, a data plane, two engines.
type roles struct {
	t              *testing.T
	rate           float64 // expected
	file           string
	saved          string // the data plane's snapshot on disk
	base, planeURL string // of the data plane: requests, admin
	controlURL     string // admin
	addrs          map[string]string
	engines        map[string]*process
	control, proxy *process
}

// Engines are unlike, so that weights say something. Their latency is short, so
// that a crash finds few requests in them.
const rolesFile = `
control: {listen: %q, admin: %q, data: %q}
policy: {tick: 500ms}
proxy: {data: %q}
signals: {interval: 200ms, report: 200ms}
clusters:
  - {name: c, region: r, listen: %q, admin: %q, distances: {r: 1ms}}
engines:
  - {name: big, region: r, url: "http://%s", models: [demo], profile: {t0: 100ms, u_max: 150, batch: 64}}
  - {name: small, region: r, url: "http://%s", models: [demo], profile: {t0: 100ms, u_max: 75, batch: 32}}
demand:
  - {cluster: c, model: demo, rate: %v}
`

func newRoles(t *testing.T, rate float64) *roles {
	t.Helper()
	dir := t.TempDir()
	listen, planeAdmin, controlAdmin := testaddr.Own(t), testaddr.Own(t), testaddr.Own(t)
	r := &roles{
		t: t, rate: rate, saved: filepath.Join(dir, "proxy", "c.snapshot"), base: "http://" + listen,
		planeURL: "http://" + planeAdmin, controlURL: "http://" + controlAdmin,
		addrs: map[string]string{"big": testaddr.Own(t), "small": testaddr.Own(t)}, engines: map[string]*process{},
	}
	r.file = filepath.Join(dir, "wardrop.yaml")
	writeFile(t, r.file, fmt.Sprintf(rolesFile, testaddr.Own(t), controlAdmin, filepath.Join(dir, "control"),
		filepath.Join(dir, "proxy"), listen, planeAdmin, r.addrs["big"], r.addrs["small"], rate))
	r.startEngine("big")
	r.startEngine("small")
	r.startControl()
	r.startProxy()
	r.proxy.until("the data plane has a snapshot", func() bool { return status(r.planeURL+"/readyz") == http.StatusOK })
	return r
}

func (r *roles) startEngine(name string) {
	r.t.Helper()
	size := map[string][]string{"big": {"--u-max", "150", "--batch", "64"}, "small": {"--u-max", "75", "--batch", "32"}}
	r.engines[name] = startEngine(r.t, name, r.addrs[name], size[name]...)
}

func (r *roles) startControl() {
	r.t.Helper()
	r.control = start(r.t, "control", "-c", r.file)
	r.control.says("control plane: data planes at ")
}

func (r *roles) startProxy() {
	r.t.Helper()
	r.proxy = start(r.t, "proxy", "-c", r.file, "--cluster", "c", "--log-level", "debug")
	r.proxy.says("data plane of c: OpenAI requests at " + r.base + "/v1, admin at " + r.planeURL)
}

// snapshot is what the data plane routes by.
func (r *roles) snapshot() *fleet.Snapshot {
	r.t.Helper()
	var s fleet.Snapshot
	require.True(r.t, get(r.planeURL+"/v1/snapshot", &s))
	return &s
}

// plan is the control plane's; nil while it has none.
func (r *roles) plan() *explain.Plan {
	var p explain.Plan
	if !get(r.controlURL+"/v1/plan", &p) {
		return nil
	}
	return &p
}

// attempts counts what the data plane sent to an engine.
func (r *roles) attempts(engine string) uint64 {
	var stats []struct {
		Engine   string
		Requests uint64
	}
	get(r.planeURL+"/v1/engines", &stats)
	for _, s := range stats {
		if s.Engine == engine {
			return s.Requests
		}
	}
	return 0
}

// settled waits until the plan rests on measured demand and both planes agree on it.
func (r *roles) settled() *fleet.Snapshot {
	r.t.Helper()
	var s fleet.Snapshot
	r.proxy.until("the data plane routes by the control plane's newest plan, made of measured demand", func() bool {
		p := r.plan()
		return p != nil && len(p.Rows) == 1 && p.Rows[0].Rate != r.rate && math.Abs(p.Rows[0].Rate-r.rate) < r.rate/10 &&
			get(r.planeURL+"/v1/snapshot", &s) && s.Epoch == p.Epoch && s.Version == p.Version
	})
	return &s
}

// weightsOf gives a snapshot's weights by engine.
func weightsOf(s *fleet.Snapshot) map[string]float64 {
	w := map[string]float64{}
	for _, x := range s.Rows[0].Targets {
		w[s.Engines[x.Engine].Name] = x.Weight
	}
	return w
}

func requireSameWeights(t *testing.T, want, got *fleet.Snapshot) {
	t.Helper()
	for name, w := range weightsOf(want) {
		require.InDelta(t, w, weightsOf(got)[name], 0.03, name)
	}
}

// TestControlPlaneCrash: without a control plane the data plane goes on by the
// weights it has; the next leader takes a higher epoch and goes on from there.
func TestControlPlaneCrash(t *testing.T) {
	t.Parallel()
	r := newRoles(t, 60)
	x := send(t, r.base, 60, true)
	before := r.settled()
	require.Greater(t, weightsOf(before)["big"], weightsOf(before)["small"])
	require.Positive(t, weightsOf(before)["small"])

	r.control.kill()
	x.more(180)
	during := r.snapshot()
	require.GreaterOrEqual(t, during.Version, before.Version)
	require.Equal(t, before.Epoch, during.Epoch)
	requireSameWeights(t, before, during)
	x.more(60)
	require.Equal(t, during, r.snapshot(), "nothing changes while nobody leads")

	r.startControl()
	after := r.settled()
	require.Greater(t, after.Epoch, before.Epoch)
	requireSameWeights(t, before, after)
	x.more(60)
	requireSameWeights(t, before, r.snapshot())
	x.end()
	log := r.proxy.log.String()
	require.Equal(t, 1, strings.Count(log, "level=WARN"), "said once, not at every attempt")
	require.Contains(t, log, `msg="weight path lost; routing goes on by the last snapshot"`)
	require.Contains(t, log, `msg="weight path restored"`)
	require.NotContains(t, log, "level=ERROR")
}

// TestDataPlaneRestart does it without a control plane.
func TestDataPlaneRestart(t *testing.T) {
	t.Parallel()
	r := newRoles(t, 60)
	x := send(t, r.base, 60, true)
	r.settled()
	x.end()
	r.proxy.until("it is saved", func() bool { _, err := os.Stat(r.saved); return err == nil })
	r.control.kill()
	before := r.snapshot()

	// 160 tokens take about a second: the signal comes in the middle.
	const asked = 8
	var answers [asked]answer
	var errs [asked]error
	var wg sync.WaitGroup
	for i := range asked {
		wg.Go(func() { answers[i], errs[i] = ask(r.base, "demo", 160, i%2 == 0) })
	}
	r.proxy.until("they are in flight", func() bool {
		var stats []struct {
			InFlight int `json:"in_flight"`
		}
		sum := 0
		get(r.planeURL+"/v1/engines", &stats)
		for _, s := range stats {
			sum += s.InFlight
		}
		return sum == asked
	})
	require.Zero(t, r.proxy.stop(syscall.SIGTERM))
	wg.Wait()
	for i, a := range answers {
		require.NoError(t, errs[i])
		require.Equal(t, http.StatusOK, a.status)
		if i%2 == 0 {
			require.True(t, strings.HasSuffix(a.body, "data: [DONE]\n\n"))
		}
	}
	requireRefused(t, strings.TrimPrefix(r.base, "http://"))

	r.startProxy()
	saved := r.snapshot()
	require.LessOrEqual(t, before.Time.Sub(saved.Time), before.GoodFor, "what is only renewed is not saved each time")
	before.Time = saved.Time
	require.Equal(t, before, saved)
	x = send(t, r.base, 60, true)
	x.more(60)
	x.end()

	require.Zero(t, r.proxy.stop(syscall.SIGTERM))
	data, err := os.ReadFile(r.saved)
	require.NoError(t, err)
	data[len(data)/2] ^= 0x40
	require.NoError(t, os.WriteFile(r.saved, data, 0o600))
	r.startProxy()
	r.proxy.logs(`level=WARN msg="starting without the saved snapshot"`)
	require.Contains(t, r.proxy.log.String(), "its checksum does not match")
	aside, err := os.ReadFile(r.saved + ".corrupt")
	require.NoError(t, err)
	require.Equal(t, data, aside)
	require.NoFileExists(t, r.saved)
	require.Equal(t, http.StatusServiceUnavailable, status(r.planeURL+"/readyz"))
	a, err := ask(r.base, "demo", 1, false)
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Contains(t, a.body, `"no_snapshot"`)

	r.startControl()
	r.proxy.until("the data plane is ready", func() bool { return status(r.planeURL+"/readyz") == http.StatusOK })
	a = requireAnswer(t, r.base, "demo")
	code, out, errors := wardrop(t, "why", "request", a.id, "-c", r.file)
	require.Zero(t, code, errors)
	require.Contains(t, out, a.engine+" was asked and began to answer after ")
	require.Contains(t, out, "The answer had status 200")
	code, _, errors = wardrop(t, "why", "request", "nobody-1", "-c", r.file)
	require.Equal(t, 1, code)
	require.Contains(t, errors, "this data plane made no such decision")
	require.Greater(t, r.snapshot().Epoch, before.Epoch)
	requireSameWeights(t, before, r.snapshot())
	r.proxy.until("it is saved again", func() bool { _, err := os.Stat(r.saved); return err == nil })
}

// TestEngineCrash: no client sees it, the plan drops the engine and takes it
// back. The rate is such that the engine is missed: then it is back once its
// penalty has fallen below the queue at the other.
func TestEngineCrash(t *testing.T) {
	t.Parallel()
	r := newRoles(t, 90)
	x := send(t, r.base, r.rate, false)
	r.settled()

	r.engines["small"].kill()
	killed := time.Now()
	r.control.until("the plan drops the dead engine", func() bool {
		_, there := r.plan().Engines["small"]
		return !there
	})
	require.Less(t, time.Since(killed), 5*time.Second)
	r.proxy.until("the data plane follows", func() bool { return weightsOf(r.snapshot())["small"] == 0 })
	x.more(90)

	r.startEngine("small")
	sent, restarted := r.attempts("small"), time.Now()
	r.control.until("the plan knows the engine again", func() bool { _, there := r.plan().Engines["small"]; return there })
	r.proxy.until("it gets traffic again", func() bool { return r.attempts("small") > sent+30 })
	t.Logf("traffic %.1f s after the restart", time.Since(restarted).Seconds())
	x.end()

	var s admin.Status
	require.True(t, get(r.controlURL+"/v1/status", &s))
	require.Empty(t, s.Trouble)
	require.Len(t, s.DataPlanes, 1)
	require.Empty(t, s.DataPlanes[0].Refused)
}
