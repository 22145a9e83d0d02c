package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/internal/testaddr"
	weightpath "github.com/wardrop-lb/wardrop/weights"
)

// BenchmarkColdStart starts a data plane as it is built for users, with a saved snapshot and no
// control plane, and measures the time from the start of the process to the first answer of an
// engine, and what it holds of memory once it has been idle for a while.
func BenchmarkColdStart(b *testing.B) {
	dir := b.TempDir()
	binary := filepath.Join(dir, "wardrop")
	out, err := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, ".").CombinedOutput()
	require.NoError(b, err, "%s", out)
	info, err := os.Stat(binary)
	require.NoError(b, err)
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"ok":true}`)
	}))
	defer engine.Close()
	for _, size := range []struct{ rows, engines int }{{1, 10}, {1, 1000}, {4, 1000}} {
		b.Run(fmt.Sprintf("rows=%d/engines=%d", size.rows, size.engines), func(b *testing.B) {
			data := filepath.Join(b.TempDir(), "data")
			saver := &weightpath.Subscriber{Cluster: "c", Path: filepath.Join(data, "c.snapshot")}
			require.NoError(b, saver.Save(wide(engine.URL, size.rows, size.engines)))
			listen := testaddr.Own(b)
			config := filepath.Join(b.TempDir(), "w.yaml")
			require.NoError(b, os.WriteFile(config, fmt.Appendf(nil, `
proxy: {data: %q, control: ["127.0.0.1:1"]}
clusters: [{name: c, region: r, listen: %q, distances: {r: 5ms}}]
engines: [{name: e, region: r, url: %q, models: [m0], profile: {t0: 200ms, u_max: 100, batch: 100}}]
`, data, listen, engine.URL), 0o600))
			var took, memory, own []float64
			for b.Loop() {
				cmd := exec.Command(binary, "proxy", "-c", config, "--cluster", "c")
				var log lockedBuffer
				cmd.Stdout, cmd.Stderr = &log, &log
				begin := time.Now()
				require.NoError(b, cmd.Start())
				for !answered(listen) {
					require.Less(b, time.Since(begin), patience, "it says %s", log.String())
				}
				took = append(took, 1e3*time.Since(begin).Seconds())
				time.Sleep(15 * time.Second)
				memory = append(memory, resident(b, cmd.Process.Pid, "VmRSS"))
				own = append(own, resident(b, cmd.Process.Pid, "RssAnon"))
				require.NoError(b, cmd.Process.Kill())
				_ = cmd.Wait()
			}
			slices.Sort(took)
			slices.Sort(memory)
			slices.Sort(own)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(took[len(took)/2], "ms-to-first-answer")
			b.ReportMetric(took[len(took)-1], "ms-at-most")
			b.ReportMetric(memory[len(memory)/2], "MB-idle")
			b.ReportMetric(own[len(own)/2], "MB-own") // the rest is pages of the binary
			b.ReportMetric(float64(info.Size())/1e6, "MB-binary")
		})
	}
}

// wide is a snapshot whose rows all have the same engines, all at one address.
func wide(url string, rows, engines int) *fleet.Snapshot {
	s := &fleet.Snapshot{Cluster: "c", Epoch: 1, Version: 1, Time: time.Now(), GoodFor: time.Hour}
	for i := range engines {
		s.Engines = append(s.Engines, fleet.SnapshotEngine{Name: fmt.Sprintf("e%04d", i), Region: "r", URL: url, Kind: "vllm", Capacity: 50, Collector: "elsewhere"})
	}
	for m := range rows {
		row := fleet.SnapshotRow{Model: fmt.Sprintf("m%d", m), Utilisation: 0.5}
		for i := range engines {
			weight := (0.5 + float64((i*7+m)%engines)/float64(engines)) / float64(engines)
			row.Targets = append(row.Targets, fleet.Target{Engine: int32(i), Weight: weight, Predicted: 0.3, Network: 0.005, Limit: 100})
		}
		sum := 0.0
		for _, t := range row.Targets {
			sum += t.Weight
		}
		for i := range row.Targets {
			row.Targets[i].Weight /= sum
		}
		s.Rows = append(s.Rows, row)
	}
	return s
}

// answered tells whether a request is served.
func answered(address string) bool {
	c, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		time.Sleep(500 * time.Microsecond)
		return false
	}
	_ = c.Close()
	resp, err := http.Post("http://"+address+"/v1/chat/completions", "application/json", strings.NewReader(`{"model":"m0","messages":[{"role":"user","content":"hi"}]}`))
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// resident is what a process holds of memory, in MB: all, or of one kind.
func resident(b *testing.B, pid int, kind string) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(b, err)
	for line := range strings.Lines(string(status)) {
		var kib float64
		if _, err := fmt.Sscanf(line, kind+": %f kB", &kib); err == nil {
			return kib * 1024 / 1e6
		}
	}
	b.Fatal("no " + kind)
	return 0
}
