package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
)

// The tests here are about engines without counters that get only requests whose
// answers come whole, in virtual time.

// whole is a bubble that is swept, and what became of its requests.
type whole struct {
	*bubble
	running sync.WaitGroup
	next    int
	mu      sync.Mutex
	ended   []*httptest.ResponseRecorder
}

func newWhole(t *testing.T, engines ...http.Handler) *whole {
	w := &whole{bubble: newBubble(t, config.Proxy{StallAfter: config.Duration(10 * time.Second), RetryBudget: 0.2}, engines...)}
	ctx, cancel := context.WithCancel(t.Context())
	w.running.Go(func() { w.plane.watch(ctx) })
	t.Cleanup(func() { cancel(); w.running.Wait() })
	return w
}

// send starts a request of a session of its own; its client waits for that long, or
// for ever if that is 0.
func (w *whole) send(body string, patience time.Duration) {
	ctx, cancel := context.WithCancel(w.t.Context())
	if patience > 0 {
		ctx, cancel = context.WithTimeout(w.t.Context(), patience)
	}
	w.next++
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
	r.Header.Set("X-Session-Id", fmt.Sprint(w.next))
	w.running.Go(func() {
		defer cancel()
		rec := httptest.NewRecorder()
		w.plane.Handler().ServeHTTP(rec, r)
		w.mu.Lock()
		w.ended = append(w.ended, rec)
		w.mu.Unlock()
	})
}

// answers gives what was answered by now.
func (w *whole) answers() []*httptest.ResponseRecorder {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*httptest.ResponseRecorder{}, w.ended...)
}

func (w *whole) passed(i int) bool { return w.flight(i).PassedOver() }

// worker is an engine that takes its time, which depends on the body.
type worker struct {
	takes func(body int) time.Duration
	hits  atomic.Int64
	cut   atomic.Int64 // requests that were ended before their answer
	hole  atomic.Bool  // it takes requests and does nothing
}

func (e *worker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	e.hits.Add(1)
	for e.hole.Load() {
		select {
		case <-r.Context().Done():
			return
		case <-time.After(time.Second):
		}
	}
	select {
	case <-r.Context().Done():
		e.cut.Add(1)
		return
	case <-time.After(e.takes(len(body))):
	}
	_, _ = io.WriteString(w, "ok")
}

func seconds(n int) func(int) time.Duration {
	return func(int) time.Duration { return time.Duration(n) * time.Second }
}

const bounded = `{"model":"m","max_tokens":256,"messages":[{"role":"user","content":"hi"}]}`

// TestSilentEngineIsDoubted: new requests go elsewhere soon, but for a few probes,
// which are taken back in time. When it works again it gets its share again.
func TestSilentEngineIsDoubted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hole, well := &worker{takes: seconds(1)}, &worker{takes: seconds(1)}
		w := newWhole(t, hole, well)
		traffic := func(d time.Duration) (toHole int64) {
			before := hole.hits.Load()
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				w.send(bounded, 0)
			}
			return hole.hits.Load() - before
		}
		require.Greater(t, traffic(10*time.Second), int64(20))
		hole.hole.Store(true)
		traffic(17 * time.Second) // 10 s and five times the second that is predicted
		require.True(t, w.passed(0))
		traffic(30 * time.Second) // the first leases are short
		stuck := w.flight(0).Requests()
		require.LessOrEqual(t, traffic(10*time.Minute), int64(10*60/16*3), "three probes a lease at most")
		require.LessOrEqual(t, w.flight(0).Requests(), stuck+6, "probes that wait are taken back")
		require.Zero(t, hole.cut.Load())
		hole.hole.Store(false)
		traffic(30 * time.Second)
		require.Greater(t, traffic(10*time.Second), int64(20))
		time.Sleep(time.Minute)
		require.Equal(t, w.next, len(w.answers()))
		for _, rec := range w.answers() {
			require.Equal(t, http.StatusOK, rec.Code)
		}
	})
}

// TestSilentEngineIsDoubtedThoughClientsGiveUp: none waits for long enough.
func TestSilentEngineIsDoubtedThoughClientsGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hole, well := &worker{takes: seconds(1)}, &worker{takes: seconds(1)}
		hole.hole.Store(true)
		w := newWhole(t, hole, well)
		for range 30 {
			w.send(bounded, 3*time.Second)
			time.Sleep(4 * time.Second)
			if w.passed(0) {
				return
			}
		}
		t.Fatal("it was never found")
	})
}

// TestLongPrefillsAreNoDoubt: prompts of 100,000 tokens among small ones, one or
// many at a time, served one after the other or side by side; small ones wait
// behind them.
func TestLongPrefillsAreNoDoubt(t *testing.T) {
	long := `{"model":"m","max_tokens":16,"messages":[{"role":"user","content":"` + strings.Repeat("word ", 80_000) + `"}]}`
	const prefill = 60 * time.Second // slow: 1,700 tokens a second
	for name, atOnce := range map[string]int{"one": 1, "eight": 8} {
		for order, sideBySide := range map[string]bool{"in turn": false, "side by side": true} {
			t.Run(name+" "+order, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					turn := make(chan struct{}, 1)
					var inside atomic.Int64
					e := &worker{takes: func(body int) time.Duration {
						if body < 1000 {
							return time.Second
						}
						return prefill
					}}
					serve := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
						if sideBySide { // they share its speed
							inside.Add(1)
							time.Sleep(time.Second) // until all are there
							time.Sleep(time.Duration(inside.Load()-1) * prefill)
						} else {
							turn <- struct{}{}
							defer func() { <-turn }()
						}
						e.ServeHTTP(rw, r)
					})
					w := newWhole(t, serve, &worker{takes: seconds(1)})
					for range 100 { // the traffic is of small ones
						w.plane.table.Load().rows["m"].model.usual.blend(300)
					}
					for range atOnce * 2 { // about half of them at each
						w.send(long, 0)
					}
					w.send(bounded, 0)
					for range 2 * 60 * 2 * atOnce {
						require.False(t, w.passed(0))
						time.Sleep(500 * time.Millisecond)
					}
					time.Sleep(time.Hour)
					require.Zero(t, e.cut.Load())
					for _, rec := range w.answers() {
						require.Equal(t, http.StatusOK, rec.Code)
						require.Equal(t, "1", rec.Header().Get("X-Wardrop-Attempts"))
					}
				})
			})
		}
	}
}

// TestLongWorkIsNeverCut: an answer whose request sets no limit may take an hour.
// Then the engine is in doubt, but it keeps its work.
func TestLongWorkIsNeverCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &worker{takes: seconds(3600)}
		w := newWhole(t, e, &worker{takes: seconds(3600)})
		for range 4 {
			w.send(chat, 0)
		}
		time.Sleep(30 * time.Minute)
		require.True(t, w.passed(0) || w.passed(1))
		time.Sleep(time.Hour)
		require.Len(t, w.answers(), 4)
		for _, rec := range w.answers() {
			require.Equal(t, http.StatusOK, rec.Code)
			require.Equal(t, "1", rec.Header().Get("X-Wardrop-Attempts"))
		}
	})
}
