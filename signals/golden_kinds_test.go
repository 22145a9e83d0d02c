package signals

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// goldens says what is read from every page in testdata that is not a
// llama.cpp's or one of the first three of vLLM, which have tests of their own.
var goldens = []struct {
	file   string
	target Target
	path   string // default /metrics
	want   Reading
}{
	{file: "vllm_full.txt", target: Target{Kind: "vllm"}, want: Reading{Start: "1795923418.87", Ranks: 2, Values: Values{
		Running: Some(19), Waiting: Some(5), KVUsage: Some(.8125), KVTokens: Some(446320),
		PromptTokens: Some(5.5e6), GenerationTokens: Some(1e6), Emitted: Some(1e6), Preemptions: Some(7),
		PrefixHits: Some(1.6e6), PrefixQueries: Some(5.5e6), Progress: Some(6.5e6),
	}}},
	{file: "vllm_ray.txt", target: Target{Kind: "vllm"}, want: Reading{Ranks: 1, Values: Values{
		Running: Some(3), Waiting: Some(7), KVUsage: Some(.25),
	}}},
	{file: "sglang.txt", target: Target{Kind: "sglang"}, want: Reading{Start: "34.5", Ranks: 1, Values: Values{
		Running: Some(11), Waiting: Some(5 + 2), KVUsage: Some(.5), KVTokens: Some(104000),
		PromptTokens: Some(1.2e6), GenerationTokens: Some(200000), Preemptions: Some(3),
		PrefixHits: Some(300000), PrefixQueries: Some(1.2e6), Progress: Some(1.41e6 + 199000 + 900), Emitted: Some(210000),
	}}},
	// Copies on tensor-parallel ranks count once, parts by priority not at all.
	{file: "sglang_dp2.txt", target: Target{Kind: "sglang"}, want: Reading{Start: "34.5", Ranks: 2, Values: Values{
		Running: Some(12 + 14), Waiting: Some(6 + 8 + 2*2), KVUsage: Some(.875), KVTokens: Some(208000),
		PromptTokens: Some(1.2e6), GenerationTokens: Some(200000), Preemptions: Some(6),
		PrefixHits: Some(300000), PrefixQueries: Some(1.2e6), Progress: Some(2*1.41e6 + 199000 + 900), Emitted: Some(2 * 210000),
	}}},
	{file: "sglang_old.txt", target: Target{Kind: "sglang"}, want: Reading{Ranks: 1, Values: Values{
		Running: Some(11), Waiting: Some(7), KVUsage: Some(.5),
		PromptTokens: Some(1.2e6), GenerationTokens: Some(200000), Preemptions: Some(3),
		PrefixHits: Some(300000), PrefixQueries: Some(1.2e6), Progress: Some(199000 + 900),
	}}},
	{file: "trtllm.txt", target: Target{Kind: "trtllm"}, path: "/prometheus/metrics", want: trtllmWant},
	{file: "trtllm_unprefixed.txt", target: Target{Kind: "trtllm"}, path: "/prometheus/metrics", want: trtllmWant},
	{file: "triton.txt", target: Target{Kind: "triton", URL: "http://e:8000"}, path: "http://e:8002/metrics", want: Reading{Values: Values{
		Running: Some(8), Waiting: Some(3), Slots: Some(512), KVUsage: Some(.375), KVTokens: Some(4000 * 64), Progress: Some(4711),
	}}},
	{file: "triton_two.txt", target: Target{Kind: "triton", URL: "https://[::1]", MetricsURL: "http://m:1/x"}, path: "http://m:1/x", want: Reading{Values: Values{
		Running: Some(16), Waiting: Some(6), Slots: Some(1024), KVUsage: Some(.375), KVTokens: Some(2 * 4000 * 64), Progress: Some(2 * 4711),
	}}},
	{file: "triton_old.txt", target: Target{Kind: "triton", URL: "http://e"}, path: "http://e:8002/metrics", want: Reading{Values: Values{
		Running: Some(8), Slots: Some(512), KVTokens: Some(4000 * 64), Progress: Some(4711),
	}}},
	{file: "tgi.txt", target: Target{Kind: "tgi"}, want: Reading{Values: Values{
		Running: Some(6), Waiting: Some(2), PromptTokens: Some(60000), GenerationTokens: Some(18000), Progress: Some(8200),
	}}},
	{file: "lmdeploy.txt", target: Target{Kind: "lmdeploy"}, want: Reading{Start: "1795923418.5", Ranks: 2, Values: Values{
		Running: Some(9), Waiting: Some(2 + 1), KVUsage: Some(.75), PromptTokens: Some(3000), GenerationTokens: Some(700), Progress: Some(3700),
	}}},
	{file: "nim.txt", target: Target{Kind: "nim"}, path: "/v1/metrics", want: nimWant},
	{file: "nim.txt", target: Target{Kind: "nim"}, want: nimWant}, // an older one
	{file: "nim_vllm.txt", target: Target{Kind: "nim"}, path: "/v1/metrics", want: Reading{Values: Values{
		Running: Some(3), Waiting: Some(2), Slots: Some(1024), KVUsage: Some(.5), PromptTokens: Some(100), GenerationTokens: Some(20), Progress: Some(120),
	}}},
	{file: "ollama_version.json", target: Target{Kind: "ollama"}, path: "/api/version"},
	{file: "generic.txt", target: Target{Kind: KindGeneric, MetricsURL: "/stats", Names: Names{
		Running: []string{"gone", `myengine_requests{state="busy"}`}, Waiting: []string{"myengine_requests{state=queued}"},
		KVUsage: []string{"myengine_cache_ratio"}, Progress: []string{"myengine_steps_total"}, Start: []string{"myengine_boot"},
		Slots: []string{"nowhere"},
	}}, path: "/stats", want: Reading{Start: "123", Values: Values{
		Running: Some(4), Waiting: Some(9), KVUsage: Some(.625), Progress: Some(77),
	}}},
}

