package signals_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/signals"
	"github.com/wardrop-lb/wardrop/testengine"
)

// A test engine is read over real sockets: while it works, while it hangs and
// after it has been started anew at the same address.
func TestScrapesATestEngine(t *testing.T) {
	params := testengine.DefaultParams()
	params.Base, params.MaxBatch = 5e-3, 1
	config := testengine.Config{Models: []string{"m"}, PromptTokens: 64, Params: params}
	start := func(addr string) *testengine.Server {
		e, err := testengine.New(config)
		require.NoError(t, err)
		require.NoError(t, e.Start(addr))
		return e
	}
	engine := start("127.0.0.1:0")
	addr, url := engine.Addr(), engine.URL()
	s := signals.NewScraper(t.Context(), signals.Options{Interval: 5 * time.Millisecond, Timeout: time.Second, Backoff: 20 * time.Millisecond})
	defer s.Close()
	require.NoError(t, s.Set([]signals.Target{{Engine: "e", URL: url, Kind: "vllm"}}))

	transport := &http.Transport{}
	client := &http.Client{Transport: transport}
	defer transport.CloseIdleConnections()
	for range 2 {
		resp, err := client.Post(url+"/v1/completions", "application/json", strings.NewReader(`{"model":"m","prompt":"p","max_tokens":2000,"stream":true}`))
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		go func() { _, _ = io.Copy(io.Discard, resp.Body) }()
	}
	until := func(what string, ok func(signals.State) bool) signals.State {
		t.Helper()
		var st signals.State
		require.Eventually(t, func() bool {
			for _, st = range s.States() {
				return ok(st)
			}
			return false
		}, 10*time.Second, time.Millisecond, what)
		return st
	}
	busy := until("one runs, one waits", func(st signals.State) bool {
		return st.Signal != nil && st.Signal.Running == signals.Some(1) && st.Signal.Waiting == signals.Some(1) &&
			st.Signal.PromptTokens == signals.Some(64)
	})
	require.Equal(t, signals.Some(4096*16), busy.Signal.KVTokens)
	require.Positive(t, busy.Signal.KVUsage.Value)
	until("it makes progress", func(st signals.State) bool {
		return st.Signal.Progress.Value > busy.Signal.Progress.Value
	})

	require.NoError(t, engine.SetFaults(testengine.Faults{Hang: true}))
	hung := s.States()[0].Signal
	stuck := until("it is read on", func(st signals.State) bool { return st.Signal.Sequence > hung.Sequence+5 }).Signal
	last := until("and on", func(st signals.State) bool { return st.Signal.Sequence > stuck.Sequence+5 }).Signal
	require.Equal(t, stuck.Values, last.Values, "work in flight and no progress")
	require.Equal(t, signals.Some(1), last.Running)

	engine.Close()
	dead := until("it is dead", func(st signals.State) bool { return st.Failures > 1 })
	require.False(t, dead.Reachable)
	require.Equal(t, last.Values, dead.Signal.Values, "the last good signal stays")

	engine = start(addr)
	defer engine.Close()
	reborn := until("it is back", func(st signals.State) bool { return st.Err == "" })
	require.Greater(t, reborn.Signal.Incarnation, last.Incarnation)
	require.Equal(t, signals.Some(0), reborn.Signal.Running)
}

// TestReadsOverASocket: an engine may listen on a unix socket, and be back on it.
func TestReadsOverASocket(t *testing.T) {
	engine, err := testengine.New(testengine.Config{Models: []string{"m"}})
	require.NoError(t, err)
	defer engine.Close()
	socket := filepath.Join(t.TempDir(), "e.sock")
	serve := func() *httptest.Server {
		l, err := net.Listen("unix", socket)
		require.NoError(t, err)
		server := &httptest.Server{Listener: l, Config: &http.Server{Handler: engine.Handler()}}
		server.Start()
		return server
	}
	s := signals.NewScraper(t.Context(), signals.Options{Interval: 5 * time.Millisecond, Timeout: time.Second, Backoff: 10 * time.Millisecond})
	defer s.Close()
	require.NoError(t, s.Set([]signals.Target{{Engine: "e", URL: "unix://" + socket, Kind: signals.KindAuto}}))
	for range 2 {
		server := serve()
		require.Eventually(t, func() bool {
			st := s.States()
			return len(st) == 1 && st[0].Reachable && st[0].Kind == "vllm" && st[0].Signal != nil && st[0].Signal.Running == signals.Some(0)
		}, 10*time.Second, time.Millisecond)
		server.Close()
		require.Eventually(t, func() bool { return !s.States()[0].Reachable }, 10*time.Second, time.Millisecond)
	}
}
