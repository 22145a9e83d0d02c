package integration

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/internal/testaddr"
)

// pair is two test engines, each a process, and wardrop in front.
type pair struct {
	t       *testing.T
	base    string // of the data plane, without a path
	engines map[string]string
}

func startPair(t *testing.T) *pair {
	t.Helper()
	path, err := binary()
	require.NoError(t, err)
	p := &pair{t: t, engines: map[string]string{}}
	var engines strings.Builder
	for _, name := range []string{"first", "second"} {
		addr := testaddr.Own(t)
		e := run(t, path, "testengine", "--name", name, "--listen", addr, "--model", "tiny", "--t0", "50ms")
		e.until("the engine is healthy", func() bool { return status("http://"+addr+"/health") == 200 })
		p.engines[name] = "http://" + addr
		fmt.Fprintf(&engines, "  - {name: %s, region: local, url: %q, profile: {t0: 50ms, u_max: 100, batch: 100}}\n", name, p.engines[name])
	}
	dir, listen := t.TempDir(), testaddr.Own(t)
	file := filepath.Join(dir, "wardrop.yaml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
control: {listen: %q, admin: %q, store: memory, data: %q}
policy: {tick: 500ms}
signals: {interval: 250ms, models_interval: 1s}
proxy: {data: %q, stall_after: 2s}
clusters:
  - {name: here, region: local, listen: %q, distances: {local: 1ms}}
engines:
%sdemand:
  - {cluster: here, model: tiny, rate: 20}
`, testaddr.Own(t), testaddr.Own(t), dir, dir, listen, engines.String()), 0o600))
	p.base = "http://" + listen
	w := run(t, path, "up", "-c", file)
	w.until("the data plane lists the model", func() bool { return strings.Contains(get(p.base+"/v1/models"), "tiny") })
	w.until("both serve, and the budget for retries is full", func() bool {
		by, failed := p.ask("warm", 40)
		return len(failed) == 0 && by["first"] > 0 && by["second"] > 0
	})
	return p
}

func (p *pair) faults(engine, faults string) {
	p.t.Helper()
	resp, err := http.Post(p.engines[engine]+"/faults", "application/json", strings.NewReader(faults))
	require.NoError(p.t, err)
	_ = resp.Body.Close()
	require.Equal(p.t, 200, resp.StatusCode, faults)
}

// ask sends requests one after the other, each of its own session, every second a
// stream, and gives who answered them and which failed.
func (p *pair) ask(name string, n int) (by map[string]int, failed []string) {
	by = map[string]int{}
	for i := range n {
		stream := i%2 == 1
		resp, err := completion(p.t.Context(), p.t, p.base, fmt.Sprint(name, " ", i), 4, stream)
		if err != nil {
			failed = append(failed, err.Error())
			continue
		}
		engine, ok, what := resp.Header.Get("x-wardrop-engine"), resp.StatusCode == 200, ""
		if stream {
			got := listen(resp.Body)
			ok = ok && got.done && got.finish == "length" && got.failed == ""
			what = fmt.Sprintf("%+v", got)
		} else {
			body, err := io.ReadAll(resp.Body)
			ok = ok && err == nil && strings.Contains(string(body), `"finish_reason":"length"`)
			what = fmt.Sprint(string(body), err)
		}
		_ = resp.Body.Close()
		if ok {
			by[engine]++
		} else {
			failed = append(failed, fmt.Sprintf("%d of %s: %d %s", i, engine, resp.StatusCode, what))
		}
	}
	return by, failed
}

// Of what is wrong with one of two engines no client learns, and when it is well again
// it serves again.
func TestFaultsThatNoClientSees(t *testing.T) {
	for name, faults := range map[string]string{
		"black hole":                 `{"hang":true}`,
		"black hole that looks idle": `{"hang":true,"page":{"show":{"running":0,"waiting":6,"kv_usage":0}}}`,
		"livelock":                   `{"livelock":true}`,
		"dead streams":               `{"dead_streams":1}`,
		"loading":                    `{"state":"loading"}`,
		"draining":                   `{"state":"draining"}`,
		"asleep":                     `{"state":"asleep"}`,
		"full":                       `{"fail":503}`,
		"full, with a time":          `{"fail":429,"retry_after":1}`,
		"gone":                       `{"refuse":true}`,
		"cut before the first byte":  `{"abort_after":0}`,
		"draining as vLLM does":      `{"state":"draining","fail":500}`,
		"gives up":                   `{"break":{"how":"abort"}}`,
		"full within the stream":     `{"break":{"how":"error","code":503}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startPair(t)
			p.faults("first", faults)
			by, failed := p.ask("broken", 8)
			require.Empty(t, failed)
			require.Positive(t, by["second"])
			p.faults("first", `{}`)
			deadline := time.Now().Add(time.Minute)
			for n := 0; ; n++ {
				by, failed = p.ask(fmt.Sprint("well ", n), 4)
				require.Empty(t, failed)
				if by["first"] > 0 {
					return
				}
				require.True(t, time.Now().Before(deadline), "it comes back")
			}
		})
	}
}

// Whatever an engine's page says or does not say, its requests are served, and it
// keeps its part.
func TestPagesThatCostNoEngine(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	for _, page := range []string{
		`{"body":"html"}`, `{"body":"json"}`, `{"body":"empty"}`, `{"status":500}`, `{"omit":["vllm:"]}`,
		`{"omit":["vllm:num_requests","vllm:kv"]}`, `{"value":"NaN"}`, `{"value":"-nan"}`, `{"value":"+Inf"}`,
		`{"old_names":true}`, `{"ranks":8}`, `{"processes":8}`, `{"duplicate_types":true}`, `{"truncate":700}`,
		`{"bytes":100000000}`, `{"wait":1}`, `{"reset":true}`, `{"show":{"running":0,"waiting":0,"kv_usage":0}}`,
		`{"show":{"running":-5,"waiting":2000000,"kv_usage":44}}`,
	} {
		p.faults("first", `{"page":`+page+`}`)
		deadline := time.Now().Add(700 * time.Millisecond) // two readings and more
		total := map[string]int{}
		for n := 0; n < 2 || time.Now().Before(deadline); n++ {
			by, failed := p.ask(fmt.Sprint(page, n), 8)
			require.Empty(t, failed, page)
			total["first"] += by["first"]
			total["second"] += by["second"]
		}
		require.Positive(t, total["first"], page)
		require.Positive(t, total["second"], page)
	}
}
