package proxy

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
)

// page is an engine that has one page and nothing else.
func page(t *testing.T, path, text string) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+path, answers(text))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

const vllmPage = "vllm:num_requests_running 3\nvllm:num_requests_waiting 1\nvllm:kv_cache_usage_perc 0.25\n" +
	"vllm:prefix_cache_hits_total 30\nvllm:prefix_cache_queries_total 90\nvllm:generation_tokens_total NaN\n"

// TestEnginesOfEveryKindAreRead: those of which nobody says the kind are asked, those
// that a newer control plane says things of are left alone and cost the others nothing.
func TestEnginesOfEveryKindAreRead(t *testing.T) {
	leaving := page(t, "/metrics", vllmPage)
	engines := []fleet.SnapshotEngine{
		{Name: "asked", URL: leaving.URL, Collector: "c"},
		{Name: "elsewhere", URL: page(t, "/stats", "llamacpp:requests_processing 7\n").URL, Kind: "llamacpp", Metrics: "/stats", Collector: "c"},
		{Name: "far", URL: page(t, "/metrics", vllmPage).URL, Collector: "d"},
		{Name: "future", URL: page(t, "/metrics", vllmPage).URL, Kind: "vllm3", Collector: "c"},
		{Name: "futurenames", URL: page(t, "/metrics", vllmPage).URL, Kind: "generic", Names: map[string][]string{"joules": {"j"}}, Collector: "c"},
		{Name: "named", URL: page(t, "/m", "jobs{state=\"on\"} 5\njobs{state=\"off\"} 2\n").URL, Kind: "generic", Metrics: "/m",
			Names: map[string][]string{"running": {`jobs{state="on"}`}, "joules": {"j"}}, Collector: "c"},
		{Name: "silent", URL: page(t, "/metrics", vllmPage).URL, Kind: "none", Collector: "c"},
	}
	p, registry := newMeteredPlane(t)
	require.NoError(t, p.apply(&fleet.Snapshot{Cluster: "c", Engines: engines}))
	var r *pb.ReportRequest
	require.Eventually(t, func() bool {
		r = &pb.ReportRequest{Readings: p.readings(true)}
		return len(r.Readings) == 3
	}, 10*time.Second, 5*time.Millisecond)
	require.Equal(t, []string{"asked", "elsewhere", "named"}, []string{r.Readings[0].Engine, r.Readings[1].Engine, r.Readings[2].Engine})
	require.Equal(t, []float64{3, 7, 5}, []float64{r.Readings[0].GetRunning(), r.Readings[1].GetRunning(), r.Readings[2].GetRunning()})
	asked := r.Readings[0]
	require.Equal(t, []string{"vllm", "llamacpp", "generic"}, []string{asked.Kind, r.Readings[1].Kind, r.Readings[2].Kind})
	require.Equal(t, []float64{30, 90}, []float64{asked.GetPrefixHits(), asked.GetPrefixQueries()})
	require.Nil(t, asked.KvTokens, "what is not said is absent")
	require.Nil(t, asked.GenerationTokens)
	require.Positive(t, asked.Faults.GetSpoilt())
	require.False(t, asked.InBand)
	require.Equal(t, asked.Time.AsTime(), asked.Good.AsTime())

	counts := gathered(t, registry)
	require.Equal(t, []float64{1, 1, 1}, []float64{counts["wardrop_signals_engines vllm"], counts["wardrop_signals_engines llamacpp"], counts["wardrop_signals_engines generic"]})
	require.GreaterOrEqual(t, counts["wardrop_signals_reads_total ok"], 3.0)
	require.GreaterOrEqual(t, counts["wardrop_signals_faults_total spoilt"], 1.0)
	require.Contains(t, counts, "wardrop_signals_age_seconds named")
	require.NotContains(t, counts, "wardrop_signals_age_seconds future")

	// Of one that is gone the values stay as old as they are.
	leaving.Close()
	require.Eventually(t, func() bool {
		r = &pb.ReportRequest{Readings: p.readings(true)}
		return r.Readings[0].Failures > 0
	}, 10*time.Second, 5*time.Millisecond)
	require.Equal(t, 3.0, r.Readings[0].GetRunning())
	require.Positive(t, r.Readings[0].Faults.Failed)
	require.True(t, r.Readings[0].Time.AsTime().After(r.Readings[0].Good.AsTime()))
	require.GreaterOrEqual(t, gathered(t, registry)["wardrop_signals_reads_total unreachable"], 1.0)
}

// newMeteredPlane is a data plane of which a test reads the metrics.
func newMeteredPlane(t *testing.T) (*DataPlane, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	p, err := New(Options{
		Cluster: "c", Proxy: config.Proxy{MaxBody: 1 << 20, Bound: 0.5}, Control: noControl, Registry: registry, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(p.Close)
	t.Cleanup(p.reader.Close)
	return p, registry
}

// gathered gives the values of all counters and gauges, by name and labels.
func gathered(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			key := f.GetName()
			for _, l := range m.Label {
				key += " " + l.GetValue()
			}
			out[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return out
}
