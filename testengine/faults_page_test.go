package testengine_test

import (
	"io"
	"math"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/testengine"
)

func parse(page string) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(strings.NewReader(page))
}

// values gives the values of the series of a name, as the page lists them.
func values(t *testing.T, families map[string]*dto.MetricFamily, name string) (out []float64) {
	t.Helper()
	require.Contains(t, families, name)
	for _, m := range families[name].Metric {
		out = append(out, m.GetGauge().GetValue()+m.GetCounter().GetValue())
	}
	return out
}

func TestPages(t *testing.T) {
	r := start(t, testengine.Config{})
	for range 3 {
		_, _, _ = r.call("/v1/chat/completions", chat("p", 7, ""))
	}
	_, sound, _ := r.call("/metrics", "")
	page := func(faults string) string {
		r.faults(`{"page":` + faults + `}`)
		code, got, _ := r.call("/metrics", "")
		require.Equal(t, 200, code)
		return got
	}
	good := func(faults string) map[string]*dto.MetricFamily {
		families, err := parse(page(faults))
		require.NoError(t, err)
		return families
	}

	f := good(`{"show":{"running":0,"waiting":6,"kv_usage":0.5}}`)
	require.Equal(t, []float64{0}, values(t, f, "vllm:num_requests_running"))
	require.Equal(t, []float64{6}, values(t, f, "vllm:num_requests_waiting"))
	require.Equal(t, []float64{.5}, values(t, f, "vllm:kv_cache_usage_perc"))

	f = good(`{"omit":["vllm:kv_cache_usage","vllm:num_requests_waiting"]}`)
	require.NotContains(t, f, "vllm:kv_cache_usage_perc")
	require.NotContains(t, f, "vllm:num_requests_waiting_by_reason")
	require.Contains(t, f, "vllm:num_requests_running")
	require.NotContains(t, page(`{"omit":["vllm:"]}`), "vllm:")

	require.True(t, math.IsNaN(values(t, good(`{"value":"NaN"}`), "vllm:num_requests_running")[0]))
	require.Equal(t, []float64{21}, values(t, good(`{"value":"+Inf"}`), "vllm:generation_tokens_total"), "counters are as they are")
	_, err := parse(page(`{"value":"-nan"}`))
	require.Error(t, err, "no float of Prometheus's")

	f = good(`{"old_names":true}`)
	require.Contains(t, f, "vllm:gpu_cache_usage_perc")
	require.Contains(t, f, "vllm:gpu_prefix_cache_hits_total")
	require.NotContains(t, f, "vllm:kv_cache_usage_perc")

	_, err = parse(page(`{"duplicate_types":true}`))
	require.ErrorContains(t, err, "second TYPE line")

	f = good(`{"ranks":3}`)
	require.Equal(t, []float64{21, 0, 0}, values(t, f, "vllm:generation_tokens_total"))
	require.Len(t, values(t, f, "vllm:cache_config_info"), 3)
	f = good(`{"processes":3,"show":{"running":4}}`)
	require.Equal(t, []float64{0, 0, 4}, values(t, f, "vllm:num_requests_running"))
	require.Equal(t, []float64{21}, values(t, f, "vllm:generation_tokens_total"))

	require.Equal(t, sound[:1000], page(`{"truncate":1000}`))
	require.Contains(t, page(`{"body":"html"}`), "<html>")
	require.Contains(t, page(`{"body":"json"}`), "[{")
	require.Empty(t, page(`{"body":"empty"}`))

	r.faults(`{"page":{"status":500}}`)
	code, _, _ := r.call("/metrics", "")
	require.Equal(t, 500, code)
	r.faults(`{}`)
	_, again, _ := r.call("/metrics", "")
	require.Equal(t, sound, again, "nothing of it stays")
}

// A page of any size is sent, and one that nobody reads on ends.
func TestLargePage(t *testing.T) {
	r := start(t, testengine.Config{})
	r.faults(`{"page":{"bytes":100000000}}`)
	resp, err := r.request(t.Context(), "/metrics", "")
	require.NoError(t, err)
	n, err := io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	require.GreaterOrEqual(t, n, int64(100e6))
	_ = resp.Body.Close()

	resp, err = r.request(t.Context(), "/metrics", "")
	require.NoError(t, err)
	_ = resp.Body.Close()
	r.Close() // returns when no handler is left
}

func TestCountersBeginAnew(t *testing.T) {
	r := start(t, testengine.Config{})
	ask := func() { _, _, _ = r.call("/v1/chat/completions", chat("p", 7, "")) }
	tokens := func() float64 {
		_, page, _ := r.call("/metrics", "")
		f, err := parse(page)
		require.NoError(t, err)
		return values(t, f, "vllm:generation_tokens_total")[0]
	}
	ask()
	require.Equal(t, 7.0, tokens())
	r.faults(`{"page":{"reset":true}}`)
	require.Zero(t, tokens())
	ask()
	require.Equal(t, 7.0, tokens())
	r.faults(`{}`)
	require.Equal(t, 7.0, tokens(), "what was counted before is gone")
}
