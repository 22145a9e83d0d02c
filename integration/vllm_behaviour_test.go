package integration

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestVLLM shows how real vLLM behaves behind wardrop. The engines take a minute to
// start, so that one pair serves all; each part leaves them well.
func TestVLLM(t *testing.T) {
	_ = real(t, "WARDROP_VLLM")
	f := startVLLMFleet(t)
	for _, part := range []struct {
		name string
		do   func(*testing.T, *vllmFleet)
	}{
		{"Metrics", vllmMetrics},
		{"LoadReport", vllmLoadReport},
		{"Stream", vllmStream},
		{"Disconnect", vllmDisconnect},
		{"BlackHole", vllmBlackHole},
		{"Overload", vllmOverload},
		{"Drain", vllmDrain},
		{"Restart", vllmRestart},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.do(t, f) }) {
			return // the rest would meet engines in any state
		}
	}
}

// vllmMetrics: the engine is found to be vLLM, and what it says of itself is seen,
// idle and under more work than its batch and its KV cache hold.
func vllmMetrics(t *testing.T, f *vllmFleet) {
	v := f.engines["first"]
	v.keep("vllm_0.32.0_idle.txt")
	f.wardrop.until("the kind is found out and the cache is known", func() bool {
		e := f.seen("first")
		return e.Kind == "vllm" && e.State == "live" && e.Reading.KVTokens != nil && *e.Reading.KVTokens == 40*128
	})
	ctx, enough := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer enough()
	for range 6 {
		clients.Go(func() {
			for ctx.Err() == nil {
				resp, err := completion(ctx, t, v.url(), "direct", 3000, true)
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}
		})
	}
	full := func() bool { return v.running() > 0 && v.metric("num_requests_waiting") > 0 }
	require.True(t, v.reached(time.Minute, func() bool { return v.metric("num_preemptions_total") > 0 && full() }),
		"four of 3000 tokens do not fit into 5120")
	v.keep("vllm_0.32.0_busy.txt")
	f.wardrop.until("the control plane sees it", func() bool {
		e := f.seen("first").Reading
		return e.Running != nil && *e.Running > 0 && e.Waiting != nil && *e.Waiting > 0 && e.KVUsage != nil && *e.KVUsage > 0.3
	})
	enough()
	clients.Wait()
	require.True(t, v.reached(10*time.Second, func() bool { return v.running() == 0 }))
	v.keep("vllm_0.32.0_after.txt")
	t.Logf("reads of the engines: %v ok, %v failed, %v did not reach them", f.count("wardrop_signals_reads_total", `"ok"`),
		f.count("wardrop_signals_reads_total", `"failed"`), f.count("wardrop_signals_reads_total", `"unreachable"`))
}

// vllmLoadReport: vLLM says how it is in whole answers, not in streams, and who
// asked for it gets it through the data plane.
func vllmLoadReport(t *testing.T, f *vllmFleet) {
	for base, where := range map[string]string{f.engines["first"].url(): "the engine", f.base: "wardrop"} {
		for _, stream := range []bool{false, true} {
			resp, err := completion(t.Context(), t, base, "report", 4, stream)
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, resp.Body)
			require.NoError(t, err)
			_ = resp.Body.Close()
			report := resp.Header.Get("endpoint-load-metrics")
			t.Logf("%s, stream %v: %q", where, stream, report)
			if stream {
				require.Empty(t, report)
				continue
			}
			require.Contains(t, report, "named_metrics.kv_cache_usage_perc=", where)
			require.Contains(t, report, "named_metrics.num_requests_waiting=", where)
		}
	}
	before := f.count("wardrop_signals_in_band_total")
	f.wardrop.until("the data plane takes reports in", func() bool {
		_, failed, _ := f.ask(1)
		require.Empty(t, failed)
		return f.count("wardrop_signals_in_band_total") > before
	})
	require.Zero(t, f.count("wardrop_signals_in_band_total", `outcome="failed"`), "none is misunderstood")
}

func vllmStream(t *testing.T, f *vllmFleet) {
	for name := range f.engines {
		resp := f.stream(name, 200)
		got := listen(resp.Body)
		_ = resp.Body.Close()
		require.NoError(t, got.err)
		require.Empty(t, got.failed)
		require.Equal(t, "length", got.finish)
		require.Equal(t, 200, got.usage)
		require.True(t, got.done)
		require.Greater(t, got.events, 100, "it came in pieces")
	}
}

