package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/protect"
)

// Tests named TestField_NN hold what makes a failure of other routers impossible
// here; the number is the case's in the project's catalogue of field failures,
// docs/failures.md. They stand in the package where the behaviour lives.

// until polls with a deadline.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 10*time.Second, time.Millisecond, what)
}

// gate is an engine that answers only when told to. It says nothing before, no
// header either.
type gate struct {
	mu      sync.Mutex
	hits    int
	gone    int // requests that were cancelled
	waiting []chan struct{}
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	open := make(chan struct{})
	g.mu.Lock()
	g.hits++
	g.waiting = append(g.waiting, open)
	g.mu.Unlock()
	select {
	case <-open:
		_, _ = w.Write(body)
	case <-r.Context().Done():
		g.mu.Lock()
		g.gone++
		g.mu.Unlock()
	}
}

func (g *gate) count() (hits, gone int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hits, g.gone
}

// release answers the n oldest requests.
func (g *gate) release(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, open := range g.waiting[:min(n, len(g.waiting))] {
		close(open)
	}
	g.waiting = g.waiting[min(n, len(g.waiting)):]
}

// call is a request in the background.
type call struct {
	cancel context.CancelFunc
	done   chan struct{}
	status int
	body   string
	header http.Header
	err    error
}

func (h *harness) start(body string, header ...string) *call {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	c := &call{cancel: cancel, done: make(chan struct{})}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url+"/v1/chat/completions", strings.NewReader(body))
	require.NoError(h.t, err)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	go func() {
		defer close(c.done)
		resp, err := h.client.Do(req)
		if c.err = err; err == nil {
			var b []byte
			b, c.err = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			c.status, c.body, c.header = resp.StatusCode, string(b), resp.Header
		}
	}()
	h.t.Cleanup(func() { cancel(); <-c.done })
	return c
}

// limited is a harness whose snapshot allows an engine that many requests at once.
func limited(t *testing.T, settings config.Proxy, limit float64, engines ...http.HandlerFunc) *harness {
	t.Helper()
	h := newHarnessWith(t, settings, engines...)
	h.edit(func(s *fleet.Snapshot) {
		for i := range s.Rows[0].Targets {
			s.Rows[0].Targets[i].Limit = limit
		}
	})
	return h
}

// edit applies a changed copy of the snapshot over all engines.
func (h *harness) edit(change func(*fleet.Snapshot)) {
	h.t.Helper()
	var urls []string
	for _, e := range h.engines {
		urls = append(urls, e.URL)
	}
	s := evenSnapshot(urls...)
	s.Version = h.plane.Snapshot().Version + 1
	change(s)
	require.NoError(h.t, h.plane.apply(s))
}

func (h *harness) decision(header http.Header) Decision {
	h.t.Helper()
	var d Decision
	until(h.t, "the decision is recorded", func() (ok bool) {
		d, ok = h.plane.Decision(header.Get("X-Wardrop-Decision"))
		return ok
	})
	return d
}

func TestField_04_ChargedAtPickTime(t *testing.T) {
	gates := [4]*gate{{}, {}, {}, {}}
	h := newHarness(t, gates[0].ServeHTTP, gates[1].ServeHTTP, gates[2].ServeHTTP, gates[3].ServeHTTP)
	for i := range 40 { // one session, long prompts, and no engine has sent a header
		h.start(chat, "X-Session-Id", "s")
		until(t, "charged before any answer", func() bool { return h.inFlight() == int64(i+1) })
	}
	used := 0
	for _, s := range h.plane.Stats() {
		require.LessOrEqual(t, s.InFlight, int64(1.5/4*40+1), "the bound saw every request before it")
		if s.InFlight > 0 {
			used++
		}
	}
	require.GreaterOrEqual(t, used, 3)
	until(t, "all have arrived", func() bool {
		sum := 0
		for _, g := range gates {
			n, _ := g.count()
			sum += n
		}
		return sum == 40
	})
	for _, g := range gates {
		g.release(40)
	}
	h.requireIdle()
}

// TestField_19_FailingFastAttractsNothing: an engine that resets, and one that
// answers errors, both at once.
func TestField_19_FailingFastAttractsNothing(t *testing.T) {
	for _, mode := range []string{"reset", "500", "503"} {
		t.Run(mode, func(t *testing.T) {
			h, first, _, _ := pairWith(t, config.Proxy{RetryBudget: 1})
			first.mode.Store(mode)
			begin := time.Now()
			for i := range 300 {
				h.read(h.post(chat, "X-Session-Id", fmt.Sprint("x", i)))
			}
			h.requireIdle()
			penalty := h.plane.memory.engine("e0").outlier.Penalty(time.Now().UnixNano())
			require.Positive(t, penalty, "failing costs, and is reported")
			if mode != "503" { // full is not broken: it may be asked again at any time
				probes := int64(time.Since(begin)/(250*time.Millisecond)) + 1
				require.LessOrEqual(t, first.hits.Load(), 3+probes, "three failures, then probes")
			}
			require.Less(t, first.hits.Load(), int64(220), "never more than its own half")
		})
	}
}

