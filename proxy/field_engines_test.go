package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
)

func TestField_39_ClientErrorsOpenNoBreaker(t *testing.T) {
	h, first, second, _ := pair(t)
	for _, mode := range []string{"400", "404", "413", "422"} {
		first.mode.Store(mode)
		second.mode.Store(mode)
		for i := range 50 {
			require.Equal(t, mode, fmt.Sprint(h.post(chat, "X-Session-Id", fmt.Sprint(i)).StatusCode))
		}
	}
	for _, target := range h.plane.table.Load().rows["m"].Targets() {
		require.False(t, target.Flight.PassedOver())
	}
	for _, e := range []string{"e0", "e1"} {
		require.Zero(t, h.plane.memory.engine(e).outlier.Penalty(time.Now().UnixNano()))
	}
	first.mode.Store("")
	second.mode.Store("")
	require.Equal(t, http.StatusOK, h.post(chat).StatusCode)
}

// TestField_40_QueueFullIsNotDeath: the moment it has drained it serves again.
func TestField_40_QueueFullIsNotDeath(t *testing.T) {
	h, first, _, session := pairWith(t, config.Proxy{RetryBudget: 1})
	first.mode.Store("503")
	for range 50 {
		resp := h.post(chat, "X-Session-Id", session)
		h.read(resp)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Equal(t, "e1", resp.Header.Get("X-Wardrop-Engine"))
	}
	first.mode.Store("")
	resp := h.post(chat, "X-Session-Id", session)
	h.read(resp)
	require.Equal(t, "e0", resp.Header.Get("X-Wardrop-Engine"))
}

// TestField_45_ServingAMarkedEngineIsSaid: it happens when nothing else is left.
func TestField_45_ServingAMarkedEngineIsSaid(t *testing.T) {
	h, first, second, session := pairWith(t, config.Proxy{RetryBudget: 1})
	row := h.plane.table.Load().rows["m"]
	require.True(t, row.PassOver(0, time.Now().UnixNano(), time.Now().Add(time.Hour).UnixNano()))
	second.mode.Store("reset")
	resp := h.post(chat, "X-Session-Id", session)
	h.read(resp)
	require.Equal(t, "e0", resp.Header.Get("X-Wardrop-Engine"))
	require.Equal(t, int64(1), first.hits.Load())
	d := h.decision(resp.Header)
	require.Equal(t, 1, d.Passed)
	require.Equal(t, []string{"e1", "e0"}, []string{d.Attempts[0].Engine, d.Attempts[1].Engine})
	require.Equal(t, []string{"failure", "success"}, []string{d.Attempts[0].Outcome, d.Attempts[1].Outcome})
}

func TestField_48_AllMarkedIsNoOutage(t *testing.T) {
	h, first, second, _ := pair(t)
	first.mode.Store("reset")
	second.mode.Store("reset")
	for i := range 100 {
		h.read(h.post(chat, "X-Session-Id", fmt.Sprint(i)))
	}
	first.mode.Store("")
	second.mode.Store("")
	ok := 0
	for i := range 100 {
		if h.post(chat, "X-Session-Id", fmt.Sprint(i)).StatusCode == http.StatusOK {
			ok++
		}
	}
	require.Equal(t, 100, ok, "what is marked is asked rather than nobody")
}

// TestField_50_BudgetCountsEveryRetryOnce: what was sent twice is what was spent.
func TestField_50_BudgetCountsEveryRetryOnce(t *testing.T) {
	h, first, second, session := pair(t)
	first.mode.Store("503")
	second.mode.Store("503")
	const requests = 400
	for range requests {
		h.read(h.post(chat, "X-Session-Id", session))
	}
	h.requireIdle()
	retries := first.hits.Load() + second.hits.Load() - requests
	require.Equal(t, float64(retries), testutil.ToFloat64(h.plane.metrics.retries.WithLabelValues("backpressure")))
	const saved = 100 // the bucket begins full
	require.Greater(t, retries, int64(saved))
	require.LessOrEqual(t, retries, int64(saved+requests/5))
}

