package proxy

import (
	"context"
	"encoding/json"
	"errors"
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
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noControl is a control plane that is away.
var noControl = []grpc.ClientConnInterface{away{}}

type away struct{}

func (away) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	return errors.New("away")
}

func (away) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("away")
}

// harness is a data plane on a real socket in front of engines made by the test.
type harness struct {
	t       *testing.T
	plane   *DataPlane
	url     string
	client  *http.Client
	engines []*httptest.Server
}

func newPlane(t *testing.T, settings config.Proxy) *DataPlane {
	t.Helper()
	if settings.MaxBody == 0 {
		settings.MaxBody = 1 << 20
	}
	if settings.RecordRate == 0 {
		settings.RecordRate = 100_000
	}
	if settings.Bound == 0 {
		settings.Bound = 0.5
	}
	p, err := New(Options{
		Cluster: "c", Proxy: settings, Control: noControl, Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(p.Close)
	t.Cleanup(p.reader.Close)
	return p
}

func newHarness(t *testing.T, engines ...http.HandlerFunc) *harness {
	t.Helper()
	return newHarnessWith(t, config.Proxy{RetryBudget: 0.2}, engines...)
}

func newHarnessWith(t *testing.T, settings config.Proxy, engines ...http.HandlerFunc) *harness {
	t.Helper()
	h := &harness{t: t, plane: newPlane(t, settings), client: &http.Client{Transport: &http.Transport{DisableCompression: true}}}
	var urls []string
	for _, e := range engines {
		s := httptest.NewServer(e)
		h.engines = append(h.engines, s)
		t.Cleanup(s.Close)
		urls = append(urls, s.URL)
	}
	if len(urls) > 0 {
		require.NoError(t, h.plane.apply(evenSnapshot(urls...)))
	}
	front := httptest.NewServer(h.plane.Handler())
	h.url = front.URL
	t.Cleanup(front.Close)
	t.Cleanup(h.client.CloseIdleConnections)
	return h
}

// evenSnapshot spreads model "m" evenly over engines e0, e1, ...
func evenSnapshot(urls ...string) *fleet.Snapshot {
	s := &fleet.Snapshot{Cluster: "c", Epoch: 1, Version: 1, Time: time.Now(), GoodFor: time.Hour, Rows: []fleet.SnapshotRow{{Model: "m"}}}
	for i, u := range urls {
		s.Engines = append(s.Engines, fleet.SnapshotEngine{Name: fmt.Sprint("e", i), URL: u, Capacity: 10})
		s.Rows[0].Targets = append(s.Rows[0].Targets, fleet.Target{Engine: int32(i), Weight: 1 / float64(len(urls)), Predicted: 1})
	}
	return s
}

func (h *harness) post(body string, header ...string) *http.Response {
	h.t.Helper()
	req, err := http.NewRequest(http.MethodPost, h.url+"/v1/chat/completions", strings.NewReader(body))
	require.NoError(h.t, err)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := h.client.Do(req)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func (h *harness) read(resp *http.Response) string {
	h.t.Helper()
	b, err := io.ReadAll(resp.Body)
	require.NoError(h.t, err)
	return string(b)
}

// wantError checks an OpenAI-style error.
func (h *harness) wantError(resp *http.Response, status int, code string) string {
	h.t.Helper()
	require.Equal(h.t, status, resp.StatusCode)
	require.Equal(h.t, "application/json", resp.Header.Get("Content-Type"))
	var e struct {
		Error struct{ Message, Type, Code string }
	}
	require.NoError(h.t, json.NewDecoder(resp.Body).Decode(&e))
	require.Equal(h.t, code, e.Error.Code)
	require.NotEmpty(h.t, e.Error.Message)
	require.NotEmpty(h.t, e.Error.Type)
	return e.Error.Message
}

func answers(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, text)
	}
}

const chat = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`

// inFlight is the work in flight over all engines.
func (h *harness) inFlight() (n int64) {
	for _, s := range h.plane.Stats() {
		n += s.InFlight
	}
	return n
}

func (h *harness) requireIdle() {
	h.t.Helper()
	require.Eventually(h.t, func() bool { return h.inFlight() == 0 }, 5*time.Second, time.Millisecond, "work in flight is released exactly once")
}
