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
	"github.com/wardrop-lb/wardrop/signals"
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

// TestStalledEngineIsFoundByProgress: it accepts and never answers, and its health
// is good. What waits for it goes elsewhere.
func TestStalledEngineIsFoundByProgress(t *testing.T) {
	g := &gate{}
	h := newHarnessWith(t, config.Proxy{RetryBudget: 0.2, StallAfter: config.Duration(10 * time.Second)}, g.ServeHTTP, answers("other"))
	var stuck []*call
	for i := 0; len(stuck) < 3; i++ {
		c := h.start(stream, "X-Session-Id", fmt.Sprint("s", i))
		until(t, "it is held, or was answered", func() bool {
			n, _ := g.count()
			select {
			case <-c.done:
				return true
			default:
				return n > len(stuck)
			}
		})
		if n, _ := g.count(); n > len(stuck) {
			stuck = append(stuck, c)
		}
	}
	// One second is predicted, so that fifteen of silence are too many.
	h.plane.sweep(time.Now().Add(14 * time.Second))
	require.Equal(t, int64(3), h.inFlight())
	h.plane.sweep(time.Now().Add(16 * time.Second))
	for _, c := range stuck {
		<-c.done
		require.NoError(t, c.err)
		require.Equal(t, "other", c.body)
		d := h.decision(c.header)
		require.Equal(t, "stalled", d.Attempts[0].Outcome)
		require.Equal(t, errStalled.Error(), d.Attempts[0].Error)
		require.Equal(t, "success", d.Attempts[1].Outcome)
	}
	require.True(t, h.plane.table.Load().rows["m"].Targets()[0].Flight.PassedOver())
	until(t, "the engine was told", func() bool { _, gone := g.count(); return gone == 3 })
	h.requireIdle()
	h.plane.sweep(time.Now().Add(time.Hour))
	require.False(t, h.plane.table.Load().rows["m"].Targets()[1].Flight.PassedOver(), "an idle engine owes no sign of life")
}

const stream = `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`

// TestLongAnswerIsNoStall: an answer that comes whole is silent until it is whole.
// Only an engine whose own counters stand still meanwhile is a black hole.
func TestLongAnswerIsNoStall(t *testing.T) {
	g := &gate{}
	h := newHarnessWith(t, config.Proxy{RetryBudget: 0.2, StallAfter: config.Duration(10 * time.Second)}, g.ServeHTTP, answers("other"))
	var c *call
	for i := 0; ; i++ {
		c = h.start(chat, "X-Session-Id", fmt.Sprint("s", i))
		until(t, "it is held, or was answered", func() bool {
			n, _ := g.count()
			select {
			case <-c.done:
				return true
			default:
				return n > 0
			}
		})
		if n, _ := g.count(); n > 0 {
			break
		}
	}
	passed := h.plane.table.Load().rows["m"].Targets()[0].Flight.PassedOver
	read := func(at time.Time, progress float64) {
		h.plane.progressed(signals.State{Engine: "e0", Signal: &signals.Signal{Time: at, Values: signals.Values{Progress: signals.Some(progress)}}})
	}
	now := time.Now()
	h.plane.sweep(now.Add(time.Hour))
	require.False(t, passed(), "nobody knows better")
	for second := range 100 {
		at := now.Add(time.Hour + time.Duration(second)*time.Second)
		read(at, float64(second))
		h.plane.sweep(at)
	}
	require.False(t, passed(), "it works")
	for second := range 20 {
		at := now.Add(2*time.Hour + time.Duration(second)*time.Second)
		read(at, 100)
		h.plane.sweep(at)
	}
	require.True(t, passed(), "it stands still")
	<-c.done
	require.NoError(t, c.err)
	require.Equal(t, "other", c.body)
}

// TestStalledEngineIsFoundThoughClientsGiveUp: none waits as long as it takes to
// be sure, but together they have.
func TestStalledEngineIsFoundThoughClientsGiveUp(t *testing.T) {
	var p pulse
	at := int64(time.Hour)
	wait := func(seconds int64) {
		a := &attempt{sent: time.Unix(0, at), stream: true}
		p.wait(a)
		at += seconds * int64(time.Second)
		p.leave(a, at)
		at += int64(time.Minute) // nobody asks
	}
	for range 4 {
		wait(3)
	}
	require.Equal(t, 12*time.Second, time.Duration(p.owed.Load()), "the time in which somebody waited, no other")
	p.beat(at)
	a := &attempt{sent: time.Unix(0, at), stream: true}
	p.wait(a)
	p.beat(at + 1)
	p.leave(a, at+2)
	require.Zero(t, p.owed.Load(), "a byte of any answer clears it")

	g := &gate{}
	h := newHarnessWith(t, config.Proxy{StallAfter: config.Duration(10 * time.Second)}, g.ServeHTTP)
	h.start(stream)
	until(t, "it arrived", func() bool { n, _ := g.count(); return n == 1 })
	h.plane.sweep(time.Now())
	require.Zero(t, h.plane.memory.engine("e0").outlier.Penalty(time.Now().UnixNano()))
	h.plane.memory.engine("e0").pulse.owed.Store(int64(16 * time.Second))
	h.plane.sweep(time.Now())
	require.Positive(t, h.plane.memory.engine("e0").outlier.Penalty(time.Now().UnixNano()))
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
				require.Equal(t, "outrun", d.Attempts[0].Outcome)
				require.Equal(t, "success", d.Attempts[1].Outcome)
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
