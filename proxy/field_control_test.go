package proxy

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
)

// drainFirst is a snapshot whose row leaves the first engine out, as the control
// plane makes it of one that drains: the engine table still has it.
func drainFirst(s *fleet.Snapshot) {
	row := &s.Rows[0]
	row.Targets = row.Targets[1:]
	for i := range row.Targets {
		row.Targets[i].Weight = 1 / float64(len(row.Targets))
	}
}

// TestField_67_DrainingFinishesWhatItHas: and how much that still is can be seen
// until it is nothing.
func TestField_67_DrainingFinishesWhatItHas(t *testing.T) {
	g := &gate{}
	h := newHarness(t, g.ServeHTTP, answers("other"))
	var held *call
	for i := 0; ; i++ {
		held = h.start(chat, "X-Session-Id", fmt.Sprint(i))
		until(t, "it is held, or was answered", func() bool {
			select {
			case <-held.done:
				return true
			default:
				n, _ := g.count()
				return n > 0
			}
		})
		if n, _ := g.count(); n > 0 {
			break
		}
	}
	h.edit(drainFirst)
	stats := h.plane.Stats()
	require.Len(t, stats, 2)
	require.Equal(t, "e0", stats[0].Engine)
	require.Zero(t, stats[0].Weight)
	require.Equal(t, int64(1), stats[0].InFlight)
	g.release(1)
	<-held.done
	require.Equal(t, http.StatusOK, held.status)
	require.Equal(t, chat, held.body)
	until(t, "and then it is empty", func() bool { return len(h.plane.Stats()) == 1 })
}

func TestField_68_NothingNewGoesToATerminatingEngine(t *testing.T) {
	h, first, second, session := pair(t)
	h.edit(drainFirst)
	for i := range 100 {
		h.read(h.post(chat, "X-Session-Id", fmt.Sprint(session, i)))
	}
	h.read(h.post(chat, "X-Session-Id", session))
	second.mode.Store("503") // nor as a retry
	h.read(h.post(chat, "X-Session-Id", session))
	require.Zero(t, first.hits.Load())
	require.Equal(t, int64(102), second.hits.Load())
}

// TestField_70_FailOpen: with the control plane away from the first moment, and a
// snapshot from long ago.
func TestField_70_FailOpen(t *testing.T) {
	dir := t.TempDir()
	engine := httptest.NewServer(answers("served"))
	defer engine.Close()
	old := evenSnapshot(engine.URL)
	old.Time, old.GoodFor = time.Now().Add(-24*time.Hour), time.Second
	require.NoError(t, newPlane(t, config.Proxy{Data: dir}).subscriber.Save(old))
	h := &harness{t: t, plane: newPlane(t, config.Proxy{Data: dir}), client: &http.Client{}}
	front := httptest.NewServer(h.plane.Handler())
	defer front.Close()
	defer h.client.CloseIdleConnections()
	h.url = front.URL
	for range 20 {
		require.Equal(t, "served", h.read(h.post(chat)))
	}
}

// TestField_71_TroubleAboveRestartsNothing: snapshots that are refused, or that do
// not come, leave requests, counters and connections alone.
func TestField_71_TroubleAboveRestartsNothing(t *testing.T) {
	g := &gate{}
	h := newHarness(t, g.ServeHTTP)
	c := h.start(chat)
	until(t, "it arrived", func() bool { n, _ := g.count(); return n == 1 })
	before, instance := h.plane.table.Load(), h.plane.instance
	bad := evenSnapshot("http://[broken")
	require.Error(t, h.plane.apply(bad))
	require.Same(t, before, h.plane.table.Load())
	require.Equal(t, int64(1), h.inFlight())
	g.release(1)
	<-c.done
	require.Equal(t, http.StatusOK, c.status)
	require.Equal(t, instance, h.plane.instance)
	h.requireIdle()
}

// twins are two data planes that share a snapshot and nothing else.
func twins(t *testing.T, engines ...http.HandlerFunc) (a, b *harness) {
	a = newHarness(t, engines...)
	b = &harness{t: t, plane: newPlane(t, config.Proxy{RetryBudget: 0.2}), client: a.client}
	require.NoError(t, b.plane.apply(a.plane.Snapshot()))
	front := httptest.NewServer(b.plane.Handler())
	t.Cleanup(front.Close)
	b.url = front.URL
	return a, b
}

func named(n int) (out []http.HandlerFunc) {
	for i := range n {
		out = append(out, answers(fmt.Sprint("e", i)))
	}
	return out
}

// TestField_74_SessionsStayOverReplicas: by session, by explicit key, and by what
// the prompt begins with.
func TestField_74_SessionsStayOverReplicas(t *testing.T) {
	a, b := twins(t, named(5)...)
	for i := range 60 {
		session := fmt.Sprint("s", i)
		require.Equal(t, a.read(a.post(chat, "X-Session-Id", session)), b.read(b.post(chat, "X-Session-Id", session)))
		for _, body := range []string{
			fmt.Sprintf(`{"model":"m","prompt_cache_key":"k%d"}`, i),
			fmt.Sprintf(`{"model":"m","prompt":"the document %d begins"}`, i),
		} {
			require.Equal(t, a.read(a.post(body)), b.read(b.post(body)))
		}
	}
}

