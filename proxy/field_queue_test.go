package proxy

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
)

const long = config.Duration(30 * time.Second)

func (h *harness) queueLength() int {
	return int(h.plane.table.Load().rows["m"].model.queue.length.Load())
}

// fill takes all the room of one engine and then queues n requests, in order. The
// i-th has the session "q<i>".
func (h *harness) fill(g *gate, n int, header ...string) (held *call, queued []*call) {
	h.t.Helper()
	held = h.start(chat)
	until(h.t, "the engine is full", func() bool { hits, _ := g.count(); return hits == 1 })
	for i := range n {
		queued = append(queued, h.start(chat, append([]string{"X-Session-Id", fmt.Sprint("q", i)}, header...)...))
		until(h.t, "it waits", func() bool { return h.queueLength() == i+1 })
	}
	return held, queued
}

func TestQueueIsFirstComeFirstServed(t *testing.T) {
	var mu sync.Mutex
	var order []string
	g := &gate{}
	h := limited(t, config.Proxy{QueueTime: long, QueueBytes: 1 << 20}, 1, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		order = append(order, r.Header.Get("X-Session-Id"))
		mu.Unlock()
		g.ServeHTTP(w, r)
	})
	_, queued := h.fill(g, 6)
	late := make([]*call, 0, 6)
	for i, c := range queued {
		// A newcomer at the moment that room comes does not push in.
		late = append(late, h.start(chat, "X-Session-Id", fmt.Sprint("late", i)))
		until(t, "it waits", func() bool { return h.queueLength() == 7 })
		g.release(1)
		until(t, "one more is served", func() bool { hits, _ := g.count(); return hits == i+2 })
		_ = c
	}
	for i := range late {
		g.release(1)
		until(t, "one more is served", func() bool { hits, _ := g.count(); return hits == i+8 })
	}
	g.release(1)
	for _, c := range append(queued, late...) {
		<-c.done
		require.Equal(t, http.StatusOK, c.status)
		require.Positive(t, h.decision(c.header).Queued)
	}
	want := []string{"", "q0", "q1", "q2", "q3", "q4", "q5", "late0", "late1", "late2", "late3", "late4", "late5"}
	require.Equal(t, want, order)
	h.requireIdle()
	require.Zero(t, h.plane.waiting.used)
}

func TestQueueIsBoundedInBytes(t *testing.T) {
	g := &gate{}
	h := limited(t, config.Proxy{QueueTime: long, QueueBytes: config.Size(2*len(chat) + 1)}, 1, g.ServeHTTP)
	_, queued := h.fill(g, 2)
	resp := h.post(chat)
	require.NotEmpty(t, resp.Header.Get("Retry-After"))
	h.wantError(resp, http.StatusTooManyRequests, "full")
	require.Equal(t, "full", h.decision(resp.Header).Refused)
	g.release(1)
	until(t, "the first of the queue", func() bool { hits, _ := g.count(); return hits == 2 })
	g.release(1)
	until(t, "the second", func() bool { hits, _ := g.count(); return hits == 3 })
	g.release(1)
	for _, c := range queued {
		<-c.done
		require.Equal(t, http.StatusOK, c.status)
	}
}

func TestQueueIsBoundedInTime(t *testing.T) {
	g := &gate{}
	h := limited(t, config.Proxy{QueueTime: config.Duration(20 * time.Millisecond), QueueBytes: 1 << 20}, 1, g.ServeHTTP)
	h.start(chat)
	until(t, "the engine is full", func() bool { hits, _ := g.count(); return hits == 1 })
	for range 3 {
		resp := h.post(chat)
		require.NotEmpty(t, resp.Header.Get("Retry-After"))
		h.wantError(resp, http.StatusTooManyRequests, "full")
		require.GreaterOrEqual(t, h.decision(resp.Header).Queued, 0.02)
	}
	require.Zero(t, h.queueLength())
	require.Zero(t, h.plane.waiting.used)
	g.release(1)
}

// TestShedsLocallyWhenAllAreFull: without a queue, at once; what the row has room
// for is served wherever it is.
func TestShedsLocallyWhenAllAreFull(t *testing.T) {
	a, b := &gate{}, &gate{}
	h := limited(t, config.Proxy{}, 2, a.ServeHTTP, b.ServeHTTP)
	var calls []*call
	for i := range 4 {
		calls = append(calls, h.start(chat, "X-Session-Id", "s"))
		until(t, "it has an engine", func() bool { return h.inFlight() == int64(i+1) })
	}
	for range 20 {
		h.wantError(h.post(chat), http.StatusTooManyRequests, "full")
	}
	until(t, "two at each", func() bool {
		n, _ := a.count()
		m, _ := b.count()
		return n == 2 && m == 2
	})
	a.release(2)
	b.release(2)
	for _, c := range calls {
		<-c.done
		require.Equal(t, http.StatusOK, c.status)
	}
	h.requireIdle()
	require.Equal(t, uint64(20), h.plane.memory.models["m"].shed[fleet.Standard].total.Load())
}

func TestClientGoneInTheQueue(t *testing.T) {
	g := &gate{}
	h := limited(t, config.Proxy{QueueTime: long, QueueBytes: 1 << 20}, 1, g.ServeHTTP)
	held, queued := h.fill(g, 3)
	queued[0].cancel()
	queued[1].cancel()
	until(t, "they left the queue", func() bool { return h.queueLength() == 1 })
	g.release(1)
	<-held.done
	until(t, "the one that stayed is served", func() bool { hits, _ := g.count(); return hits == 2 })
	g.release(1)
	<-queued[2].done
	require.Equal(t, http.StatusOK, queued[2].status)
	h.requireIdle()
	hits, _ := g.count()
	require.Equal(t, 2, hits, "those that left cost the engine nothing")
	require.Zero(t, h.plane.waiting.used)
}

