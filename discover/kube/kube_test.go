package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/discover"
)

// apiServer lists and watches the slices of one namespace as Kubernetes' does: with
// resource versions, and 410 for those that it has forgotten.
type apiServer struct {
	*httptest.Server
	t *testing.T

	mu      sync.Mutex
	slices  map[string]*discoveryv1.EndpointSlice
	version int
	events  []event
	first   int // the version from which on events are known
	changed chan struct{}
	broken  bool
	asked   []string // queries
	cut     context.CancelFunc
	life    context.Context // of the watches
}

type event struct {
	version int
	Type    string `json:"type"`
	Object  any    `json:"object"`
}

func startAPIServer(t *testing.T) *apiServer {
	a := &apiServer{t: t, slices: map[string]*discoveryv1.EndpointSlice{}, version: 10, changed: make(chan struct{})}
	a.life, a.cut = context.WithCancel(context.Background())
	mux := http.NewServeMux()
	mux.HandleFunc("GET /apis/discovery.k8s.io/v1/namespaces/models/endpointslices", a.serve)
	a.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		a.dropWatches()
		a.Close()
	})
	return a
}

func (a *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	broken, life := a.broken, a.life
	a.asked = append(a.asked, r.URL.RawQuery)
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	q := r.URL.Query()
	switch {
	case broken:
		status(w, 500, metav1.StatusReasonInternalError)
	case q.Get("sendInitialEvents") != "": // as a server does that cannot stream lists
		status(w, 422, metav1.StatusReasonInvalid)
	case q.Get("watch") == "":
		a.list(w)
	default:
		a.watch(life, w, r)
	}
}

func status(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(failure(code, reason))
}

func failure(code int, reason metav1.StatusReason) metav1.Status {
	return metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: int32(code), Reason: reason, Message: "no " + string(reason)}
}

func (a *apiServer) list(w http.ResponseWriter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := discoveryv1.EndpointSliceList{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSliceList"},
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(a.version)},
	}
	for _, s := range a.slices {
		list.Items = append(list.Items, *s)
	}
	_ = json.NewEncoder(w).Encode(list)
}

func (a *apiServer) watch(life context.Context, w http.ResponseWriter, r *http.Request) {
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	w.WriteHeader(http.StatusOK)
	encoder := json.NewEncoder(w)
	for {
		_ = http.NewResponseController(w).Flush()
		a.mu.Lock()
		changed, first := a.changed, a.first
		var send []event
		for _, e := range a.events {
			if e.version > from {
				send = append(send, e)
			}
		}
		from = max(from, a.version)
		a.mu.Unlock()
		if from < first {
			_ = encoder.Encode(event{Type: "ERROR", Object: failure(410, metav1.StatusReasonExpired)})
			return
		}
		for _, e := range send {
			_ = encoder.Encode(e)
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-changed:
		case <-life.Done():
			return
		case <-r.Context().Done():
			return
		}
	}
}

// change records what happened to a slice; nil endpoints delete it.
func (a *apiServer) change(kind string, s *discoveryv1.EndpointSlice) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	s.ResourceVersion = strconv.Itoa(a.version)
	a.slices[s.Name] = s
	if kind == "DELETED" {
		delete(a.slices, s.Name)
	}
	a.events = append(a.events, event{a.version, kind, s})
	close(a.changed)
	a.changed = make(chan struct{})
}

// dropWatches cuts all connections that watch.
func (a *apiServer) dropWatches() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cut()
	a.life, a.cut = context.WithCancel(context.Background())
}

func (a *apiServer) breakDown(broken bool) {
	a.mu.Lock()
	a.broken = broken
	a.mu.Unlock()
}

// forget makes the server lose the events so far.
func (a *apiServer) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version += 1000
	a.events, a.first = nil, a.version
}

