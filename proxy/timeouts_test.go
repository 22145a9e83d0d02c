package proxy

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
)

func TestDeadlineIsRefusedAtOnce(t *testing.T) {
	h, first, second, session := pair(t)
	for _, header := range []string{"X-Request-Timeout", "X-Stainless-Timeout"} {
		resp := h.post(chat, "X-Session-Id", session, header, "0.5") // one second is predicted
		require.Contains(t, h.wantError(resp, http.StatusGatewayTimeout, "deadline"), "500ms")
		require.Equal(t, "deadline", h.decision(resp.Header).Refused)
		require.Equal(t, http.StatusOK, h.post(chat, header, "30").StatusCode)
		require.Equal(t, http.StatusOK, h.post(chat, header, "90s").StatusCode)
	}
	for _, wrong := range []string{"soon", "-1", "NaN"} {
		h.wantError(h.post(chat, "X-Request-Timeout", wrong), http.StatusBadRequest, "invalid_timeout")
		require.Equal(t, http.StatusOK, h.post(chat, "X-Stainless-Timeout", wrong).StatusCode, "a client library's word for no limit")
	}
	require.LessOrEqual(t, first.hits.Load()+second.hits.Load(), int64(7), "no engine saw the refused ones")
	resp := h.post(chat, "X-Request-Timeout", "30", "X-Stainless-Timeout", "0.1")
	require.Equal(t, http.StatusOK, resp.StatusCode, "ours goes before the client library's")
}

// fast makes the plan predict next to nothing, so that short limits are no reason
// to refuse.
func fast(s *fleet.Snapshot) {
	for i := range s.Rows[0].Targets {
		s.Rows[0].Targets[i].Predicted = 1e-6
	}
}

func TestTotalTimeout(t *testing.T) {
	g := &gate{}
	h := newHarnessWith(t, config.Proxy{TotalTimeout: config.Duration(20 * time.Millisecond)}, g.ServeHTTP)
	h.edit(fast)
	h.wantError(h.post(chat), http.StatusGatewayTimeout, "deadline")
	until(t, "the engine was told", func() bool { _, gone := g.count(); return gone == 1 })
	h.requireIdle()
	require.Zero(t, h.plane.Stats()[0].Failed, "our limit says nothing about the engine")

	half := newHarnessWith(t, config.Proxy{TotalTimeout: config.Duration(200 * time.Millisecond)}, beginsAndStops)
	half.edit(fast)
	resp := half.post(chat)
	got, err := io.ReadAll(resp.Body)
	require.Error(t, err, "the stream is cut, visibly")
	require.Equal(t, "data: half", string(got))
	half.requireIdle()
}

// beginsAndStops streams a little and then nothing.
func beginsAndStops(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	_, _ = io.WriteString(w, "data: half")
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

func TestIdleTimeout(t *testing.T) {
	h := newHarnessWith(t, config.Proxy{IdleTimeout: config.Duration(30 * time.Millisecond)}, beginsAndStops)
	resp := h.post(chat)
	got, err := io.ReadAll(resp.Body)
	require.Error(t, err)
	require.Equal(t, "data: half", string(got))
	h.requireIdle()
	require.Equal(t, uint64(1), h.plane.Stats()[0].Failed, "an engine that falls silent failed")
	d := h.decision(resp.Header)
	require.NotEmpty(t, d.Attempts[0].Error)

	// The limit of one answer is not the next one's on the same connection.
	fine := newHarnessWith(t, config.Proxy{IdleTimeout: config.Duration(time.Minute)}, answers("x"))
	for range 5 {
		require.Equal(t, "x", fine.read(fine.post(chat)))
	}
}

// TestSilentClientIsLetGo: it keeps its connection and takes nothing.
func TestSilentClientIsLetGo(t *testing.T) {
	gone := make(chan struct{})
	h := newHarnessWith(t, config.Proxy{IdleTimeout: config.Duration(100 * time.Millisecond)}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		defer close(gone)
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	})
	resp := h.post(chat) // and never read
	require.Equal(t, http.StatusOK, resp.StatusCode)
	<-gone
	h.requireIdle()
	require.Zero(t, h.plane.Stats()[0].Failed, "it was not the engine")
}
