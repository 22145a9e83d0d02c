package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/internal/testaddr"
)

// vllm is one real vLLM: the server that answers, an engine core and a worker, in a
// process group of their own.
type vllm struct {
	*process
	addr    string
	options []string
}

// newVLLM starts an engine; ready waits for it. It takes half a minute and more.
func newVLLM(t *testing.T, addr string, options ...string) *vllm {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	p := &process{t: t, done: make(chan struct{})}
	p.cmd = exec.Command(real(t, "WARDROP_VLLM"), append([]string{"serve", port}, options...)...)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	v := &vllm{process: p, addr: addr, options: options}
	t.Cleanup(func() {
		v.group(syscall.SIGCONT)
		p.stop(syscall.SIGTERM)
		v.group(syscall.SIGKILL) // what its parent left
		if t.Failed() {
			t.Logf("vLLM on %s said:\n%s", addr, p.log.tail())
		}
	})
	return v
}

func (v *vllm) ready() {
	v.t.Helper()
	for range 5 { // a minute each
		if v.reached(time.Minute, func() bool { return status(v.url()+"/health") == 200 }) {
			return
		}
	}
	v.t.Fatalf("vLLM is not healthy after five minutes:\n%s", v.log.tail())
}

// reached polls until ok, and says whether it came to that in time.
func (v *vllm) reached(within time.Duration, ok func() bool) bool {
	v.t.Helper()
	deadline := time.Now().Add(within)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-v.done:
			v.t.Fatalf("vLLM ended:\n%s", v.log.tail())
		case <-tick.C:
		}
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

func (v *vllm) url() string { return "http://" + v.addr }

func (v *vllm) group(s syscall.Signal) { _ = syscall.Kill(-v.cmd.Process.Pid, s) }

// core gives the process that computes: a child of the server of that name.
func (v *vllm) core() int {
	v.t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(v.t, err)
	for _, file := range stats {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		end := strings.LastIndexByte(string(b), ')')
		fields := strings.Fields(string(b[end+1:])) // state, parent, group
		if strings.Contains(string(b[:end]), "EngineCor") && fields[2] == strconv.Itoa(v.cmd.Process.Pid) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			require.NoError(v.t, err)
			return pid
		}
	}
	v.t.Fatal("the engine core is not found")
	return 0
}

// metric adds up the series of a name whose labels hold what is given; -1 while the
// page cannot be had.
func (v *vllm) metric(name string, labels ...string) float64 {
	page, sum := get(v.url()+"/metrics"), 0.0
	if page == "" {
		return -1
	}
lines:
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "vllm:"+name+"{") {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(line, l) {
				continue lines
			}
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
		require.NoError(v.t, err, line)
		sum += value
	}
	return sum
}

func (v *vllm) running() float64 { return v.metric("num_requests_running") }
func (v *vllm) tokens() float64  { return v.metric("generation_tokens_total") }

// keep leaves the page of metrics where somebody asked for it.
func (v *vllm) keep(name string) {
	v.t.Helper()
	page := get(v.url() + "/metrics")
	require.Contains(v.t, page, "vllm:num_requests_running")
	if dir := os.Getenv("WARDROP_VLLM_PAGES"); dir != "" {
		require.NoError(v.t, os.WriteFile(filepath.Join(dir, name), []byte(page), 0o600))
	}
}

// completion asks for so many tokens, at once or as a stream. The caller closes the body.
func completion(ctx context.Context, t *testing.T, base, session string, tokens int, stream bool) (*http.Response, error) {
	t.Helper()
	body := fmt.Sprintf(`{"model":"tiny","prompt":%q,"max_tokens":%d,"ignore_eos":true,"stream":%v,"stream_options":%s}`,
		"This is "+session, tokens, stream, map[bool]string{true: `{"include_usage":true}`, false: "null"}[stream])
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/completions", strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("x-session-id", session)
	req.Header.Set("endpoint-load-metrics-format", "TEXT")
	return http.DefaultClient.Do(req)
}

// tale is what came of a stream.
type tale struct {
	events int
	finish string // the last finish_reason
	usage  int    // tokens, as the stream says
	failed string // an error event
	done   bool
	err    error
}

