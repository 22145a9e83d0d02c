package admin

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/control"
	"github.com/wardrop-lb/wardrop/dashboard"
	"github.com/wardrop-lb/wardrop/store"
)

const file = `
policy: {tick: 10ms}
clusters: [{name: a, region: a, distances: {a: 5ms}}]
engines: [{name: near, region: a, url: "http://near", models: [demo]}]
demand: [{cluster: a, model: demo, rate: 7}]
`

func serve(t *testing.T) (*control.Control, string) {
	t.Helper()
	cfg, err := config.Parse("w.yaml", []byte(file))
	require.NoError(t, err)
	registry := prometheus.NewRegistry()
	c := control.New(control.Options{Config: cfg, Store: &store.Memory{}, Registry: registry, Log: slog.New(slog.DiscardHandler)})
	s := httptest.NewServer(Control(c, registry, Options{Board: dashboard.New(c)}))
	t.Cleanup(s.Close)
	return c, s.URL
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(b)
}

func TestBeforeTheFirstPlan(t *testing.T) {
	_, url := serve(t)
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503, "/v1/plan": 503, "/v1/why/weight": 503, "/v1/status": 200, "/metrics": 200, "/nothing": 404} {
		status, _ := get(t, url+path)
		require.Equal(t, want, status, path)
	}
	_, err := Client{Base: url}.WhyWeight(t.Context(), "a", "demo", "")
	require.EqualError(t, err, "the control plane says: there is no plan yet")
}

func TestWithAPlan(t *testing.T) {
	c, url := serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	defer func() { cancel(); require.NoError(t, <-done) }()
	require.Eventually(t, func() bool { status, _ := get(t, url+"/readyz"); return status == 200 }, 10e9, 5e6)

	why, err := Client{Base: url}.WhyWeight(t.Context(), "a", "demo", "near")
	require.NoError(t, err)
	require.Equal(t, 1.0, why.Engines[0].Weight)
	require.InDelta(t, 7, why.Rate, 1e-9)
	status, err := Client{Base: url}.Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, uint64(1), status.Epoch)
	require.Equal(t, "optimal", status.Policy)
	_, err = Client{Base: url}.WhyWeight(t.Context(), "b", "demo", "")
	require.ErrorContains(t, err, `no row for cluster "b"`)
	_, page := get(t, url+"/metrics")
	require.Contains(t, page, `wardrop_control_engine_load{engine="near"} 7`)
}

func TestClientSaysWhenNobodyAnswers(t *testing.T) {
	_, err := Client{Base: "127.0.0.1:1"}.Status(t.Context())
	require.ErrorContains(t, err, "the control plane does not answer")
}
