package proxy

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
)

// ordered is an engine behind a gate that remembers whom it served.
type ordered struct {
	gate
	mu    sync.Mutex
	order []string
}

func (o *ordered) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	o.order = append(o.order, r.Header.Get("X-Session-Id"))
	o.mu.Unlock()
	o.gate.ServeHTTP(w, r)
}

// wait starts a request that has to wait, as the nth in the queue.
func (h *harness) wait(n int, session, priority string) *call {
	h.t.Helper()
	c := h.start(chat, "X-Session-Id", session, "X-Priority", priority)
	until(h.t, "it waits", func() bool { return h.queueLength() == n })
	return c
}

// TestMostImportantGoesFirst: whenever a place frees; and among equals who came
// first, newcomers included.
func TestMostImportantGoesFirst(t *testing.T) {
	o := &ordered{}
	h := limited(t, config.Proxy{QueueTime: long, QueueBytes: 1 << 20}, 1, o.ServeHTTP)
	h.fill(&o.gate, 0)
	var calls []*call
	for i, p := range []string{"batch", "standard", "critical", "batch", "standard", "critical"} {
		calls = append(calls, h.wait(i+1, fmt.Sprint(p, i), p))
	}
	for i := range 8 {
		if i == 3 { // the critical ones are gone: a new one passes all that wait
			calls = append(calls, h.wait(4, "late critical", "critical"))
		}
		o.release(1)
		until(t, "one more is served", func() bool { hits, _ := o.count(); return hits == min(i+2, 8) })
	}
	for _, c := range calls {
		<-c.done
		require.Equal(t, http.StatusOK, c.status)
	}
	require.Equal(t, []string{"", "critical2", "critical5", "standard1", "late critical", "standard4", "batch0", "batch3"}, o.order)
	h.requireIdle()
	require.Zero(t, h.plane.waiting.used)
}

// TestImportantTakesTheNewestLeastImportantPlace: who loses it is refused at once,
// like all for whom there is no room.
func TestImportantTakesTheNewestLeastImportantPlace(t *testing.T) {
	o := &ordered{}
	h := limited(t, config.Proxy{QueueTime: long, QueueBytes: config.Size(3*len(chat) + 1)}, 1, o.ServeHTTP)
	h.fill(&o.gate, 0)
	b0, b1, s0 := h.wait(1, "b0", "batch"), h.wait(2, "b1", "batch"), h.wait(3, "s0", "standard")
	h.wantError(h.post(chat, "X-Priority", "batch"), http.StatusTooManyRequests, "full")
	var critical []*call
	for i, loser := range []*call{b1, b0, s0} {
		critical = append(critical, h.start(chat, "X-Session-Id", fmt.Sprint("c", i), "X-Priority", "critical"))
		<-loser.done
		require.Equal(t, http.StatusTooManyRequests, loser.status, "the %d. place", i)
		require.NotEmpty(t, loser.header.Get("Retry-After"))
		d := h.decision(loser.header)
		require.Equal(t, "full", d.Refused)
		require.Positive(t, d.Queued)
		until(t, "its place is taken", func() bool { return h.queueLength() == 3 })
	}
	for _, p := range []string{"critical", "standard", "batch"} {
		h.wantError(h.post(chat, "X-Priority", p), http.StatusTooManyRequests, "full")
	}
	for i := range 4 {
		o.release(1)
		until(t, "one more is served", func() bool { hits, _ := o.count(); return hits == min(i+2, 4) })
	}
	for _, c := range critical {
		<-c.done
		require.Equal(t, http.StatusOK, c.status)
	}
	require.Equal(t, []string{"", "c0", "c1", "c2"}, o.order)
	require.Zero(t, h.plane.waiting.used)
}

// TestField_90_ThreePrioritiesAndNoneStarves: a priority that overflows is refused;
// one that is passed by others is answered in the end, with a 429 if need be.
func TestField_90_ThreePrioritiesAndNoneStarves(t *testing.T) {
	o := &ordered{}
	h := limited(t, config.Proxy{QueueTime: config.Duration(50 * time.Millisecond), QueueBytes: 1 << 20}, 1, o.ServeHTTP)
	for _, p := range []string{"99999999999999999999", "-1", "0", "Critical", "critical,batch", "high"} {
		h.wantError(h.post(chat, "X-Priority", p), http.StatusBadRequest, "invalid_priority")
	}
	held, _ := h.fill(&o.gate, 0)
	batch := h.start(chat, "X-Priority", "batch", "X-Session-Id", "batch")
	begin := time.Now()
	for served := 1; ; { // critical ones keep coming
		require.Less(t, time.Since(begin), 10*time.Second)
		c := h.start(chat, "X-Priority", "critical", "X-Session-Id", "critical")
		o.release(1)
		until(t, "it is served, or it is the batch request's end", func() bool {
			hits, _ := o.count()
			return hits > served || closed(batch.done) || closed(c.done)
		})
		if closed(batch.done) {
			break
		}
		served, _ = o.count()
	}
	require.Contains(t, []int{http.StatusTooManyRequests, http.StatusOK}, batch.status)
	o.release(1 << 20)
	<-held.done
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestWaitingRoom: whatever comes and goes, the limit holds, nobody loses a place
// in vain or to one that is not more important, and it is the newest of the least
// important who does.
func TestWaitingRoom(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	r := waitingRoom{limit: 1000}
	var inside []*waiter // oldest first
	for range 20_000 {
		if len(inside) > 0 && rng.IntN(3) == 0 {
			i := rng.IntN(len(inside))
			r.leave(inside[i])
			r.leave(inside[i]) // once more changes nothing
			inside = append(inside[:i], inside[i+1:]...)
			continue
		}
		w := newWaiter(fleet.Priority(rng.IntN(fleet.NumPriorities)), rng.Int64N(300))
		used, below := int64(0), int64(0)
		for _, o := range inside {
			used += o.size
			if o.priority > w.priority {
				below += o.size
			}
		}
		ok := r.enter(w)
		require.Equal(t, used-below+w.size <= r.limit, ok)
		if ok {
			inside = append(inside, w)
		}
		for used += w.size; ok && used > r.limit; { // the model: one after the other goes
			worst := 0
			for i, o := range inside[:len(inside)-1] {
				if o.priority >= inside[worst].priority {
					worst = i
				}
			}
			require.True(t, closed(inside[worst].ousted))
			require.Greater(t, inside[worst].priority, w.priority)
			used -= inside[worst].size
			inside = append(inside[:worst], inside[worst+1:]...)
		}
		for _, o := range inside {
			require.False(t, closed(o.ousted), "nobody loses a place in vain")
		}
	}
	for _, w := range inside {
		r.leave(w)
	}
	require.Zero(t, r.used)
}
