package proxy

import (
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

	"github.com/wardrop-lb/wardrop/enginemodel"
	"github.com/wardrop-lb/wardrop/testengine"
)

// The tests here are about test engines that are read like vLLM, in virtual time, with
// the default configuration. A second is predicted for a usual request.

// read is a bubble whose engines are read every second, and swept.
type read struct {
	*whole
	engines []*testengine.Server
	pages   []*pageClock
	bad     atomic.Int64 // answers that were not 200, or not whole
}

// pageClock is an engine's handler that notes when its metrics are read, and that can
// stand still like a stopped process.
type pageClock struct {
	inner   atomic.Pointer[http.Handler]
	stopped atomic.Bool
	mu      sync.Mutex
	at      []time.Time
}

func (p *pageClock) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/metrics" {
		p.mu.Lock()
		p.at = append(p.at, time.Now())
		p.mu.Unlock()
	}
	if p.stopped.Load() {
		_, _ = io.Copy(io.Discard, r.Body) // else nobody sees that the client has gone
		<-r.Context().Done()
		return
	}
	(*p.inner.Load()).ServeHTTP(w, r)
}

// after gives the time of the nth reading after a time, from 1.
func (p *pageClock) after(t time.Time, n int) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range p.at {
		if n -= boolToInt(at.After(t)); n == 0 {
			return at
		}
	}
	return time.Time{}
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func newRead(t *testing.T, params ...enginemodel.Params) *read {
	w := &read{}
	var handlers []http.Handler
	for range params {
		clock := &pageClock{}
		w.pages = append(w.pages, clock)
		handlers = append(handlers, clock)
	}
	for i, p := range params {
		w.engines = append(w.engines, nil)
		w.begin(t, i, p)
	}
	w.whole = newWhole(t, handlers...)
	s := *w.plane.Snapshot()
	s.Version++
	for i := range s.Engines {
		s.Engines[i].Kind, s.Engines[i].Collector = "vllm", "c"
	}
	require.NoError(t, w.plane.apply(&s))
	w.plane.readings(true)
	time.Sleep(2 * time.Second) // everything has been read
	return w
}

// begin starts an engine in the place of another, which ends.
func (w *read) begin(t *testing.T, i int, p enginemodel.Params) {
	if old := w.engines[i]; old != nil {
		old.Close()
	}
	e, err := testengine.New(testengine.Config{Name: fmt.Sprint("e", i), Models: []string{"m"}, Params: p})
	require.NoError(t, err)
	t.Cleanup(e.Close)
	h := e.Handler()
	w.engines[i] = e
	w.pages[i].inner.Store(&h)
}

// fault changes an engine, when all that happens at this moment has happened: what is given up
// just now does not begin to be answered.
func (w *read) fault(i int, f testengine.Faults) {
	synctest.Wait()
	require.NoError(w.t, w.engines[i].SetFaults(f))
}

// traffic sends a request of a session of its own so many times a second until done
// says so, for that long at most, and tells how long it took.
func (w *read) traffic(body string, perSecond int, most time.Duration, done func() bool) time.Duration {
	begin := time.Now()
	for time.Since(begin) < most && !done() {
		w.fire(body)
		time.Sleep(time.Second / time.Duration(perSecond))
	}
	return time.Since(begin)
}

// aSecond is an engine that takes a second for a request of the usual 16 tokens.
func aSecond() enginemodel.Params {
	p := testengine.DefaultParams()
	p.Base = 60e-3
	return p
}

func forWhole() bool { return false }