var trtllmWant = Reading{Values: Values{
	Running: Some(9), Waiting: Some(3), Slots: Some(256), KVUsage: Some(.25), KVTokens: Some(8000 * 32),
	PromptTokens: Some(160000), GenerationTokens: Some(70000), PrefixHits: Some(32000), PrefixQueries: Some(160000), Progress: Some(230000),
}}

var nimWant = Reading{Values: Values{
	Running: Some(6), Waiting: Some(1), Slots: Some(2048), KVUsage: Some(.125),
	PromptTokens: Some(603), GenerationTokens: Some(997), Progress: Some(1600),
}}

func readTarget(t testing.TB, target Target, p pages) (Reading, error) {
	t.Helper()
	a, err := NewAdapter(target)
	require.NoError(t, err)
	return a.Read(t.Context(), p.get)
}

func TestGoldenPages(t *testing.T) {
	for _, g := range goldens {
		r, err := readTarget(t, g.target, pages{at(g.path, "/metrics"): golden(t, g.file)})
		require.NoError(t, err, g.file)
		require.Equal(t, g.want, r, g.file)
	}
}

// TestEveryPageIsReadAndExplained holds testdata against its tests and README.
func TestEveryPageIsReadAndExplained(t *testing.T) {
	readme, err := os.ReadFile("testdata/README.md")
	require.NoError(t, err)
	tests, err := os.ReadDir(".")
	require.NoError(t, err)
	var sources strings.Builder
	for _, f := range tests {
		if strings.HasSuffix(f.Name(), "_test.go") {
			b, err := os.ReadFile(f.Name())
			require.NoError(t, err)
			sources.Write(b)
		}
	}
	files, err := os.ReadDir("testdata")
	require.NoError(t, err)
	for _, f := range files {
		if f.IsDir() || f.Name() == "README.md" {
			continue
		}
		require.Contains(t, string(readme), "`"+f.Name()+"`")
		require.Contains(t, sources.String(), `"`+f.Name()+`"`)
	}
}

func TestSGLangSlots(t *testing.T) {
	page := golden(t, "sglang.txt")
	for body, want := range map[string]Opt{
		`{"max_running_requests":48,"dp_size":1}`: Some(48),
		`{"max_running_requests":null,"dp_size":2,"internal_states":[{"effective_max_running_requests_per_dp":64}]}`: Some(128),
		`{"max_running_requests":null}`: {},
		`<html>`:                        {},
	} {
		r, err := read(t, "sglang", pages{"/metrics": page, "/get_server_info": text(body)})
		require.NoError(t, err)
		require.Equal(t, want, r.Slots, body)
	}
}

