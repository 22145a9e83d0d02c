package proxy

import (
	"errors"
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
	"github.com/wardrop-lb/wardrop/fleet"
)

// fullAndFailing is a row in virtual time of which one engine is well and full, and
// the other fails.
type fullAndFailing struct {
	*bubble
	well    chan struct{} // ends the request that fills the well engine
	failing *outage
	next    atomic.Int64
	running sync.WaitGroup
}

func newFullAndFailing(t *testing.T, settings config.Proxy) *fullAndFailing {
	f := &fullAndFailing{well: make(chan struct{}), failing: &outage{}}
	f.failing.mode.Store("reset")
	f.bubble = newBubble(t, settings, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-f.well
		_, _ = io.WriteString(w, "ok")
	}), f.failing)
	t.Cleanup(func() { close(f.well); f.running.Wait() })
	limit(t, f.plane, 1)
	for f.flight(0).Requests() == 0 || !f.flight(1).PassedOver() {
		f.running.Go(func() { f.code() })
		time.Sleep(10 * time.Millisecond) // virtual
	}
	synctest.Wait()
	return f
}

// limit allows every engine of the plane that many requests at once.
func limit(t *testing.T, p *DataPlane, n float64) {
	s := *p.table.Load().router.Snapshot
	s.Version++
	s.Rows = append([]fleet.SnapshotRow{}, s.Rows...)
	s.Rows[0].Targets = append([]fleet.Target{}, s.Rows[0].Targets...)
	for i := range s.Rows[0].Targets {
		s.Rows[0].Targets[i].Limit = n
	}
	require.NoError(t, p.apply(&s))
}

func (b *bubble) flight(i int) interface {
	Requests() int64
	PassedOver() bool
} {
	return b.plane.table.Load().rows["m"].Targets()[i].Flight
}

// code sends a request of a session of its own and gives the answer's status, 0 for
// none.
func (f *fullAndFailing) code() (status int) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(chat))
	r.Header.Set("X-Session-Id", fmt.Sprint(f.next.Add(1)))
	defer func() {
		if e := recover(); e != nil && !errors.Is(e.(error), http.ErrAbortHandler) {
			panic(e)
		}
	}()
	f.plane.Handler().ServeHTTP(w, r)
	return w.Code
}

// TestFullIsNotHelpedByFailing: when all well engines are full, a failing one is no
// way out. Whoever was sent there would cost its client the time to fail and the
// row a retry that it has no room for; a 429 is honest, at once, and says when to
// come again. Only the trickle of probes goes there.
func TestFullIsNotHelpedByFailing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFullAndFailing(t, config.Proxy{})
		before, codes := f.failing.hits.Load(), map[int]int{}
		for range 1000 { // ten seconds
			codes[f.code()]++
			time.Sleep(10 * time.Millisecond)
		}
		probes := f.failing.hits.Load() - before
		require.Positive(t, probes)
		require.LessOrEqual(t, probes, int64(2*10), "few, for the leases grow")
		require.Equal(t, map[int]int{http.StatusTooManyRequests: 1000 - int(probes), http.StatusBadGateway: int(probes)}, codes)
	})
}

// TestProbesPassTheQueue: those that wait do so for the engines that are well. The
// request that finds out whether the failing one is back takes nobody's place; if it
// had to wait its turn, an overload would keep the engine that could end it away.
func TestProbesPassTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFullAndFailing(t, config.Proxy{QueueTime: config.Duration(time.Minute), QueueBytes: 1 << 20})
		var served atomic.Int64
		for range 5 {
			f.running.Go(func() {
				if f.code() == http.StatusOK {
					served.Add(1)
				}
			})
			synctest.Wait()
		}
		queue := &f.plane.table.Load().rows["m"].model.queue
		waiting := queue.length.Load()
		require.GreaterOrEqual(t, waiting, int64(4), "one of them may have been a probe")
		f.failing.mode.Store("")
		for served.Load() < waiting && f.next.Load() < 5000 {
			f.running.Go(func() { f.code() })
			time.Sleep(10 * time.Millisecond)
		}
		require.GreaterOrEqual(t, served.Load(), waiting, "the probe's success is theirs")
		require.Equal(t, int64(1), f.flight(0).Requests(), "the full engine is as full as it was")
	})
}

// TestAllFailingAreTried: a failing engine is better than none.
func TestAllFailingAreTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFullAndFailing(t, config.Proxy{})
		f.well <- struct{}{}
		synctest.Wait()
		now := time.Now().UnixNano()
		for i := range 2 {
			f.plane.table.Load().rows["m"].PassOver(i, now, now+int64(time.Minute))
		}
		before := f.failing.hits.Load()
		f.running.Go(func() { f.code() })
		synctest.Wait()
		require.Equal(t, int64(1), f.flight(0).Requests()+f.failing.hits.Load()-before)
	})
}
