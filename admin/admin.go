package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/wardrop-lb/wardrop/collect"
	"github.com/wardrop-lb/wardrop/control"
	"github.com/wardrop-lb/wardrop/dashboard"
	"github.com/wardrop-lb/wardrop/explain"
	"github.com/wardrop-lb/wardrop/guard"
	"github.com/wardrop-lb/wardrop/proxy"
	"github.com/wardrop-lb/wardrop/relay"
	"github.com/wardrop-lb/wardrop/store"
)

// Status is the control plane at a glance.
type Status struct {
	Epoch     uint64    `json:"epoch"`
	Version   uint64    `json:"version"`
	Policy    string    `json:"policy"`
	Gap       float64   `json:"gap"`
	Published time.Time `json:"published"`
	TickTook  float64   `json:"tick_seconds"`
	// Trouble is why a fallback is in force; empty when all is well.
	Trouble string `json:"trouble,omitempty"`
	// Hold is why the policy's plan is held back; absent when it is not.
	Hold       *guard.Hold         `json:"hold,omitempty"`
	DataPlanes []control.DataPlane `json:"data_planes"`
	// Leading tells whether this member makes the plans; the plan above is its own last one.
	Leading bool `json:"leading"`
	// Leader names the member that does; empty while none does, or it is the only one.
	Leader    string           `json:"leader,omitempty"`
	Overrides []store.Override `json:"overrides"`
	// Followers are connected and report nothing.
	Followers []control.Follower `json:"followers,omitempty"`
}

// Overrides is the answer of /v1/overrides.
type Overrides struct {
	Overrides []store.Override `json:"overrides"`
}

// Members is the answer of POST /v1/members: those that a new one begins with.
type Members struct {
	Members []store.Peer `json:"members"`
}

// Engines is the answer of /v1/engines.
type Engines struct {
	Engines []control.Engine `json:"engines"`
}

// Demand is the answer of /v1/demand.
type Demand struct {
	Demand []control.Demand `json:"demand"`
}

// Distances is the answer of /v1/distances.
type Distances struct {
	Distances []control.Distance `json:"distances"`
}

// Options are what else the admin API of a control plane may have.
type Options struct {
	// Board is the page to look at; nil for none.
	Board *dashboard.Board
	// Token gives what whoever changes something must show; nil where nothing is asked for. It
	// is called for each such request, by many goroutines.
	Token func() (string, error)
	// Planes are the admin addresses of the data planes, which are asked about requests; nil for
	// those that the configuration has.
	Planes func() []string
}

// Control serves the admin API of a control plane. What changes something is refused to pages
// of other origins, whatever they know.
func Control(c *control.Control, metrics prometheus.Gatherer, o Options) http.Handler {
	mux := base(metrics, c.Ready)
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		now := time.Now()
		status := Status{DataPlanes: c.DataPlanes(now), Leading: c.Leading(), Leader: c.Leader(), Overrides: c.Overrides(now), Followers: c.Followers(now)}
		if s := c.State(); s != nil {
			status.Epoch, status.Version, status.Policy, status.Gap = s.Plan.Epoch, s.Plan.Version, s.Plan.Policy, s.Plan.Gap
			status.Published, status.TickTook, status.Trouble = s.Published, s.TickTook.Seconds(), s.Trouble
			status.Hold = s.Hold
		}
		answer(w, http.StatusOK, status)
	})
	mux.HandleFunc("GET /v1/engines", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, Engines{c.Engines(time.Now())})
	})
	mux.HandleFunc("GET /v1/demand", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, Demand{c.Demands(time.Now())})
	})
	mux.HandleFunc("GET /v1/distances", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, Distances{c.Distances(time.Now())})
	})
	mux.HandleFunc("GET /v1/plan", func(w http.ResponseWriter, _ *http.Request) {
		if s := planned(w, c); s != nil {
			answer(w, http.StatusOK, explain.NewPlan(s.Plan))
		}
	})
	mux.HandleFunc("GET /v1/why/weight", func(w http.ResponseWriter, r *http.Request) {
		s := planned(w, c)
		if s == nil {
			return
		}
		q := r.URL.Query()
		why, err := s.Known().Weight(s.Plan, q.Get("cluster"), q.Get("model"), q.Get("engine"))
		if err != nil {
			fail(w, http.StatusNotFound, err.Error())
			return
		}
		if n, err := strconv.Atoi(q.Get("engines")); err == nil && n >= 0 && n < len(why.Engines) {
			why.Engines = why.Engines[:n] // the heaviest, then the nearest without weight
		}
		answer(w, http.StatusOK, why)
	})
	pin(mux, c, gate{o.Token})
	suppositions(mux, c)
	requests(mux, c, o.Planes)
	if o.Board != nil {
		o.Board.Register(mux)
	}
	return http.NewCrossOriginProtection().Handler(mux)
}

