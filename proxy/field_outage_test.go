package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
)

// pipes is a network in memory without buffers, for tests in virtual time.
type pipes struct {
	mu   sync.Mutex
	open map[string]*pipeListener
	down bool // nothing can be reached
}

func (p *pipes) cut(down bool) {
	p.mu.Lock()
	p.down = down
	p.mu.Unlock()
}

type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	name  string
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipeListener) Addr() net.Addr { return l }
func (l *pipeListener) Network() string {
	return "pipe"
}
func (l *pipeListener) String() string { return l.name }

func (p *pipes) listen(name string) *pipeListener {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{}), name: name}
	p.open[name] = l
	return l
}

func (p *pipes) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	p.mu.Lock()
	l := p.open[addr]
	if p.down {
		l = nil
	}
	p.mu.Unlock()
	refused := &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	if l == nil {
		return nil, refused
	}
	a, b := net.Pipe()
	select {
	case l.conns <- b:
		return a, nil
	case <-l.done:
		return nil, refused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// bubble is a data plane, its engines and its clients in virtual time.
type bubble struct {
	t     *testing.T
	net   *pipes
	plane *DataPlane
	front *http.Transport
}

func newBubble(t *testing.T, settings config.Proxy, engines ...http.Handler) *bubble {
	t.Helper()
	b := &bubble{t: t, net: &pipes{open: map[string]*pipeListener{}}}
	settings.MaxBody, settings.Bound, settings.RecordRate = 1<<20, 0.5, 100_000
	p, err := New(Options{
		Cluster: "c", Proxy: settings, Control: noControl, Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler), Dial: b.net.dial,
	})
	require.NoError(t, err)
	b.plane = p
	var urls []string
	for i, e := range engines {
		name := fmt.Sprintf("engine%d:80", i)
		b.serve(name, e)
		urls = append(urls, "http://"+name)
	}
	require.NoError(t, p.apply(evenSnapshot(urls...)))
	b.serve("front:80", p.Handler())
	b.front = &http.Transport{DialContext: b.net.dial, DisableCompression: true}
	t.Cleanup(func() {
		b.front.CloseIdleConnections()
		p.Close()
		p.reader.Close()
	})
	return b
}

// serve runs a handler behind a name, as a server that keeps every default.
func (b *bubble) serve(name string, h http.Handler) {
	s := &http.Server{Handler: h}
	l := b.net.listen(name)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	b.t.Cleanup(func() { _ = s.Close(); <-done })
}

func (b *bubble) request(ctx context.Context, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://front/v1/chat/completions", strings.NewReader(body))
	require.NoError(b.t, err)
	return b.front.RoundTrip(req)
}

// TestField_59_NoImplicitTimeout: an hour before the first byte and an hour between
// tokens, by default.
func TestField_59_NoImplicitTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, config.Proxy{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			for i := range 3 {
				time.Sleep(time.Hour)
				fmt.Fprintf(w, "data: %d\n\n", i)
				w.(http.Flusher).Flush()
			}
		}))
		begin := time.Now()
		resp, err := b.request(t.Context(), chat)
		require.NoError(t, err)
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		_ = resp.Body.Close()
		require.Equal(t, "data: 0\n\ndata: 1\n\ndata: 2\n\n", string(got))
		require.GreaterOrEqual(t, time.Since(begin), 3*time.Hour)
	})
}

// TestSlowClientHoldsBoundedMemory: it reads nothing. What the engine can get rid
// of is what lies in fixed buffers on the way.
func TestSlowClientHoldsBoundedMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var written atomic.Int64
		b := newBubble(t, config.Proxy{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			for r.Context().Err() == nil {
				n, err := w.Write(make([]byte, 1024))
				written.Add(int64(n))
				w.(http.Flusher).Flush()
				if err != nil {
					return
				}
			}
		}))
		ctx, cancel := context.WithCancel(t.Context())
		resp, err := b.request(ctx, chat)
		require.NoError(t, err)
		synctest.Wait() // all stand still
		stuck := written.Load()
		require.Less(t, stuck, int64(256<<10))
		time.Sleep(time.Hour)
		require.Equal(t, stuck, written.Load(), "the engine waits for the client")
		require.Equal(t, int64(1), b.plane.Stats()[0].InFlight)
		cancel()
		_ = resp.Body.Close()
		synctest.Wait()
		require.Zero(t, b.plane.Stats()[0].InFlight, "the client gone ends it")
	})
}

// TestTrickleRecovery: an engine that was away gets one probe in each interval,
// whatever the traffic.
func TestTrickleRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &outage{}
		b := newBubble(t, config.Proxy{RetryBudget: 1}, e, answers("ok"))
		e.mode.Store("reset")
		hits := func(seconds int) int64 {
			before := e.hits.Load()
			for i := range seconds * 100 {
				b.ask(chat, "X-Session-Id", fmt.Sprint(i))
				time.Sleep(10 * time.Millisecond)
			}
			return e.hits.Load() - before
		}
		require.Positive(t, hits(10))
		for range 5 {
			require.LessOrEqual(t, hits(1), int64(5), "of 100 requests")
		}
		e.mode.Store("")
		hits(17) // a lease and a probe
		require.Greater(t, hits(1), int64(20))
	})
}