// TestField_84_DataPlanesSteerNothing: what one of them saw does not move another's
// weights, nor its own.
func TestField_84_DataPlanesSteerNothing(t *testing.T) {
	a, b := twins(t, named(3)...)
	weights := func(h *harness) (out []float64) {
		for _, s := range h.plane.Stats() {
			out = append(out, s.Weight)
		}
		return out
	}
	was := weights(a)
	a.engines[0].CloseClientConnections()
	a.engines[0].Close()
	for i := range 60 {
		a.read(a.post(chat, "X-Session-Id", fmt.Sprint(i)))
	}
	require.Equal(t, was, weights(a))
	require.Equal(t, was, weights(b))
	require.True(t, a.plane.table.Load().rows["m"].Targets()[0].Flight.PassedOver())
	require.False(t, b.plane.table.Load().rows["m"].Targets()[0].Flight.PassedOver())
}

// TestField_75_PinsAreHints: an adapter and a conversation whose engine is gone go
// on at another.
func TestField_75_PinsAreHints(t *testing.T) {
	h := newHarness(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"id":"resp_1"}`) }, answers(`{"by":"e1"}`))
	h.edit(func(s *fleet.Snapshot) {
		s.Rows[0].Targets[0].Weight, s.Rows[0].Targets[1].Weight = 1, 0
		s.Rows = append(s.Rows, fleet.SnapshotRow{Model: "m-adapter", Targets: s.Rows[0].Targets[:1]})
		s.Rows[1].Targets[0].Weight = 1
	})
	resp := h.postTo("/v1/responses", `{"model":"m","input":"x"}`)
	require.Equal(t, `{"id":"resp_1"}`, h.read(resp))
	require.Equal(t, `{"id":"resp_1"}`, h.read(h.postTo("/v1/responses", `{"model":"m-adapter","input":"x"}`)))
	at, ok := h.plane.stored.get("resp_1")
	require.True(t, ok)
	require.Equal(t, "e0", at.engine)

	h.engines[0].CloseClientConnections()
	h.engines[0].Close()
	again := `{"model":"m","previous_response_id":"resp_1"}`
	require.Equal(t, `{"by":"e1"}`, h.read(h.postTo("/v1/responses", again)), "while the plan does not know yet")
	h.edit(func(s *fleet.Snapshot) {
		drainFirst(s)
		s.Rows = append(s.Rows, fleet.SnapshotRow{Model: "m-adapter", Targets: s.Rows[0].Targets})
	})
	require.Equal(t, `{"by":"e1"}`, h.read(h.postTo("/v1/responses", again)))
	require.Equal(t, `{"by":"e1"}`, h.read(h.postTo("/v1/responses", `{"model":"m-adapter","input":"x"}`)))
}

// TestField_89_ClientsMakeNoSeries: whatever they put where.
func TestField_89_ClientsMakeNoSeries(t *testing.T) {
	registry := prometheus.NewRegistry()
	p, err := New(Options{Cluster: "c", Proxy: config.Proxy{MaxBody: 1000, Bound: 0.5, RecordRate: 100}, Control: noControl, Registry: registry, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	engine := httptest.NewServer(answers("x"))
	defer engine.Close()
	defer p.Close()
	defer p.reader.Close()
	require.NoError(t, p.apply(evenSnapshot(engine.URL)))
	series := func() (n int) {
		families, err := registry.Gather()
		require.NoError(t, err)
		for _, f := range families {
			n += len(f.Metric)
		}
		return n
	}
	ask := func(i int) {
		name := fmt.Sprint("made-up-", i)
		for _, r := range []*http.Request{
			httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"model":"`+name+`"}`)),
			httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(chat)),
			httptest.NewRequest(http.MethodPost, "/v1/"+name, strings.NewReader(chat)),
			httptest.NewRequest(http.MethodGet, "/v1/responses/"+name, http.NoBody),
			httptest.NewRequest("X"+strings.ToUpper(name), "/v1/chat/completions", strings.NewReader(chat)),
		} {
			r.Header.Set("X-Priority", name)
			r.Header.Set("X-Session-Id", name)
			r.Header.Set("User-Agent", name)
			p.Handler().ServeHTTP(httptest.NewRecorder(), r)
			r.Header.Del("X-Priority")
			r.Body = io.NopCloser(strings.NewReader(chat))
			p.Handler().ServeHTTP(httptest.NewRecorder(), r)
		}
	}
	ask(0)
	was := series()
	for i := range 50 {
		ask(i + 1)
	}
	require.Equal(t, was, series())
	require.Len(t, p.memory.models, 1)
}