// fire is send for answers that are checked as they end: they may be many.
func (w *read) fire(body string) {
	w.next++
	r := httptest.NewRequestWithContext(w.t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
	r.Header.Set("X-Session-Id", fmt.Sprint(w.next))
	w.running.Go(func() {
		rec := httptest.NewRecorder()
		defer func() {
			if recover() != nil || rec.Code != http.StatusOK || !strings.Contains(rec.Body.String(), "finish_reason") {
				w.bad.Add(1)
			}
		}()
		w.plane.Handler().ServeHTTP(rec, r)
	})
}

// state is the state that the next report says of an engine; "" for live.
func (w *read) state(i int) string {
	for _, m := range w.plane.report(time.Now()).Marks {
		if m.Engine == fmt.Sprint("e", i) {
			require.NotEmpty(w.t, m.Reason)
			require.Positive(w.t, m.SecondsLeft)
			require.LessOrEqual(w.t, m.SecondsLeft, 16.0)
			return m.State
		}
	}
	return ""
}

func (w *read) penalty(i int) float64 {
	return w.plane.memory.engine(fmt.Sprint("e", i)).outlier.Penalty(time.Now().UnixNano())
}

// TestBlackHoleIsFoundInFiveSeconds: after the first reading in which nothing has moved.
// Its health page is good all the time; no client sees anything.
func TestBlackHoleIsFoundInFiveSeconds(t *testing.T) {
	for name, c := range map[string]struct {
		fault testengine.Faults
		state string
	}{
		"hang": {testengine.Faults{Hang: true}, "black hole"}, "livelock": {testengine.Faults{Livelock: true}, "livelock"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newRead(t, aSecond(), aSecond())
				w.traffic(stream, 20, 10*time.Second, forWhole)
				require.False(t, w.passed(0))
				since := time.Now()
				w.fault(0, c.fault)
				w.traffic(stream, 20, time.Minute, func() bool { return w.passed(0) })
				missed := w.pages[0].after(since, 2) // what came just before the fault shows in the first
				require.False(t, missed.IsZero())
				require.LessOrEqual(t, time.Since(missed), 5*time.Second)
				t.Logf("found %v after the first missed progress, %v after the fault", time.Since(missed), time.Since(since))
				require.Equal(t, c.state, w.state(0))
				health := httptest.NewRecorder()
				w.engines[0].Handler().ServeHTTP(health, httptest.NewRequest(http.MethodGet, "/health", nil))
				require.Equal(t, http.StatusOK, health.Code, "which is no life")

				time.Sleep(16 * time.Second)
				require.Empty(t, w.state(0), "a lease")
				w.fault(0, testengine.Faults{})
				w.traffic(stream, 20, time.Minute, func() bool { return !w.passed(0) })
				require.False(t, w.passed(0), "a probe was answered")
				time.Sleep(time.Minute)
				require.Zero(t, w.bad.Load())
			})
		})
	}
}

// TestLongPrefillsAreNoBlackHole: ten minutes of prompts of 30,000 to 100,000 tokens, of
// which several are at an engine at once, among small ones, on engines that compute 1,700
// tokens a second: in chunks, or each at once so that nothing at all moves for a minute.
// Prompts of that size may be usual, or new.
func TestLongPrefillsAreNoBlackHole(t *testing.T) {
	slow := enginemodel.Params{
		Base: 20e-3, PerPrefillToken: 6e-4, PerRequest: 1e-4, MaxBatch: 64, MaxStepTokens: 512, Blocks: 60_000, BlockSize: 16, NoPrefixCache: true,
	}
	whole := slow
	whole.MaxStepTokens = 1 << 17
	for name, params := range map[string]enginemodel.Params{"in chunks": slow, "at once": whole} {
		for _, small := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", among small ones: ", small), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newRead(t, params, params)
					prompt := func(tokens int) string {
						return `{"model":"m","stream":true,"max_tokens":64,"messages":[{"role":"user","content":"` + strings.Repeat("word", tokens) + `"}]}`
					}
					if small {
						w.traffic(prompt(300), 2, 30*time.Second, forWhole)
					}
					long := 0
					for second := range 600 {
						if second%25 == 0 {
							w.fire(prompt(30_000 + long%8*10_000))
							long++
						}
						if second == 100 { // several at once
							for range 4 {
								w.fire(prompt(100_000))
							}
						}
						if small {
							w.fire(prompt(300))
						}
						for range 2 {
							time.Sleep(500 * time.Millisecond)
							for i := range w.engines {
								require.Empty(t, w.state(i))
								require.False(t, w.passed(i))
							}
						}
					}
					time.Sleep(20 * time.Minute)
					require.Zero(t, w.bad.Load())
					require.Equal(t, uint64(w.next), w.engines[0].Stats().Finished+w.engines[1].Stats().Finished, "each was computed once")
					require.Zero(t, w.takenBack())
				})
			})
		}
	}
}

