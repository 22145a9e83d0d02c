package signals

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sane holds what must be true of values whatever an engine says.
func sane(t testing.TB, v Values) {
	counters := v.counters()
	for _, o := range append(counters[:], v.Running, v.Waiting, v.KVUsage, v.Slots, v.KVTokens) {
		require.False(t, math.IsNaN(o.Value) || math.IsInf(o.Value, 0) || o.Value < 0)
		require.True(t, o.Known || o.Value == 0)
	}
	require.LessOrEqual(t, v.KVUsage.Value, 1.0)
}

func seed(f *testing.F, add func(body string)) {
	files, err := filepath.Glob("testdata/*.*")
	require.NoError(f, err)
	for _, name := range files {
		b, err := os.ReadFile(name)
		require.NoError(f, err)
		if len(b) < 20000 && !strings.HasSuffix(name, ".md") { // mutations of a page that is all histograms find nothing
			add(string(b))
		}
	}
	add("vllm:num_requests_running{a=\"\\\"} -nan\nvllm:cache_config_info{num_gpu_blocks=\"9\",block_size=\"")
}

func FuzzScan(f *testing.F) {
	seed(f, func(body string) { f.Add(body, false); f.Add(body[:len(body)/2], true) })
	v := vocabulary{"a": 0, "vllm:num_requests_running": 1, "sglang:num_queue_reqs": 2}
	f.Fuzz(func(t *testing.T, body string, truncated bool) {
		samples := v.scan(Page{Body: []byte(body), Truncated: truncated})
		require.LessOrEqual(t, len(samples), maxSamples)
		require.LessOrEqual(t, len(samples), strings.Count(body, "\n")+1)
		for _, s := range samples {
			require.False(t, math.IsNaN(s.value) || math.IsInf(s.value, 0))
			require.Contains(t, body, string(s.labels))
			s.key([]string{"pid"})
			_ = s.label("engine")
		}
	})
}

// FuzzAdapters has an engine of every kind answer everything with the same page,
// twice, so that what adapters remember is in play.
func FuzzAdapters(f *testing.F) {
	seed(f, func(body string) { f.Add(body, false); f.Add(body[:len(body)/2], true) })
	f.Add(`{"data":[{"owned_by":"vllm"}],"version":"1","total_slots":1e300,"dp_size":-1e308,"max_running_requests":1e308,"internal_states":[{"effective_max_running_requests_per_dp":1e308}]}`, false)
	f.Fuzz(func(t *testing.T, body string, truncated bool) {
		page := text(body)
		page.Truncated = truncated
		for _, kind := range Kinds() {
			target := Target{Kind: kind, URL: "http://e"}
			switch kind {
			case KindNone, KindORCA: // has no page
				continue
			case KindGeneric:
				target.Names = Names{Running: []string{"vllm:num_requests_running"}, Waiting: []string{`vllm:num_requests_waiting_by_reason{reason="capacity"}`}, KVUsage: []string{"tgi_queue_size"}}
			}
			a, err := NewAdapter(target)
			require.NoError(t, err)
			for range 2 {
				r, err := a.Read(t.Context(), func(context.Context, string) (Answer, error) { return page, nil })
				if err != nil {
					require.Zero(t, r.Values)
				}
				sane(t, r.Values)
			}
		}
	})
}

func FuzzNames(f *testing.F) {
	f.Add("a", `b{c="d"}`)
	f.Add("vllm:x", `b{c=d}`)
	f.Add("", "{}")
	f.Fuzz(func(t *testing.T, one, two string) {
		n := Names{Running: []string{one, two}}
		if n.Validate() != nil {
			return
		}
		r, err := readTarget(t, Target{Kind: KindGeneric, Names: n}, pages{"/metrics": text(one + " 1\n")})
		if err == nil {
			require.Equal(t, Some(1), r.Running)
		}
	})
}