func TestDeadlineInTheQueue(t *testing.T) {
	g := &gate{}
	h := limited(t, config.Proxy{QueueTime: long, QueueBytes: 1 << 20}, 1, g.ServeHTTP)
	h.edit(func(s *fleet.Snapshot) { fast(s); s.Rows[0].Targets[0].Limit = 1 })
	h.start(chat)
	until(t, "the engine is full", func() bool { hits, _ := g.count(); return hits == 1 })
	h.wantError(h.post(chat, "X-Request-Timeout", "20ms"), http.StatusGatewayTimeout, "deadline")
	require.Zero(t, h.queueLength())
	g.release(1)
}

// TestNoWakeUpIsLost: every request must be served though there is room for two
// at a time, clients leave, and everything happens at once.
func TestNoWakeUpIsLost(t *testing.T) {
	h := limited(t, config.Proxy{QueueTime: long, QueueBytes: 1 << 30}, 1, answersBody, answersBody)
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 40 {
				ctx, cancel := context.WithCancel(t.Context())
				req, _ := http.NewRequestWithContext(ctx, http.MethodPost, h.url+"/v1/chat/completions", strings.NewReader(chat))
				leaves := (g+i)%8 == 0
				if leaves {
					time.AfterFunc(time.Duration(i)*20*time.Microsecond, cancel)
				}
				resp, err := h.client.Do(req)
				if err == nil {
					if resp.StatusCode != http.StatusOK && !leaves {
						t.Errorf("status %d", resp.StatusCode)
					}
					h.discard(resp)
				} else if !leaves {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	h.requireIdle()
	require.Zero(t, h.queueLength())
	require.Zero(t, h.plane.waiting.used)
}

// TestQueueHandsOn: the bare queue, where waiters give up at the moment in which
// they are woken.
func TestQueueHandsOn(t *testing.T) {
	var q queue
	room := make(chan struct{}, 1)
	try := func() bool {
		select {
		case <-room:
			return true
		default:
			return false
		}
	}
	var served, gaveUp int
	var mu sync.Mutex
	var wg sync.WaitGroup
	room <- struct{}{}
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				limit := time.Duration(long)
				if (g+i)%2 == 0 {
					limit = time.Duration(i%7) * 10 * time.Microsecond
				}
				ok := q.wait(t.Context(), newWaiter(fleet.Priority(i%3), 1), limit, try) == nil
				mu.Lock()
				if ok {
					served++
				} else {
					gaveUp++
				}
				mu.Unlock()
				if ok {
					room <- struct{}{}
					q.wake()
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 1600, served+gaveUp)
	require.GreaterOrEqual(t, served, 800, "who had time was served")
	require.True(t, q.empty())
}

// TestNewcomersDoNotPushIn: there is room, but somebody was here before.
func TestNewcomersDoNotPushIn(t *testing.T) {
	h := limited(t, config.Proxy{QueueTime: long, QueueBytes: 1 << 20}, 1, answers("x"))
	q := &h.plane.table.Load().rows["m"].model.queue
	place := newWaiter(fleet.Standard, 1)
	q.enter(place)
	c := h.start(chat)
	until(t, "it waits behind", func() bool { return h.queueLength() == 2 })
	require.Zero(t, h.inFlight())
	q.leave(place)
	<-c.done
	require.Equal(t, http.StatusOK, c.status)
}

// TestLeavingHandsOn: room came, and who was to have it left.
func TestLeavingHandsOn(t *testing.T) {
	var q queue
	var room atomic.Bool
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, leave := context.WithCancel(t.Context())
	wg.Go(func() { _ = q.wait(ctx, newWaiter(fleet.Standard, 1), time.Hour, func() bool { return false }) })
	until(t, "the first waits", func() bool { return q.length.Load() == 1 })
	last, cancel := context.WithCancel(t.Context())
	defer cancel()
	served := make(chan bool, 1)
	wg.Go(func() { served <- q.wait(last, newWaiter(fleet.Standard, 1), time.Hour, room.Load) == nil })
	until(t, "the second waits", func() bool { return q.length.Load() == 2 })
	room.Store(true)
	q.wake()
	leave()
	select {
	case ok := <-served:
		require.True(t, ok)
	case <-time.After(10 * time.Second):
		t.Fatal("the wake-up was lost")
	}
}

// TestRetriesKeepToTheRoom: a retry is no way past an engine's limit, and the
// engine that failed is not asked again for want of another.
func TestRetriesKeepToTheRoom(t *testing.T) {
	g, f := &gate{}, &flaky{}
	h := limited(t, config.Proxy{RetryBudget: 1}, 1, g.ServeHTTP, f.ServeHTTP)
	held := h.start(chat)
	for i := 0; ; i++ { // until one is held
		var hits int
		until(t, "it is held, or was answered", func() bool {
			hits, _ = g.count()
			select {
			case <-held.done:
				return true
			default:
				return hits > 0
			}
		})
		if hits > 0 {
			break
		}
		held = h.start(chat, "X-Session-Id", fmt.Sprint(i))
	}
	f.hits.Store(0)
	for _, mode := range []string{"503", "reset"} {
		f.mode.Store(mode)
		for range 5 {
			h.read(h.post(chat))
		}
	}
	hits, _ := g.count()
	require.Equal(t, 1, hits)
	require.LessOrEqual(t, f.hits.Load(), int64(10), "never the same one twice")
	g.release(1)
	<-held.done
	h.requireIdle()
}