// TestField_52_RetryAfterIsKept: also when a request that the engine had taken
// before answers meanwhile, and when it asks for less a moment later.
func TestField_52_RetryAfterIsKept(t *testing.T) {
	g := &gate{}
	limiting := make(chan string, 2)
	hits := 0
	h := newHarness(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case after := <-limiting:
			w.Header().Set("Retry-After", after)
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			hits++
			g.ServeHTTP(w, r)
		}
	}, answers("other"))
	session := ""
	var old *call
	for i := 0; hits == 0; i++ {
		session = fmt.Sprint("s", i)
		old = h.start(chat, "X-Session-Id", session)
		until(t, "it is held, or was answered elsewhere", func() bool {
			n, _ := g.count()
			select {
			case <-old.done:
				return true
			default:
				return n > 0
			}
		})
	}
	limiting <- "30"
	resp := h.post(chat, "X-Session-Id", session)
	require.Equal(t, "other", h.read(resp), "a retry elsewhere, at once")
	g.release(1)
	<-old.done
	require.Equal(t, http.StatusOK, old.status)
	h.requireIdle()
	for i := range 100 {
		require.Equal(t, "other", h.read(h.post(chat, "X-Session-Id", fmt.Sprint(session, i%2*i))))
	}
	require.Equal(t, 1, hits)
	require.True(t, h.plane.table.Load().rows["m"].Targets()[0].Flight.PassedOver())
}

func TestRetryAfterIsBounded(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"2": 2 * time.Second, "0.5": 500 * time.Millisecond, "1e9": maxRetryAfter, "-1": 0, "NaN": 0, "+Inf": maxRetryAfter,
		"": 0, "Wed, 21 Oct 2026 07:28:00 GMT": 0,
	} {
		require.Equal(t, want, retryAfter(&http.Response{Header: http.Header{"Retry-After": {text}}}), text)
	}
	require.Zero(t, retryAfter(nil))
}

// TestField_54_ShedIsFinalAndFullIsNot: our own refusal is no failure and spends
// nothing; an engine's is tried elsewhere.
func TestField_54_ShedIsFinalAndFullIsNot(t *testing.T) {
	h, first, second, session := pair(t)
	first.mode.Store("503")
	resp := h.post(chat, "X-Session-Id", session)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, "2", resp.Header.Get("X-Wardrop-Attempts"))
	first.hits.Store(0)
	second.hits.Store(0)
	h.edit(func(s *fleet.Snapshot) { s.Rows[0].Shed = [fleet.NumPriorities]float64{1, 1, 1} })
	for range 50 {
		resp := h.post(chat, "X-Session-Id", session)
		require.NotEmpty(t, resp.Header.Get("Retry-After"))
		h.wantError(resp, http.StatusTooManyRequests, "shed")
		require.Empty(t, h.decision(resp.Header).Attempts)
	}
	require.Zero(t, first.hits.Load()+second.hits.Load())
	require.Equal(t, 1.0, testutil.ToFloat64(h.plane.metrics.retries.WithLabelValues("backpressure")))
}

// TestField_55_RetrySendsTheWholeBody: small and large ones, after an engine that
// took all of it, a part, or nothing.
func TestField_55_RetrySendsTheWholeBody(t *testing.T) {
	for _, size := range []int{100, smallBody + 1, 900 << 10} {
		for _, read := range []int64{0, int64(size) / 2, int64(size)} {
			body := `{"model":"m","x":"` + strings.Repeat("é", size/2) + `"}`
			h := newHarnessWith(t, config.Proxy{RetryBudget: 1, MaxBody: 4 << 20}, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.CopyN(io.Discard, r.Body, read)
				cut(w)
			}, answersBody)
			for i := range 8 {
				resp := h.post(body, "X-Session-Id", fmt.Sprint(i))
				require.Equal(t, http.StatusOK, resp.StatusCode)
				require.True(t, body == h.read(resp))
			}
			h.requireIdle()
		}
	}
}

func answersBody(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, _ = w.Write(body)
}