// TestField_35_FlappingLeavesNoDebt: an engine that leaves and returns with
// requests in flight each time.
func TestField_35_FlappingLeavesNoDebt(t *testing.T) {
	g := &gate{}
	h := newHarness(t, g.ServeHTTP)
	for i := range 10 {
		c := h.start(chat)
		until(t, "it arrived", func() bool { n, _ := g.count(); return n == i+1 })
		h.edit(func(s *fleet.Snapshot) { s.Engines[0].Name, s.Rows[0].Model = "other", "n" }) // gone
		if i%2 == 0 {
			h.edit(func(*fleet.Snapshot) {}) // back before the answer
			require.Equal(t, int64(1), h.plane.Stats()[0].InFlight, "what is in flight still counts")
		}
		g.release(1)
		<-c.done
		require.Equal(t, http.StatusOK, c.status, "an engine that left finishes what it has")
		h.edit(func(*fleet.Snapshot) {})
		h.requireIdle()
		requests, work := h.plane.table.Load().rows["m"].Targets()[0].Flight.InFlight()
		require.Zero(t, requests)
		require.Zero(t, work)
	}
}

func TestField_36_ClientTimeoutReleases(t *testing.T) {
	g := &gate{}
	h := newHarness(t, g.ServeHTTP)
	for i := range 20 {
		c := h.start(chat)
		until(t, "it arrived", func() bool { n, _ := g.count(); return n == i+1 })
		c.cancel()
		<-c.done
	}
	h.requireIdle()
	until(t, "the engine was told each time", func() bool { _, gone := g.count(); return gone == 20 })
	require.Zero(t, h.plane.Stats()[0].Failed)
}

// TestField_37_NothingLeaks: whatever the ends of requests and however often the
// fleet is another, what is kept is what the newest snapshot names.
func TestField_37_NothingLeaks(t *testing.T) {
	f := &flaky{}
	h := newHarness(t, f.ServeHTTP)
	for i, mode := range []string{"", "reset", "mid-stream", "429", "500", "headers then reset", "400", ""} {
		f.mode.Store(mode)
		h.edit(func(s *fleet.Snapshot) { s.Engines[0].Name, s.Rows[0].Model = fmt.Sprint("e", i), fmt.Sprint("m", i) })
		resp := h.post(fmt.Sprintf(`{"model":"m%d"}`, i), "X-Session-Id", fmt.Sprint(i))
		_, _ = io.Copy(io.Discard, resp.Body)
		h.requireIdle()
	}
	h.edit(func(*fleet.Snapshot) {})
	m := h.plane.memory
	require.Len(t, m.models, 1)
	require.Len(t, m.seen, 1)
	require.Len(t, m.engines, 1)
	kept := 0
	m.flights.Trim(func(string, string) bool { kept++; return true })
	require.Equal(t, 1, kept)
}

// TestField_86_WhatIsRememberedIsBounded: decisions and stored responses, however
// many there are.
func TestField_86_WhatIsRememberedIsBounded(t *testing.T) {
	h := newHarness(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"id":"x"}`) })
	handler := h.plane.Handler()
	ask := func() string {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/responses", strings.NewReader(`{"model":"ghost"}`)))
		return w.Header().Get("X-Wardrop-Decision")
	}
	first := ask()
	d, ok := h.plane.Decision(first)
	require.True(t, ok)
	require.Equal(t, "model_not_found", d.Refused)
	for range sampleSize {
		ask()
	}
	_, ok = h.plane.Decision(first)
	require.False(t, ok, "it is forgotten, and said to be: never another one's decision")
	for _, id := range []string{"", "x", first + "000000", "other-1", h.plane.instance + "-", h.plane.instance + "--1"} {
		_, ok = h.plane.Decision(id)
		require.False(t, ok, "%q was never made", id)
	}
	for i := range 3 * maxStored {
		h.plane.stored.put(fmt.Sprint(i), "m", "e0")
	}
	require.Len(t, h.plane.stored.where, maxStored)
	require.Equal(t, maxStored, h.plane.stored.order.Len())
}

// TestField_88_ARestartedEngineIsNew: nothing of its former life counts for it or
// against it once it answers: it holds nothing, and it is asked again.
func TestField_88_ARestartedEngineIsNew(t *testing.T) {
	h, first, _, session := pair(t)
	address := h.engines[0].Listener.Addr().String()
	h.engines[0].CloseClientConnections()
	h.engines[0].Close()
	resp := h.post(chat, "X-Session-Id", session)
	h.read(resp)
	require.Equal(t, "e1", resp.Header.Get("X-Wardrop-Engine"))
	h.requireIdle()

	l, err := net.Listen("tcp", address)
	require.NoError(t, err)
	again := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(first.ServeHTTP)}}
	again.Start()
	defer again.Close()
	row := h.plane.table.Load().rows["m"]
	row.Targets()[0].Flight.Recovered(time.Now().UnixNano())
	resp = h.post(chat, "X-Session-Id", session)
	h.read(resp)
	require.Equal(t, "e0", resp.Header.Get("X-Wardrop-Engine"), "its keys are its own again")
	require.Zero(t, row.targets[0].engine.outlier.Observe(protect.Failure, time.Now().UnixNano()), "the answer ended the row of failures")
}

// discard reads a response to its end and drops it.
func (h *harness) discard(resp *http.Response) {
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}
