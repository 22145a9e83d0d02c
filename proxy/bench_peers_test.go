//go:build linux

package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkPeers compares with other routers in front of the same engines, in
// turns. WARDROP_PEERS is the directory of a virtual environment that
// scripts/peers.sh has made; haproxy is looked for on the path.
func BenchmarkPeers(b *testing.B) {
	venv := os.Getenv("WARDROP_PEERS")
	if venv == "" {
		b.Skip("WARDROP_PEERS is not set: scripts/peers.sh installs the other routers")
	}
	engines := []string{peerEngine(b), peerEngine(b)}
	only := os.Getenv("WARDROP_PEERS_ONLY")
	var all []*peer
	own := startChild(b, "wardrop", engines)
	all = append(all, &peer{name: "wardrop", addr: own.addr, pid: own.pid})
	for _, p := range peers(b, venv, engines) {
		if only != "" && !strings.Contains(only, p.name) {
			continue
		}
		if err := p.start(b); err != nil {
			fmt.Printf("%-14s left out: %v\n", p.name, err)
			continue
		}
		all = append(all, p)
	}
	for _, p := range all {
		p.clients = newClients(b, p.addr)
		load(p.clients)
	}
	direct := newClients(b, strings.TrimPrefix(engines[0], "http://"))
	var reference slice
	b.ResetTimer()
	for range b.N {
		for range benchTurns {
			for _, p := range all {
				before := cpuOf(p.pid)
				s := load(p.clients)
				s.cpu = cpuOf(p.pid) - before
				p.sum.add(s)
			}
			reference.add(load(direct))
		}
	}
	b.StopTimer()
	b.ReportMetric(0, "ns/op")
	for _, p := range all {
		quiet := oneByOne(p.clients[0])
		fmt.Printf("%-14s %6.0f req/s  %6.1f us of CPU a request  p50 %6.2f ms  p99 %6.2f ms  alone p50 %5.2f ms  p99 %5.2f ms  %4d MiB  %d of %d broken\n",
			p.name, p.sum.perSecond(), p.sum.cpuMicros(), 1e3*p.sum.percentile(0.5).Seconds(), 1e3*p.sum.percentile(0.99).Seconds(),
			1e3*quiet.percentile(0.5).Seconds(), 1e3*quiet.percentile(0.99).Seconds(), memoryOf(p.pid)>>20, p.sum.broken, p.sum.requests+p.sum.broken)
	}
	quiet := oneByOne(direct[0])
	// Printed, not logged: the log of a benchmark is cut to ten lines.
	fmt.Printf("%-14s %6.0f req/s  p50 %6.2f ms  p99 %6.2f ms  alone p50 %5.2f ms  p99 %5.2f ms\n", "direct", reference.perSecond(),
		1e3*reference.percentile(0.5).Seconds(), 1e3*reference.percentile(0.99).Seconds(), 1e3*quiet.percentile(0.5).Seconds(), 1e3*quiet.percentile(0.99).Seconds())
}

// oneByOne asks one question at a time.
func oneByOne(c *client) slice {
	var s slice
	for range 500 {
		start := time.Now()
		if c.ask() == nil {
			s.requests++
			s.latencies = append(s.latencies, time.Since(start))
		}
	}
	if len(s.latencies) == 0 {
		s.latencies = []time.Duration{0}
	}
	return s
}

// peerEngine answers what routers want to know of an engine, and completions in
// one chunk.
func peerEngine(b *testing.B) string {
	answer := []byte(`{"id":"cmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":` +
		`{"role":"assistant","content":"` + strings.Repeat("word ", 40) + `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":40,"total_tokens":41}}`)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
	})
	for path, text := range map[string]string{
		"/health": "", "/v1/models": `{"object":"list","data":[{"id":"m","object":"model"}]}`,
		"/get_model_info": `{"model_path":"m","served_model_name":"m","is_generation":true}`, "/model_info": `{"model_path":"m","served_model_name":"m","is_generation":true}`,
		"/get_server_info": `{"model_path":"m","served_model_name":"m","dp_size":1,"version":"0.5"}`, "/server_info": `{"model_path":"m","served_model_name":"m","dp_size":1,"version":"0.5"}`,
		"/version": `{"version":"0.29.0"}`, "/metrics": "",
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	}
	s := httptest.NewServer(mux)
	b.Cleanup(s.Close)
	return s.URL
}

// peer is another router.
type peer struct {
	name    string
	command []string
	addr    string
	pid     int
	clients []*client
	sum     slice
}