func (a *apiServer) kubeconfig() string {
	path := filepath.Join(a.t.TempDir(), "kubeconfig")
	require.NoError(a.t, os.WriteFile(path, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
users: [{name: u, user: {token: secret}}]
contexts: [{name: x, context: {cluster: c, user: u, namespace: models}}]
current-context: x
`, a.URL), 0o600))
	return path
}

// watching runs a source against a server.
type watching struct {
	t     *testing.T
	found chan discover.Found
}

func startWatching(t *testing.T, a *apiServer, interval time.Duration) *watching {
	s := config.Source{Name: "k", Scheme: "http", Interval: config.Duration(interval), Region: "eu",
		Kubernetes: config.KubernetesSource{Selector: "kubernetes.io/service-name=vllm", Kubeconfig: a.kubeconfig()}}
	source, err := Open(s, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	w := &watching{t, make(chan discover.Found)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- source.Run(ctx, func(f discover.Found) {
			select {
			case w.found <- f:
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return w
}

// until waits for a report that is as it should be.
func (w *watching) until(what string, is func(discover.Found) bool) {
	w.t.Helper()
	limit := time.After(30 * time.Second)
	var last discover.Found
	for {
		select {
		case last = <-w.found:
			if is(last) {
				return
			}
		case <-limit:
			w.t.Fatalf("%s: not seen; last %+v", what, last)
		}
	}
}

func names(f discover.Found) string {
	out := ""
	for _, e := range f.Engines {
		out += e.Name
		if e.Drain {
			out += "!"
		}
		out += " "
	}
	return out
}

func is(want string) func(discover.Found) bool {
	return func(f discover.Found) bool { return f.Err == nil && names(f) == want }
}

// The slices are listed, then watched: engines come, drain and go.
func TestWatch(t *testing.T) {
	a := startAPIServer(t)
	a.change("ADDED", slice("s1", endpoint("p1", "10.0.0.1"), endpoint("p2", "10.0.0.2")))
	w := startWatching(t, a, time.Hour)
	w.until("the list", is("p1 p2 "))
	a.change("ADDED", slice("s2", endpoint("p3", "10.0.0.3", notReady)))
	a.change("MODIFIED", slice("s1", endpoint("p1", "10.0.0.1", terminating), endpoint("p2", "10.0.0.2")))
	w.until("one drains", is("p1! p2 "))
	a.change("MODIFIED", slice("s2", endpoint("p3", "10.0.0.3")))
	w.until("one is ready", is("p1! p2 p3 "))
	a.change("DELETED", slice("s1"))
	w.until("a slice is gone", is("p3 "))
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, q := range a.asked {
		require.Contains(t, q, "labelSelector=kubernetes.io%2Fservice-name%3Dvllm")
	}
}

// A watch that breaks off is taken up; what the server has forgotten is listed anew.
func TestWatchResumes(t *testing.T) {
	a := startAPIServer(t)
	a.change("ADDED", slice("s1", endpoint("p1", "10.0.0.1")))
	w := startWatching(t, a, time.Hour)
	w.until("the list", is("p1 "))
	a.dropWatches()
	a.change("MODIFIED", slice("s1", endpoint("p2", "10.0.0.2")))
	w.until("the change after the break", is("p2 "))
	a.change("MODIFIED", slice("s1", endpoint("p3", "10.0.0.3")))
	a.forget()
	a.dropWatches()
	w.until("the new list", is("p3 "))
}

// A server that fails is a failure, and no empty answer; when it is back all holds
// again though nothing has changed. While it is well its word is confirmed.
func TestServerFails(t *testing.T) {
	a := startAPIServer(t)
	a.breakDown(true)
	w := startWatching(t, a, time.Second)
	w.until("the failure", func(f discover.Found) bool { return f.Err != nil && f.Engines == nil })
	a.change("ADDED", slice("s1", endpoint("p1", "10.0.0.1")))
	a.breakDown(false)
	w.until("the list", is("p1 "))
	w.until("that it still holds", is("p1 "))
	a.breakDown(true)
	a.dropWatches()
	w.until("the failure", func(f discover.Found) bool { return f.Err != nil })
	a.breakDown(false)
	w.until("that it holds again", is("p1 "))
}

func TestOpen(t *testing.T) {
	_, err := Open(config.Source{Kubernetes: config.KubernetesSource{Selector: "a"}}, nil)
	require.ErrorContains(t, err, "no kubeconfig, and not in a pod")
	_, err = Open(config.Source{Kubernetes: config.KubernetesSource{Selector: "a", Kubeconfig: "/nowhere"}}, nil)
	require.ErrorContains(t, err, "/nowhere")
	s, err := Open(config.Source{File: "x"}, nil)
	require.NoError(t, err)
	require.NotNil(t, s)
}