// vllmDisconnect: a client that goes frees its place. The counter of aborts says
// nothing of it.
func vllmDisconnect(t *testing.T, f *vllmFleet) {
	v := f.engines["first"]
	resp := f.stream("first", 3500)
	begun := make([]byte, 100)
	_, err := io.ReadFull(resp.Body, begun)
	require.NoError(t, err)
	require.True(t, v.reached(10*time.Second, func() bool { return v.running() == 1 }))
	begin := time.Now()
	_ = resp.Body.Close()
	require.True(t, v.reached(5*time.Second, func() bool { return v.running() == 0 }), "the rest takes longer")
	t.Logf("free %v after the client went; aborts counted: %v", time.Since(begin).Round(time.Millisecond),
		v.metric("request_success_total", `finished_reason="abort"`))
}

// vllmBlackHole: the engine core stands still behind a server that answers. Health
// stays good, headers go out, gauges stay as they were. Progress tells.
func vllmBlackHole(t *testing.T, f *vllmFleet) {
	v := f.engines["first"]
	core := v.core()
	require.NoError(t, syscall.Kill(core, syscall.SIGSTOP))
	defer func() { _ = syscall.Kill(core, syscall.SIGCONT) }()
	stood := v.tokens()
	begin := time.Now()
	by, failed, longest := f.ask(24)
	t.Logf("24 requests in %v, longest %v, by %v, stalled %v", time.Since(begin).Round(time.Millisecond), longest.Round(time.Millisecond),
		by, f.count("wardrop_proxy_attempts_total", `outcome="stalled"`))
	require.Empty(t, failed, "what waited for it went elsewhere")
	require.Equal(t, 24, by["second"])
	require.Less(t, longest, 15*time.Second)
	require.Positive(t, f.count("wardrop_proxy_attempts_total", `engine="first"`, `outcome="stalled"`))
	require.Equal(t, 200, status(v.url()+"/health"), "it says that it is well")
	require.Equal(t, stood, v.tokens())

	require.NoError(t, syscall.Kill(core, syscall.SIGCONT))
	require.True(t, v.reached(time.Minute, func() bool {
		by, failed, _ := f.ask(1)
		require.Empty(t, failed)
		return by["first"] > 0
	}), "it comes back")
}

// vllmOverload: an engine that takes no more says 503. In a burst it finds that out
// late, when the status of a stream has gone out already, and says it within.
func vllmOverload(t *testing.T, f *vllmFleet) {
	v := f.engines["second"]
	const taken, burst = 6, 20
	status, inStream := make(chan int, burst), make(chan tale, burst)
	var clients sync.WaitGroup
	for range burst {
		clients.Go(func() {
			resp, err := completion(t.Context(), t, v.url(), "burst", 1500, true)
			if err != nil {
				return
			}
			defer func() { _ = resp.Body.Close() }()
			status <- resp.StatusCode
			if resp.StatusCode == 200 {
				inStream <- listen(resp.Body)
			}
		})
	}
	require.True(t, v.reached(time.Minute, func() bool { return v.running()+v.metric("num_requests_waiting") == taken }))
	whole, err := completion(t.Context(), t, v.url(), "one more", 4, false)
	require.NoError(t, err)
	body, err := io.ReadAll(whole.Body)
	require.NoError(t, err)
	_ = whole.Body.Close()
	clients.Wait()
	close(status)
	close(inStream)
	refused, within, served := 0, 0, 0
	for code := range status {
		if code == 503 {
			refused++
		}
	}
	for got := range inStream {
		if strings.Contains(got.failed, "503") {
			require.Equal(t, 1, got.events)
			require.True(t, got.done)
			within++
		} else if got.finish == "length" {
			served++
		}
	}
	t.Logf("whole: %d, Retry-After %q, %s", whole.StatusCode, whole.Header.Get("Retry-After"), body)
	t.Logf("%d streams at once: %d served, %d refused by status, %d within the stream", burst, served, refused, within)
	require.Equal(t, 503, whole.StatusCode)
	require.Equal(t, taken, served)
	require.Equal(t, burst-taken, refused+within)
	require.Equal(t, float64(burst-taken+1), v.metric("admission_rejections_total"))
}

