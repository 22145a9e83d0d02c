package proxy

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/signals"
)

// teller is an engine that says in its answers how it is, if asked, and keeps what it
// was asked for.
type teller struct {
	page  string
	mu    sync.Mutex
	asked []string // one for each request; "" for not
}

func (e *teller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPost:
	case r.URL.Path == "/metrics":
		answers(e.page)(w, r)
		return
	default:
		http.NotFound(w, r)
		return
	}
	format := r.Header.Get(signals.ORCARequestHeader)
	e.mu.Lock()
	e.asked = append(e.asked, format)
	e.mu.Unlock()
	switch strings.ToLower(format) {
	case "text":
		w.Header().Set(signals.ORCAHeader, "TEXT named_metrics.kv_cache_usage_perc=0.75, named_metrics.num_requests_waiting=6.0")
	case "json":
		w.Header().Set(signals.ORCAHeader, `JSON {"named_metrics": {"kv_cache_usage_perc": 0.5}}`)
	}
	answers(`{"object":"chat.completion"}`)(w, r)
}

// requests gives what the engine was asked for since the last call.
func (e *teller) requests() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := e.asked
	e.asked = nil
	return out
}

// newTelling is a harness before one engine that is read, as what its page shows.
func newTelling(t *testing.T, page, kind string) (*harness, *teller) {
	t.Helper()
	engine := &teller{page: page}
	s := httptest.NewServer(engine)
	t.Cleanup(s.Close)
	p, _ := newMeteredPlane(t)
	snapshot := evenSnapshot(s.URL)
	snapshot.Engines[0].Kind, snapshot.Engines[0].Collector = kind, "c"
	require.NoError(t, p.apply(snapshot))
	front := httptest.NewServer(p.Handler())
	t.Cleanup(front.Close)
	h := &harness{t: t, plane: p, url: front.URL, client: &http.Client{Transport: &http.Transport{DisableCompression: true}}}
	t.Cleanup(h.client.CloseIdleConnections)
	return h, engine
}

// reading reports until the engine's reading is as wanted.
func (h *harness) reading(doing func(), want func(*pb.Reading) bool) {
	h.t.Helper()
	require.Eventually(h.t, func() bool {
		doing()
		r := &pb.ReportRequest{Readings: h.plane.readings(true)}
		return len(r.Readings) == 1 && r.Readings[0].Good != nil && want(r.Readings[0])
	}, 20*time.Second, 10*time.Millisecond)
}

// due makes the engine be asked with the next request that may ask.
func (h *harness) due() { h.plane.memory.knownEngine("e0").inBand.asked.Store(0) }

func TestEnginesSayInAnswersHowTheyAre(t *testing.T) {
	h, engine := newTelling(t, vllmPage, "auto")
	h.reading(func() {}, func(r *pb.Reading) bool { return r.Kind == "vllm" && !r.InBand })

	h.reading(func() {
		resp := h.post(chat)
		require.Equal(t, `{"object":"chat.completion"}`, h.read(resp))
		require.Empty(t, resp.Header.Values(signals.ORCAHeader), "the client has not asked")
	}, func(r *pb.Reading) bool {
		return r.InBand && r.GetKvUsage() == 0.75 && r.GetWaiting() == 6 && r.GetRunning() == 3
	})
	require.Contains(t, engine.requests(), "text")

	h.due()
	h.read(h.post(chat))
	h.read(h.post(chat))
	require.Equal(t, []string{"text", ""}, engine.requests(), "not with each request")

	h.due()
	h.read(h.post(`{"model":"m","stream":true,"messages":[]}`))
	require.Equal(t, []string{""}, engine.requests(), "streams cost nothing")

	h.reading(func() {
		h.due()
		resp := h.post(chat, signals.ORCARequestHeader, "JSON")
		h.read(resp)
		require.Equal(t, `JSON {"named_metrics": {"kv_cache_usage_perc": 0.5}}`, resp.Header.Get(signals.ORCAHeader))
	}, func(r *pb.Reading) bool { return r.InBand && r.GetKvUsage() == 0.5 })
	require.NotContains(t, engine.requests(), "text", "the client's own wish stands")
}

// TestOthersAreNotAsked: engines whose kind does not tell, those that would tell of one
// of several ranks, and those that another cluster's data planes read.
func TestOthersAreNotAsked(t *testing.T) {
	for name, page := range map[string]string{
		"another kind": "llamacpp:requests_processing 7\n",
		"two ranks":    "vllm:num_requests_running{engine=\"0\"} 3\nvllm:num_requests_running{engine=\"1\"} 3\n",
	} {
		t.Run(name, func(t *testing.T) {
			h, engine := newTelling(t, page, "auto")
			h.reading(func() {}, func(r *pb.Reading) bool { return r.Kind != "auto" })
			h.read(h.post(chat))
			require.Equal(t, []string{""}, engine.requests())
		})
	}
	t.Run("read elsewhere", func(t *testing.T) {
		h, engine := newTelling(t, vllmPage, "vllm")
		h.reading(func() {}, func(*pb.Reading) bool { return true })
		s := *h.plane.Snapshot()
		s.Engines, s.Version = append(s.Engines[:0:0], s.Engines...), 2
		s.Engines[0].Collector = "d"
		require.NoError(t, h.plane.apply(&s))
		r := &pb.ReportRequest{Readings: h.plane.readings(true)}
		require.Empty(t, r.Readings)
		h.read(h.post(chat))
		require.Equal(t, []string{""}, engine.requests())
	})
}