// outage is an engine of little capacity that can be out of order.
type outage struct {
	mode  atomic.Value // of string
	hits  atomic.Int64
	inUse atomic.Int64
}

const outageSlots = 4

func (o *outage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.hits.Add(1)
	_, _ = io.Copy(io.Discard, r.Body)
	switch mode, _ := o.mode.Load().(string); mode {
	case "reset":
		panic(http.ErrAbortHandler)
	case "hang":
		for o.mode.Load() == "hang" {
			select {
			case <-r.Context().Done():
				return
			case <-time.After(time.Second):
			}
		}
	case "503":
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	defer o.inUse.Add(-1)
	if o.inUse.Add(1) > outageSlots {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	time.Sleep(100 * time.Millisecond)
	_, _ = io.WriteString(w, "ok")
}

// ask sends a request past the network and tells whether it was answered well.
func (b *bubble) ask(body string, header ...string) bool {
	w := httptest.NewRecorder()
	req := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	defer func() {
		if e := recover(); e != nil && !errors.Is(e.(error), http.ErrAbortHandler) {
			panic(e)
		}
	}()
	b.plane.Handler().ServeHTTP(w, req)
	return w.Code == http.StatusOK
}

// TestTotalOutageAmplifiesNothingAndEnds: all engines fail for a minute at ten
// times the load, in every way there is; then all return.
func TestTotalOutageAmplifiesNothingAndEnds(t *testing.T) {
	const (
		normal  = 5  // requests/s
		outageS = 60 // seconds
		lease   = 16 // seconds, the longest
		ratio   = 0.2
		saved   = 100 // retries that the budget begins with
	)
	for _, mode := range []string{"reset", "503", "hang", "away"} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engines := [4]*outage{{}, {}, {}, {}}
				b := newBubble(t, config.Proxy{
					RetryBudget: ratio, StallAfter: config.Duration(10 * time.Second), QueueTime: config.Duration(500 * time.Millisecond), QueueBytes: 1 << 20,
				}, engines[0], engines[1], engines[2], engines[3])
				s := *b.plane.Snapshot()
				for i := range s.Rows[0].Targets {
					s.Rows[0].Targets[i].Predicted, s.Rows[0].Targets[i].Limit = 0.1, 2*outageSlots
				}
				require.NoError(t, b.plane.apply(&s))
				ctx, stop := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				defer wg.Wait()
				defer stop()
				wg.Go(func() { b.plane.watch(ctx) })

				var sent, good atomic.Int64
				drive := func(rate, seconds int) {
					for range rate * seconds {
						i := sent.Add(1)
						wg.Go(func() {
							body := chat
							if i%2 == 0 {
								body = stream // which tells a black hole from a long answer
							}
							if b.ask(body, "X-Session-Id", fmt.Sprint("s", i%100)) {
								good.Add(1)
							}
						})
						time.Sleep(time.Second / time.Duration(rate))
					}
				}
				hits := func() (n int64) {
					for _, e := range engines {
						n += e.hits.Load()
					}
					return n
				}
				set := func(mode string) {
					for _, e := range engines {
						e.mode.Store(mode)
					}
				}
				drive(normal, 5)
				time.Sleep(time.Second)
				require.Equal(t, sent.Load(), good.Load(), "before")

				if mode == "away" {
					b.net.cut(true)
					b.plane.memory.transports.closeIdle()
				}
				set(mode)
				before, asked := hits(), sent.Load()
				drive(10*normal, outageS)
				admitted := sent.Load() - asked
				extra := float64(hits()-before) - float64(admitted)
				require.LessOrEqual(t, extra, ratio*float64(admitted)+saved, "engines see what clients send and the budget, no more")
				if mode == "away" {
					require.Zero(t, hits()-before)
				}

				b.net.cut(false)
				set("")
				drive(normal, 2*lease) // in whose course it must come back
				was, had := sent.Load(), good.Load()
				drive(normal, 20)
				time.Sleep(time.Second)
				require.Equal(t, sent.Load()-was, good.Load()-had, "all of them, and no state that keeps itself up")
				for _, s := range b.plane.Stats() {
					require.Zero(t, s.InFlight)
				}
				spread := hits()
				drive(normal, 10)
				require.InDelta(t, 10*normal, hits()-spread, 1, "and one attempt each")
				for _, target := range b.plane.table.Load().rows["m"].Targets() {
					require.False(t, target.Flight.PassedOver())
				}
			})
		})
	}
}

// TestField_49_BudgetDoesNotShrinkWithFailures: what is admitted fills it, whatever
// becomes of that.
func TestField_49_BudgetDoesNotShrinkWithFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := &outage{}
		bad.mode.Store("503")
		b := newBubble(t, config.Proxy{RetryBudget: 0.2}, bad, answers("ok"))
		failed := 0
		for i := range 3000 {
			if !b.ask(chat, "X-Session-Id", fmt.Sprint(i)) {
				failed++
			}
		}
		retried := int(bad.hits.Load()) - failed
		require.InDelta(t, 0.2*3000+100, retried, 5, "a fifth of what came, from the first to the last")
	})
}