func TestHedging(t *testing.T) {
	g := &gate{}
	engines := []http.HandlerFunc{g.ServeHTTP, answers("other")}
	settings := config.Proxy{RetryBudget: 0.2, HedgeAfter: config.Duration(time.Millisecond)}
	t.Run("the first to answer wins", func(t *testing.T) {
		h := newHarnessWith(t, settings, engines...)
		for i := range 40 {
			resp := h.post(chat, "X-Session-Id", fmt.Sprint("s", i))
			require.Equal(t, "other", h.read(resp))
			if d := h.decision(resp.Header); len(d.Attempts) == 2 {
				require.ElementsMatch(t, []string{"outrun", "success"}, []string{d.Attempts[0].Outcome, d.Attempts[1].Outcome})
				require.Equal(t, "2", resp.Header.Get("X-Wardrop-Attempts"))
			}
		}
		h.requireIdle()
		hits, _ := g.count()
		require.Positive(t, hits)
		until(t, "every loser was cancelled", func() bool { _, gone := g.count(); return gone == hits })
		require.GreaterOrEqual(t, testutil.ToFloat64(h.plane.metrics.retries.WithLabelValues("hedge")), float64(hits), "each was hedged or was a hedge")
		require.Zero(t, h.plane.Stats()[0].Failed, "being outrun says nothing about an engine")
	})
	t.Run("a client that leaves says nothing", func(t *testing.T) {
		a, b := &gate{}, &gate{}
		h := newHarnessWith(t, settings, a.ServeHTTP, b.ServeHTTP)
		c := h.start(chat)
		until(t, "both have it", func() bool {
			n, _ := a.count()
			m, _ := b.count()
			return n == 1 && m == 1
		})
		c.cancel()
		<-c.done
		h.requireIdle()
		for _, s := range h.plane.Stats() {
			require.Zero(t, s.Failed)
		}
	})
	t.Run("not without budget", func(t *testing.T) {
		a, b := &gate{}, &gate{}
		h := newHarnessWith(t, config.Proxy{HedgeAfter: config.Duration(time.Nanosecond)}, a.ServeHTTP, b.ServeHTTP)
		for range 20 {
			h.start(chat)
		}
		until(t, "all are held", func() bool {
			n, _ := a.count()
			m, _ := b.count()
			return n+m == 20
		})
		require.Equal(t, int64(20), h.inFlight(), "each at one engine")
		a.release(20)
		b.release(20)
		h.requireIdle()
	})
	t.Run("both fail", func(t *testing.T) {
		a, b := &flaky{}, &flaky{}
		a.mode.Store("502")
		b.mode.Store("502")
		h := newHarnessWith(t, settings, a.ServeHTTP, b.ServeHTTP)
		resp := h.post(chat)
		require.Equal(t, http.StatusBadGateway, resp.StatusCode)
		h.read(resp)
		h.requireIdle()
	})
}

func TestField_61_NoRetryInMidStream(t *testing.T) {
	h, first, second, session := pairWith(t, config.Proxy{RetryBudget: 1})
	first.mode.Store("mid-stream")
	for range 2 {
		resp := h.post(chat, "X-Session-Id", session)
		got, err := io.ReadAll(resp.Body)
		require.Error(t, err)
		require.Equal(t, "data: half", string(got), "every byte once")
		d := h.decision(resp.Header)
		require.Len(t, d.Attempts, 1)
		require.NotEmpty(t, d.Attempts[0].Error)
	}
	require.Zero(t, second.hits.Load())
}

// TestOneEngineAloneGetsAnotherConnection: there is no other to retry at.
func TestOneEngineAloneGetsAnotherConnection(t *testing.T) {
	f := &flaky{}
	h := newHarnessWith(t, config.Proxy{RetryBudget: 1}, f.ServeHTTP)
	f.mode.Store("reset")
	resp := h.post(chat)
	h.wantError(resp, http.StatusBadGateway, "engine_failed")
	require.Equal(t, int64(2), f.hits.Load(), "one retry, not more")
	f.mode.Store("502")
	h.read(h.post(chat))
	require.Equal(t, int64(3), f.hits.Load(), "an answer is an answer")
	h.requireIdle()
}

func TestJudgeOfABrokenExchange(t *testing.T) {
	require.Equal(t, "failure", outcomeNames[outcomeOf(t.Context(), errors.New("x"))])
}