// vllmDrain: with a time to shut down, streams end well; without, they end as if they
// were whole but for the reason.
func vllmDrain(t *testing.T, f *vllmFleet) {
	resp := f.stream("second", 3000)
	defer func() { _ = resp.Body.Close() }()
	told := make(chan tale, 1)
	go func() { told <- listen(resp.Body) }()
	v := f.engines["second"]
	require.True(t, v.reached(10*time.Second, func() bool { return v.running() == 1 }))
	_ = v.cmd.Process.Signal(syscall.SIGTERM)
	by, failed, _ := f.ask(12)
	t.Logf("while it drains: health %d, 12 requests by %v, failed %v", status(v.url()+"/health"), by, failed)
	got := <-told
	require.NoError(t, got.err)
	require.Equal(t, "length", got.finish)
	require.Equal(t, 3000, got.usage)
	<-v.done
	t.Logf("the stream ended with %d tokens, %q", got.usage, got.finish)
	f.engines["second"] = f.restarted(t, "second")

	failures := f.count("wardrop_proxy_attempts_total", `engine="first"`, `outcome="failure"`)
	cut := f.stream("first", 3000)
	defer func() { _ = cut.Body.Close() }()
	go func() { told <- listen(cut.Body) }()
	v = f.engines["first"]
	require.True(t, v.reached(10*time.Second, func() bool { return v.running() == 1 }))
	_ = v.cmd.Process.Signal(syscall.SIGTERM)
	got = <-told
	t.Logf("without a time: %d events, finish_reason %q, [DONE] %v, %v", got.events, got.finish, got.done, got.err)
	require.Equal(t, "abort", got.finish)
	require.True(t, got.done)
	f.wardrop.until("it counts as a failure", func() bool {
		return f.count("wardrop_proxy_attempts_total", `engine="first"`, `outcome="failure"`) > failures
	})
	<-v.done
	f.engines["first"] = f.restarted(t, "first")
}

// restarted starts an engine anew where it was and waits until it gets requests.
func (f *vllmFleet) restarted(t *testing.T, name string) *vllm {
	t.Helper()
	old := f.engines[name]
	old.group(syscall.SIGKILL)
	v := newVLLM(f.t, old.addr, old.options...)
	v.t = t
	v.ready()
	cold := false
	require.True(t, v.reached(time.Minute, func() bool {
		e := f.seen(name)
		cold = cold || e.Ramp > 0 && e.Ramp < 1
		if e.State != "live" {
			return false
		}
		by, failed, _ := f.ask(1)
		require.Empty(t, failed)
		return by[name] > 0
	}), "it comes back")
	require.True(t, cold, "a new run of the process is taken for one: it starts cold")
	v.t = f.t
	return v
}

// vllmRestart: a crash of the engine core, then of all.
func vllmRestart(t *testing.T, f *vllmFleet) {
	v := f.engines["first"]
	resp := f.stream("first", 3000)
	defer func() { _ = resp.Body.Close() }()
	told := make(chan tale, 1)
	go func() { told <- listen(resp.Body) }()
	require.True(t, v.reached(10*time.Second, func() bool { return v.running() == 1 }))
	start := processStart(t, v)
	require.NoError(t, syscall.Kill(v.core(), syscall.SIGKILL))
	got := <-told
	t.Logf("the core dies: %d events, error %q, [DONE] %v, %v", got.events, got.failed, got.done, got.err)
	require.Contains(t, got.failed, "EngineCore")
	by, failed, _ := f.ask(12)
	t.Logf("12 requests after: by %v, failed %v", by, failed)
	<-v.done
	v = f.restarted(t, "first")
	f.engines["first"] = v
	require.Greater(t, processStart(t, v), start)
}

func processStart(t *testing.T, v *vllm) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.url()+"/metrics", nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	page, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	for line := range strings.Lines(string(page)) {
		if v, ok := strings.CutPrefix(line, "process_start_time_seconds "); ok {
			return strings.TrimSpace(v)
		}
	}
	t.Fatal("the page names no start")
	return ""
}
