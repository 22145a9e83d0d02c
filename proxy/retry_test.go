package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
)

// flaky is an engine that fails in one way for as long as it is told to.
type flaky struct {
	mode atomic.Value // of string
	hits atomic.Int64
}

func (f *flaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.hits.Add(1)
	body, _ := io.ReadAll(r.Body)
	mode, _ := f.mode.Load().(string)
	switch mode {
	case "reset":
		cut(w)
	case "headers then reset":
		w.Header().Set("Content-Length", "10")
		w.(http.Flusher).Flush()
		cut(w)
	case "mid-stream":
		_, _ = io.WriteString(w, "data: half")
		w.(http.Flusher).Flush()
		cut(w)
	case "":
		_, _ = w.Write(body)
	default:
		var status int
		_, _ = fmt.Sscan(mode, &status)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"error":{"message":"from the engine"}}`)
	}
}

// cut resets the connection.
func cut(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
}

// pair is two flaky engines and a key that goes to the first.
func pair(t *testing.T) (h *harness, first, second *flaky, session string) {
	return pairWith(t, config.Proxy{RetryBudget: 0.2})
}

func pairWith(t *testing.T, settings config.Proxy) (h *harness, first, second *flaky, session string) {
	first, second = &flaky{}, &flaky{}
	h = newHarnessWith(t, settings, first.ServeHTTP, second.ServeHTTP)
	for i := 0; ; i++ {
		session = fmt.Sprint("s", i)
		resp := h.post(chat, "X-Session-Id", session)
		h.read(resp)
		if resp.Header.Get("X-Wardrop-Engine") == "e0" {
			first.hits.Store(0)
			second.hits.Store(0)
			return h, first, second, session
		}
	}
}

func TestRetriesBeforeTheFirstByte(t *testing.T) {
	for _, mode := range []string{"reset", "headers then reset", "429", "500", "502", "503", "504"} {
		t.Run(mode, func(t *testing.T) {
			h, first, second, session := pair(t)
			first.mode.Store(mode)
			resp := h.post(chat, "X-Session-Id", session)
			require.Equal(t, http.StatusOK, resp.StatusCode)
			require.Equal(t, chat, h.read(resp), "the retry sends the whole body again")
			require.Equal(t, "e1", resp.Header.Get("X-Wardrop-Engine"))
			require.Equal(t, int64(1), first.hits.Load())
			require.Equal(t, int64(1), second.hits.Load())
			h.requireIdle()
		})
	}
}

func TestClientErrorsAreNotRetried(t *testing.T) {
	for _, mode := range []string{"400", "401", "404", "413", "422", "424"} {
		t.Run(mode, func(t *testing.T) {
			h, first, second, session := pair(t)
			first.mode.Store(mode)
			resp := h.post(chat, "X-Session-Id", session)
			require.Equal(t, mode, fmt.Sprint(resp.StatusCode))
			require.Contains(t, h.read(resp), "from the engine")
			require.Zero(t, second.hits.Load())
			h.requireIdle()
		})
	}
}

func TestClientErrorsAreNeutral(t *testing.T) {
	h, first, _, session := pair(t)
	first.mode.Store("400")
	for range 10 {
		resp := h.post(chat, "X-Session-Id", session)
		h.read(resp)
		require.Equal(t, "e0", resp.Header.Get("X-Wardrop-Engine"))
	}
	require.Zero(t, h.plane.Stats()[0].Failed)
}

func TestFailureInMidStreamIsVisibleAndNotRetried(t *testing.T) {
	h, first, second, session := pair(t)
	first.mode.Store("mid-stream")
	resp := h.post(chat, "X-Session-Id", session)
	got, err := io.ReadAll(resp.Body)
	require.Error(t, err, "the stream must not seem to end well")
	require.Equal(t, "data: half", string(got))
	require.Zero(t, second.hits.Load())
	h.requireIdle()
	require.Equal(t, uint64(1), h.plane.Stats()[0].Failed)
}

// TestOneRetryNotMore: a request that no engine can take, or that makes each one fail,
// gets to two, hedged or not.
func TestOneRetryNotMore(t *testing.T) {
	for _, mode := range []string{"500", "503", "reset"} {
		for _, hedge := range []time.Duration{0, time.Nanosecond} {
			var hits atomic.Int64
			engine := func(w http.ResponseWriter, r *http.Request) {
				hits.Add(1)
				f := &flaky{}
				f.mode.Store(mode)
				f.ServeHTTP(w, r)
			}
			h := newHarnessWith(t, config.Proxy{RetryBudget: 1, HedgeAfter: config.Duration(hedge)}, engine, engine, engine, engine)
			for i := range 3 {
				resp := h.post(chat, "X-Session-Id", fmt.Sprint(i))
				require.GreaterOrEqual(t, resp.StatusCode, 500)
				if body := h.read(resp); mode != "reset" {
					require.Contains(t, body, "from the engine", "the last engine's own answer reaches the client")
				}
				h.requireIdle()
				require.Equal(t, int64(2*(i+1)), hits.Load())
			}
		}
	}
}

func TestNoRetryWithoutBudget(t *testing.T) {
	h, first, second, session := pairWith(t, config.Proxy{})
	first.mode.Store("503")
	resp := h.post(chat, "X-Session-Id", session)
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	require.Zero(t, second.hits.Load())
}

func TestDeadEngineCostsNoRequestAndNoBudget(t *testing.T) {
	h, _, second, _ := pairWith(t, config.Proxy{})
	h.engines[0].CloseClientConnections()
	h.engines[0].Close()
	for i := range 200 {
		resp := h.post(chat, "X-Session-Id", fmt.Sprint(i))
		require.Equal(t, http.StatusOK, resp.StatusCode)
		h.read(resp)
	}
	require.Equal(t, int64(200), second.hits.Load())
	require.Less(t, h.plane.Stats()[0].Failed, uint64(20), "it is passed over, not tried by every request")
	h.requireIdle()
}

func TestAllEnginesDead(t *testing.T) {
	h := newHarness(t, answers(""), answers(""))
	for _, e := range h.engines {
		e.Close()
	}
	resp := h.post(chat)
	require.NotEmpty(t, resp.Header.Get("Retry-After"))
	require.Contains(t, h.wantError(resp, http.StatusServiceUnavailable, "no_engine"), "refused")
	h.requireIdle()
}