// TestProgressDuringALongPrefill: gauges that steps set are evidence of work
// where no token is counted, and only when they move.
func TestProgressDuringALongPrefill(t *testing.T) {
	for _, c := range []struct{ file, kind, path, was, becomes string }{
		{"sglang_old.txt", "sglang", "/metrics", "812.4376", "790.25"},
		{"sglang_old.txt", "sglang", "/metrics", "52000", "60000"},
		{"trtllm.txt", "trtllm", "/prometheus/metrics", "0.0113", "0.0114"},
	} {
		a, err := NewAdapter(Target{Kind: c.kind})
		require.NoError(t, err)
		body := string(golden(t, c.file).Body)
		require.Contains(t, body, c.was)
		progress := func(body string) float64 {
			r, err := a.Read(t.Context(), pages{c.path: text(body)}.get)
			require.NoError(t, err)
			require.True(t, r.Progress.Known)
			return r.Progress.Value
		}
		first := progress(body)
		require.Equal(t, first, progress(body), "it stands still")
		moved := progress(strings.ReplaceAll(body, c.was, c.becomes))
		require.Greater(t, moved, first)
		require.Equal(t, moved, progress(strings.ReplaceAll(body, c.was, c.becomes)))
		require.Greater(t, progress(body), moved, "and never goes back")
	}
}

func TestTRTLLMWithoutIterationStatistics(t *testing.T) {
	_, err := read(t, "trtllm", pages{"/prometheus/metrics": golden(t, "trtllm_early.txt")})
	require.ErrorContains(t, err, "enable_iter_perf_stats")
}

// TestTheQueueOfTRTLLMIsNeverRead: its /metrics forgets what it has told.
func TestTheQueueOfTRTLLMIsNeverRead(t *testing.T) {
	models := text(`{"object":"list","data":[{"id":"m","object":"model","owned_by":"tensorrt_llm"}]}`)
	for _, kind := range []string{"trtllm", KindAuto} {
		for _, p := range []pages{
			{"/prometheus/metrics": golden(t, "trtllm.txt"), "/v1/models": models},
			{"/prometheus/metrics": golden(t, "trtllm_early.txt"), "/v1/models": models},
			{"/prometheus/metrics": text(""), "/v1/models": models},
			{"/v1/models": models}, // without return_perf_metrics
		} {
			p["/version"], p["/metrics"] = text(`{"version":"1.2.0"}`), golden(t, "trtllm_metrics.json")
			a, err := NewAdapter(Target{Kind: kind})
			require.NoError(t, err)
			for range 3 {
				_, _ = a.Read(t.Context(), func(ctx context.Context, path string) (Answer, error) {
					require.NotEqual(t, "/metrics", path)
					return p.get(ctx, path)
				})
			}
		}
	}
}

func TestOllamaMustSayItsVersion(t *testing.T) {
	for _, body := range []string{"", "{}", "<html>", `{"version":7}`} {
		_, err := read(t, "ollama", pages{"/api/version": text(body)})
		require.ErrorContains(t, err, "no version", body)
	}
}

func TestTargetsThatMakeNoSense(t *testing.T) {
	for want, target := range map[string]Target{
		`no names`:                             {Kind: KindGeneric},
		`"a b" is not the name of a metric`:    {Kind: KindGeneric, Names: Names{Running: []string{"a b"}}},
		`"a{x=\"1\",y=\"2\"}" is not the name`: {Kind: KindGeneric, Names: Names{Running: []string{`a{x="1",y="2"}`}}},
		`names of metrics are for the kind`:    {Kind: "vllm", Names: Names{Running: []string{"a"}}},
		`metrics at "ftp://a/b"`:               {Kind: "vllm", MetricsURL: "ftp://a/b"},
		`metrics at "metrics"`:                 {Kind: "", MetricsURL: "metrics"},
		`say where they are`:                   {Kind: "triton", URL: "unix:///a/b"},
	} {
		_, err := NewAdapter(target)
		require.ErrorContains(t, err, want)
	}
}