// peers lists the other routers, each as its documents tell to run it.
func peers(b *testing.B, venv string, engines []string) []*peer {
	bin := func(name string) string { return filepath.Join(venv, "bin", name) }
	dir := b.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(b, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	hosts := make([]string, len(engines))
	for i, e := range engines {
		hosts[i] = strings.TrimPrefix(e, "http://")
	}
	var out []*peer
	add := func(name string, command ...string) {
		port := freePort(b)
		for i := range command {
			command[i] = strings.ReplaceAll(command[i], "PORT", port)
		}
		out = append(out, &peer{name: name, command: command, addr: "127.0.0.1:" + port})
	}
	add("smg", append(append([]string{bin("smg"), "launch", "--host", "127.0.0.1", "--port", "PORT", "--policy", "cache_aware", "--worker-urls"}, engines...),
		"--prometheus-port", freePort(b))...)
	add("sglang-router", append(append([]string{bin("python"), "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", "PORT", "--policy", "cache_aware", "--worker-urls"}, engines...),
		"--prometheus-port", freePort(b))...)
	add("vllm-router", append(append([]string{bin("vllm-router"), "--host", "127.0.0.1", "--port", "PORT", "--policy", "consistent_hash", "--worker-urls"}, engines...),
		"--prometheus-port", freePort(b))...)
	var models strings.Builder
	for _, e := range engines {
		fmt.Fprintf(&models, "  - model_name: m\n    litellm_params: {model: openai/m, api_base: %s/v1, api_key: none}\n", e)
	}
	add("litellm", bin("litellm"), "--host", "127.0.0.1", "--port", "PORT", "--num_workers", "2", "--telemetry", "False",
		"--config", write("litellm.yaml", "model_list:\n"+models.String()))
	port := freePort(b)
	out = append(out, &peer{name: "haproxy", addr: "127.0.0.1:" + port, command: []string{"haproxy", "-W", "-f", write("haproxy.cfg", fmt.Sprintf(`
global
  nbthread 2
defaults
  mode http
  timeout client 60s
  timeout server 60s
  timeout connect 5s
  http-reuse always
frontend f
  bind 127.0.0.1:%s
  default_backend b
backend b
  balance leastconn
  server s0 %s
  server s1 %s
`, port, hosts[0], hosts[1]))}})
	port = freePort(b)
	out = append(out, &peer{name: "envoy", addr: "127.0.0.1:" + port, command: []string{bin("envoy"), "--concurrency", "2", "-l", "error", "--base-id", "77",
		"-c", write("envoy.yaml", envoyConfig(port, hosts))}})
	return out
}

func envoyConfig(port string, hosts []string) string {
	var endpoints strings.Builder
	for _, h := range hosts {
		host, p, _ := net.SplitHostPort(h)
		fmt.Fprintf(&endpoints, "          - endpoint: {address: {socket_address: {address: %s, port_value: %s}}}\n", host, p)
	}
	return fmt.Sprintf(`
static_resources:
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: %s}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: ingress
          route_config:
            virtual_hosts: [{name: all, domains: ["*"], routes: [{match: {prefix: "/"}, route: {cluster: engines, timeout: 0s}}]}]
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  clusters:
  - name: engines
    connect_timeout: 5s
    lb_policy: LEAST_REQUEST
    load_assignment:
      cluster_name: engines
      endpoints:
      - lb_endpoints:
%s`, port, endpoints.String())
}

func freePort(b *testing.B) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(b, err)
	return port
}

// start runs the router in a process group of its own and waits until it answers
// a completion.
func (p *peer) start(b *testing.B) error {
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	var said bytes.Buffer
	cmd := exec.Command(p.command[0], p.command[1:]...)
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.Env = append(os.Environ(), "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY=true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.pid = cmd.Process.Pid
	b.Cleanup(func() {
		_ = syscall.Kill(-p.pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		req := post(p.addr, chat).WithContext(ctx)
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("it answers %s", resp.Status)
		}
		select {
		case <-ctx.Done():
			tail := said.String()
			return fmt.Errorf("it does not come up: %w: ...%s", err, tail[max(0, len(tail)-600):])
		case <-tick.C:
		}
	}
}

// family lists a process and its descendants.
func family(pid int) []int {
	out := []int{pid}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, t := range tasks {
		b, _ := os.ReadFile(t)
		for s := range strings.FieldsSeq(string(b)) {
			if child, err := strconv.Atoi(s); err == nil {
				out = append(out, family(child)...)
			}
		}
	}
	return out
}

// cpuOf is the CPU time that a process and its descendants have used.
func cpuOf(pid int) time.Duration {
	const perTick = 10 * time.Millisecond // USER_HZ is 100 on Linux
	var ticks int64
	for _, p := range family(pid) {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p))
		_, rest, ok := strings.Cut(string(b), ") ")
		if fields := strings.Fields(rest); ok && len(fields) > 12 {
			user, _ := strconv.ParseInt(fields[11], 10, 64)
			system, _ := strconv.ParseInt(fields[12], 10, 64)
			ticks += user + system
		}
	}
	return time.Duration(ticks) * perTick
}

// memoryOf is what of a process and its descendants is resident, in bytes.
func memoryOf(pid int) (n int) {
	for _, p := range family(pid) {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p))
		_, rest, _ := strings.Cut(string(b), "VmRSS:")
		var kib int
		_, _ = fmt.Sscan(rest, &kib)
		n += kib << 10
	}
	return n
}