// takenBack counts attempts that failed.
func (w *read) takenBack() (n uint64) {
	for _, s := range w.plane.Stats() {
		n += s.Failed
	}
	return n
}

// TestDeadStreamIsGivenUp: every second stream of an engine stands still. Its request goes
// elsewhere, the engine keeps its share.
func TestDeadStreamIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRead(t, testengine.DefaultParams(), testengine.DefaultParams())
		w.traffic(stream, 5, 10*time.Second, forWhole)
		w.fault(0, testengine.Faults{DeadStreams: 2})
		passed := 0
		w.traffic(stream, 5, 3*time.Minute, func() bool {
			require.Contains(t, []string{"", "dead streams"}, w.state(0))
			passed += boolToInt(w.passed(0))
			return false
		})
		require.Less(t, passed, 5*3*60/20, "a twentieth of the time, until a probe is answered: chance says which streams are dead")
		given := w.plane.Stats()[0].Failed
		require.Positive(t, given, "after at most three times as long as an engine may be silent")
		require.Greater(t, w.plane.Stats()[0].Requests-given, uint64(50), "it serves every other one")
		require.Zero(t, w.penalty(0))
		w.fault(0, testengine.Faults{})
		time.Sleep(5 * time.Minute)
		require.Zero(t, w.bad.Load())
	})
}

// TestDeadWayIsPassedOver: all streams of an engine stand still while it generates: its own
// counters say that it works, for nobody gets what it makes.
func TestDeadWayIsPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRead(t, testengine.DefaultParams(), testengine.DefaultParams())
		w.traffic(stream, 5, 10*time.Second, forWhole)
		w.fault(0, testengine.Faults{DeadStreams: 1})
		took := w.traffic(stream, 1, 2*time.Minute, func() bool { return w.passed(0) })
		require.LessOrEqual(t, took, 47*time.Second)
		require.Equal(t, "dead streams", w.state(0))
		w.fault(0, testengine.Faults{})
		time.Sleep(5 * time.Minute)
		require.Zero(t, w.bad.Load())
	})
}

// TestStreamThatStopsIsCut: it had begun, so that nothing can be done but to tell. Its
// engine goes on, and so does a stream whose client takes nothing.
func TestStreamThatStopsIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(2 * time.Second) }) // for the engine to see that all have gone
		dead := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			rw.Header().Set("Content-Type", "text/event-stream")
			for i := 0; r.Context().Err() == nil && i < 600; i++ {
				_, _ = io.WriteString(rw, "data: {\"choices\":[]}\n\n")
				rw.(http.Flusher).Flush()
				if strings.Contains(string(body), "stop") {
					<-r.Context().Done()
				}
				time.Sleep(time.Second)
			}
		})
		w := newWhole(t, dead)
		body := `{"model":"m","stream":true,"max_tokens":1,"x":"%s"}`
		send := func(x string) (*http.Response, error) { return w.request(t.Context(), fmt.Sprintf(body, x)) }
		_, err := send("client takes nothing")
		require.NoError(t, err)
		going, err := send("goes on")
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { _, err := io.Copy(io.Discard, going.Body); ended <- err }()
		begin := time.Now()
		stopped, err := send("stop")
		require.NoError(t, err)
		_, err = io.ReadAll(stopped.Body)
		require.Error(t, err, "visibly")
		require.InDelta(t, 45, time.Since(begin).Seconds(), 2, "three times what is predicted, five times, and stall_after")
		require.False(t, w.passed(0))
		require.Zero(t, w.plane.memory.engine("e0").outlier.Penalty(time.Now().UnixNano()))
		require.NoError(t, <-ended)
		require.Equal(t, int64(1), w.flight(0).Requests(), "who takes nothing keeps what he has")
	})
}