func listen(r io.Reader) (s tale) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			s.done = true
			continue
		}
		s.events++
		var event struct {
			Error   json.RawMessage
			Choices []struct {
				FinishReason string `json:"finish_reason"`
			}
			Usage struct {
				Completion int `json:"completion_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			s.failed = "not JSON: " + data
			continue
		}
		s.failed += string(event.Error)
		s.usage = max(s.usage, event.Usage.Completion)
		for _, c := range event.Choices {
			if c.FinishReason != "" {
				s.finish = c.FinishReason
			}
		}
	}
	s.err = lines.Err()
	return s
}

// vllmFleet is two engines of which nobody says the kind, and wardrop in front.
type vllmFleet struct {
	t       *testing.T
	wardrop *process
	base    string // of the data plane, without a path
	control string // the admin API
	proxy   string // the data plane's
	engines map[string]*vllm
}

func startVLLMFleet(t *testing.T) *vllmFleet {
	t.Helper()
	first := newVLLM(t, testaddr.Own(t))
	second := newVLLM(t, testaddr.Own(t), "--shutdown-timeout", "30", "--max-num-queued-reqs", "6")
	first.ready()
	second.ready()
	path, err := binary()
	require.NoError(t, err)
	dir, listen, admin, data := t.TempDir(), testaddr.Own(t), testaddr.Own(t), testaddr.Own(t)
	file := filepath.Join(dir, "wardrop.yaml")
	profile := "profile: {t0: 200ms, u_max: 50, batch: 4}"
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
control: {listen: %q, admin: %q, store: memory, data: %q}
policy: {tick: 500ms}
signals: {interval: 250ms, models_interval: 1s}
proxy: {data: %q, stall_after: 2s}
clusters:
  - {name: here, region: local, listen: %q, admin: %q, distances: {local: 1ms}}
engines:
  - {name: first, region: local, url: %q, kind: auto, %s}
  - {name: second, region: local, url: %q, kind: auto, %s}
demand:
  - {cluster: here, model: tiny, rate: 2}
`, testaddr.Own(t), admin, dir, dir, listen, data, first.url(), profile, second.url(), profile), 0o600))
	f := &vllmFleet{t: t, base: "http://" + listen, control: "http://" + admin, proxy: "http://" + data,
		engines: map[string]*vllm{"first": first, "second": second}}
	f.wardrop = run(t, path, "up", "-c", file)
	f.wardrop.until("the data plane lists the model", func() bool { return strings.Contains(get(f.base+"/v1/models"), "tiny") })
	return f
}

// seen is an engine as the control plane sees it.
type seen struct {
	Name, Kind, State string
	Ramp              float64
	Reading           struct {
		Running, Waiting *float64
		KVUsage          *float64 `json:"kv_usage"`
		KVTokens         *float64 `json:"kv_tokens"`
		InBand           bool     `json:"in_band"`
	}
}

func (f *vllmFleet) seen(name string) (e seen) {
	var all struct{ Engines []seen }
	if json.Unmarshal([]byte(get(f.control+"/v1/engines")), &all) == nil {
		for _, e := range all.Engines {
			if e.Name == name {
				return e
			}
		}
	}
	return e
}

// count adds up a counter of the data plane over the series that hold the labels.
func (f *vllmFleet) count(name string, labels ...string) (sum float64) {
lines:
	for line := range strings.Lines(get(f.proxy + "/metrics")) {
		if !strings.HasPrefix(line, name+"{") {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(line, l) {
				continue lines
			}
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
		require.NoError(f.t, err, line)
		sum += v
	}
	return sum
}

// stream opens a stream that the named engine serves: sessions are tried until one
// belongs to it.
func (f *vllmFleet) stream(engine string, tokens int) *http.Response {
	f.t.Helper()
	for i := range 64 {
		ctx, cancel := context.WithCancel(f.t.Context())
		f.t.Cleanup(cancel)
		resp, err := completion(ctx, f.t, f.base, fmt.Sprint("session ", i), tokens, true)
		require.NoError(f.t, err)
		if resp.StatusCode == 200 && resp.Header.Get("x-wardrop-engine") == engine {
			return resp
		}
		cancel()
		_ = resp.Body.Close()
	}
	f.t.Fatalf("no session belongs to %s", engine)
	return nil
}

// ask sends short requests, one after the other, and gives how many each engine
// answered, what else there was, and the longest wait.
func (f *vllmFleet) ask(n int) (by map[string]int, failed []string, longest time.Duration) {
	f.t.Helper()
	by = map[string]int{}
	for i := range n {
		begin := time.Now()
		resp, err := completion(f.t.Context(), f.t, f.base, fmt.Sprint("question ", begin.UnixNano()), 4, false)
		if err != nil {
			failed = append(failed, err.Error())
			continue
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		longest = max(longest, time.Since(begin))
		if err != nil || resp.StatusCode != 200 || !strings.Contains(string(body), `"finish_reason":"length"`) {
			failed = append(failed, fmt.Sprintf("request %d by %s: %d %v %s", i, resp.Header.Get("x-wardrop-engine"), resp.StatusCode, err, body))
			continue
		}
		by[resp.Header.Get("x-wardrop-engine")]++
	}
	return by, failed, longest
}
