package testengine_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/testengine"
)

func (r rig) faults(body string) {
	r.t.Helper()
	code, got, _ := r.call("/faults", body)
	require.Equal(r.t, 200, code, got)
}

func TestHangIsABlackHole(t *testing.T) {
	r := start(t, testengine.Config{Params: slow()})
	resp, err := r.request(t.Context(), "/v1/chat/completions", chat("p", 40, `,"stream":true`))
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	first := make([]byte, 10)
	_, err = io.ReadFull(resp.Body, first)
	require.NoError(t, err)

	r.faults(`{"hang":true}`)
	code, _, _ := r.call("/health", "")
	require.Equal(t, 200, code)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = r.request(ctx, "/v1/chat/completions", chat("p", 1, ""))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, before, _ := r.call("/metrics", "")
	require.Contains(t, before, "num_requests_running{engine=\"0\",model_name=\"m\"} 1.0\n")
	_, after, _ := r.call("/metrics", "")
	require.Equal(t, before, after, "the gauges stand still")

	r.faults(`{}`)
	list, done, err := events(t, io.MultiReader(strings.NewReader(string(first)), resp.Body))
	require.NoError(t, err)
	require.True(t, done, "it goes on where it stood")
	require.Len(t, list, 41)
}

func TestFail(t *testing.T) {
	r := start(t, testengine.Config{})
	r.faults(`{"fail":503,"retry_after":3,"health":500}`)
	code, body, header := r.call("/v1/chat/completions", chat("p", 1, ""))
	require.Equal(t, 503, code)
	require.Contains(t, body, `"code":503`)
	require.Equal(t, "3", header.Get("Retry-After"))
	code, _, _ = r.call("/health", "")
	require.Equal(t, 500, code)
	require.Zero(t, r.Stats().Started)
	r.faults(`{}`)
	code, _, _ = r.call("/v1/chat/completions", chat("p", 1, ""))
	require.Equal(t, 200, code)
}

func TestSlow(t *testing.T) {
	p := testengine.DefaultParams()
	p.Base = 5e-3
	r := start(t, testengine.Config{Params: p})
	took := func() time.Duration {
		begin := time.Now()
		_, _, _ = r.call("/v1/chat/completions", chat("p", 20, ""))
		return time.Since(begin)
	}
	_ = took()
	sound := took()
	r.faults(`{"slow":5}`)
	require.Greater(t, took(), 3*sound)
}

func TestAbortAfter(t *testing.T) {
	r := start(t, testengine.Config{Params: slow()})
	r.faults(`{"abort_after":3}`)
	resp, err := r.request(t.Context(), "/v1/chat/completions", chat("p", 50, `,"stream":true`))
	require.NoError(t, err)
	list, done, err := events(t, resp.Body)
	_ = resp.Body.Close()
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.False(t, done)
	require.Len(t, list, 4, "the role and three tokens")

	_, err = r.request(t.Context(), "/v1/chat/completions", chat("p", 50, ""))
	require.ErrorIs(t, err, syscall.ECONNRESET)

	r.faults(`{"abort_after":0}`)
	resp, err = r.request(t.Context(), "/v1/chat/completions", chat("p", 50, `,"stream":true`))
	if err == nil { // the reset may overtake the headers
		got, readErr := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		require.Empty(t, got)
		err = readErr
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)
	r.eventually("the model is empty", func(s testengine.Stats) bool { return s.Running+s.Waiting == 0 })
}

func TestRefuse(t *testing.T) {
	r := start(t, testengine.Config{})
	r.faults(`{"refuse":true}`)
	for _, path := range []string{"/health", "/v1/models", "/metrics"} {
		_, err := r.request(t.Context(), path, "")
		require.Error(t, err, path)
	}
	_, err := r.request(t.Context(), "/v1/chat/completions", chat("p", 1, ""))
	require.Error(t, err)
	r.faults(`{}`)
	code, _, _ := r.call("/health", "")
	require.Equal(t, 200, code)
}

func TestFaultsAreChecked(t *testing.T) {
	r := start(t, testengine.Config{})
	r.faults(`{"slow":2}`)
	for _, body := range []string{`{"fail":200}`, `{"slow":-1}`, `{"hung":true}`, `[]`, `{"health":1}`} {
		code, _, _ := r.call("/faults", body)
		require.Equal(t, http.StatusBadRequest, code, body)
	}
	code, body, _ := r.call("/faults", "")
	require.Equal(t, 200, code)
	require.JSONEq(t, `{"slow":2}`, body, "a bad request changes nothing")
}