// TestLoadingAndDrainingArePassedOver: and are back when they answer, without penalty.
func TestLoadingAndDrainingArePassedOver(t *testing.T) {
	for state, fault := range map[string]testengine.Faults{
		"loading":  {State: testengine.Loading},
		"draining": {State: testengine.Draining},
		// It does not say why.
		"draining ": {Fail: http.StatusServiceUnavailable},
	} {
		t.Run(state, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newRead(t, testengine.DefaultParams(), testengine.DefaultParams())
				w.traffic(stream, 20, 10*time.Second, forWhole)
				w.fault(0, fault)
				took := w.traffic(stream, 20, time.Minute, func() bool { return w.passed(0) })
				require.LessOrEqual(t, took, 5*time.Second)
				require.Equal(t, strings.TrimSpace(state), w.state(0))
				time.Sleep(30 * time.Second)
				require.Empty(t, w.state(0), "a lease")
				require.Less(t, w.penalty(0), 0.05, "of when it might have been full")
				w.traffic(stream, 20, 30*time.Second, forWhole)
				w.fault(0, testengine.Faults{})
				took = w.traffic(stream, 20, time.Minute, func() bool { return !w.passed(0) })
				require.LessOrEqual(t, took, 17*time.Second, "the longest lease")
				require.Empty(t, w.state(0))
				require.Less(t, w.penalty(0), 0.001)
				time.Sleep(time.Minute)
				require.Zero(t, w.bad.Load())
			})
		})
	}
}

// TestRestartKeepsNothingOld: what was held against the run before is forgotten as soon as
// the new one is read.
func TestRestartKeepsNothingOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRead(t, aSecond(), aSecond())
		w.traffic(stream, 20, 10*time.Second, forWhole)
		w.fault(0, testengine.Faults{Hang: true})
		w.traffic(stream, 20, time.Minute, func() bool { return w.passed(0) })
		require.Positive(t, w.penalty(0))
		w.begin(t, 0, aSecond())
		for range 20 {
			time.Sleep(100 * time.Millisecond)
			if w.state(0) == "restarting" {
				break
			}
		}
		require.False(t, w.passed(0))
		require.Zero(t, w.penalty(0))
		require.Equal(t, "restarting", w.state(0))
		w.traffic(stream, 20, 11*time.Second, forWhole)
		require.Empty(t, w.state(0))
		require.Positive(t, w.engines[0].Stats().Finished)
	})
}

// TestFrozenProcessIsFoundByBothPaths: it takes connections and answers nothing, its page of
// metrics neither, as after kill -STOP.
func TestFrozenProcessIsFoundByBothPaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRead(t, testengine.DefaultParams(), testengine.DefaultParams())
		w.traffic(stream, 20, 10*time.Second, forWhole)
		w.pages[0].stopped.Store(true)
		var read time.Duration
		begin := time.Now()
		took := w.traffic(stream, 20, time.Minute, func() bool {
			for _, r := range w.plane.reader.Readings(true) {
				if r.Engine == "e0" && !r.Reachable && r.Failures >= 2 && read == 0 {
					read = time.Since(begin)
				}
			}
			return w.passed(0) && read > 0
		})
		require.LessOrEqual(t, took, 17*time.Second, "by its silence")
		require.LessOrEqual(t, read, 10*time.Second, "by its readings, for those who send it nothing")
		require.Equal(t, "black hole", w.state(0))
		w.pages[0].stopped.Store(false)
		time.Sleep(time.Minute)
		require.Zero(t, w.bad.Load())
	})
}

// TestBadHealthWithWorkFlowingIsNoDeath: engines that ask themselves say 503 while they are
// busy.
func TestBadHealthWithWorkFlowingIsNoDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRead(t, testengine.DefaultParams(), testengine.DefaultParams())
		w.fault(0, testengine.Faults{Health: 503, Page: &testengine.Page{Status: 503}})
		before := w.engines[0].Stats().Finished
		w.traffic(stream, 20, time.Minute, func() bool {
			require.Empty(t, w.state(0))
			return w.passed(0)
		})
		require.False(t, w.passed(0))
		require.Greater(t, w.engines[0].Stats().Finished-before, uint64(300))
		require.Zero(t, w.bad.Load())
	})
}