// maxAsked bounds the body of what changes something.
const maxAsked = 64 << 10

// pin serves what operators change: overrides, and members that join.
func pin(mux *http.ServeMux, c *control.Control, g gate) {
	mux.HandleFunc("GET /v1/access", g.serveAccess)
	mux.HandleFunc("GET /v1/overrides", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, Overrides{c.Overrides(time.Now())})
	})
	mux.HandleFunc("PUT /v1/overrides", g.guard(func(w http.ResponseWriter, r *http.Request) {
		var o store.Override
		if !asked(w, r, &o) {
			return
		}
		o.Set = time.Now().Round(0)
		err := c.Override(r.Context(), o)
		switch {
		case errors.Is(err, control.ErrOverride):
			fail(w, http.StatusBadRequest, err.Error())
		case err != nil:
			fail(w, http.StatusServiceUnavailable, err.Error())
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	mux.HandleFunc("DELETE /v1/overrides/{key...}", g.guard(func(w http.ResponseWriter, r *http.Request) {
		key := r.PathValue("key")
		found, err := c.RemoveOverride(r.Context(), key)
		switch {
		case err != nil:
			fail(w, http.StatusServiceUnavailable, err.Error())
		case !found:
			fail(w, http.StatusNotFound, fmt.Sprintf("there is no override %q", key))
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	mux.HandleFunc("POST /v1/members", g.guard(func(w http.ResponseWriter, r *http.Request) {
		var joins store.Peer
		if !asked(w, r, &joins) {
			return
		}
		members, err := c.Admit(r.Context(), joins)
		if err != nil {
			fail(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		answer(w, http.StatusOK, Members{members})
	}))
}

// asked reads a body; false when it could not, which has been answered.
func asked(w http.ResponseWriter, r *http.Request, into any) bool {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxAsked))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		fail(w, http.StatusBadRequest, "the body is not what is wanted: "+err.Error())
		return false
	}
	return true
}

// Collector serves the admin API of a collector: health and metrics.
func Collector(c *collect.Collector, metrics prometheus.Gatherer) http.Handler {
	return base(metrics, c.Ready)
}

// Relay serves the admin API of a relay.
func Relay(r *relay.Relay, metrics prometheus.Gatherer) http.Handler {
	mux := base(metrics, r.Ready)
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, r.Status(time.Now())) })
	return mux
}

// Proxy serves the admin API of a data plane.
func Proxy(p *proxy.DataPlane, metrics prometheus.Gatherer) http.Handler {
	mux := base(metrics, p.Ready)
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, p.Status(time.Now())) })
	mux.HandleFunc("GET /v1/snapshot", func(w http.ResponseWriter, _ *http.Request) {
		if s := p.Snapshot(); s != nil {
			answer(w, http.StatusOK, s)
			return
		}
		fail(w, http.StatusServiceUnavailable, "there is no snapshot yet")
	})
	decided(mux, p)
	mux.HandleFunc("GET /v1/engines", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, p.Stats()) })
	return mux
}

func base(metrics prometheus.Gatherer, ready func() bool) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready() {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

func planned(w http.ResponseWriter, c *control.Control) *control.State {
	s := c.State()
	if s == nil {
		fail(w, http.StatusServiceUnavailable, "there is no plan yet")
	}
	return s
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(v)
}

func fail(w http.ResponseWriter, status int, message string) {
	answer(w, status, map[string]string{"error": message})
}
