package proxy

import (
	"net/http"
	"net/url"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/protect"
	"github.com/wardrop-lb/wardrop/route"
)

// table is everything a request needs, resolved when a snapshot is applied, so
// that the request path looks nothing up twice and locks nothing.
type table struct {
	router *route.Router
	rows   map[string]*rowState
	aged   float64 // part of the weights that age has taken
	number uint64  // counts those of this data plane
}

// rowState is one model's row with what this data plane keeps about it.
type rowState struct {
	*route.Row
	model   *modelState
	targets []targetState // parallel to Row.Targets()
	refusal [fleet.NumPriorities]*refusal
}

// modelState outlives snapshots: demand and retry budget of one model.
type modelState struct {
	demand     [fleet.NumPriorities]flow
	shed       [fleet.NumPriorities]counter
	budget     *protect.RetryBudget
	usual      atomicFloat // work of a usual request, tokens
	typical    protect.Typical
	queue      queue
	popularity atomic.Pointer[route.Popularity]
}

// flow is the demand of one model at one priority: what arrived, and what it turned
// out to be.
type flow struct {
	counter                          // first attempts
	retries            atomic.Uint64 // of clients
	cancelled          atomic.Uint64
	samples, estimated atomic.Uint64 // answers whose tokens were counted; of these, by their sizes
	prompt, output     atomic.Uint64 // tokens
	cached             atomic.Uint64 // tokens of prompts that the engine had
}

// targetState is one engine of a row.
type targetState struct {
	base      *url.URL
	transport *http.Transport
	seen      *seenState
	engine    *engineState
}

// seenState outlives snapshots: what was seen of one engine serving one model.
type seenState struct {
	model, engine string
	named         []string // the engine's name, as the value of a header; nobody changes it
	flight        *route.Flight
	attempts      counter
	failures      counter
	ended         atomic.Uint64
	spent         spent
	firstByte     mean
	success       prometheus.Counter
	arrived       prometheus.Observer // time from a request's arrival to its first byte
	rate, wait    atomicFloat         // as last reported
	doubt         doubt               // the sweep's alone
}

// engineState outlives snapshots: the evidence against one engine.
type engineState struct {
	outlier protect.Outlier
	life    protect.Liveness
	pulse   pulse
	inBand  inBand

	healthAsked int64 // nanoseconds; the sweep's alone
}

// memory holds the states that outlive snapshots. Safe for concurrent use.
type memory struct {
	flights    *route.Flights
	ratio      float64 // retry budget
	transports *transports
	metrics    *metrics

	mu      sync.Mutex
	models  map[string]*modelState
	seen    map[[2]string]*seenState // by model and engine
	engines map[string]*engineState
}

func newMemory(retryRatio float64, t *transports, metrics *metrics) *memory {
	return &memory{
		flights: route.NewFlights(), ratio: retryRatio, transports: t, metrics: metrics,
		models: map[string]*modelState{}, seen: map[[2]string]*seenState{}, engines: map[string]*engineState{},
	}
}

// resolve builds the table of a snapshot; soon has it built roughly, for who has none yet and
// builds it again.
func (m *memory) resolve(s *fleet.Snapshot, eps float64, previous *table, soon bool) (*table, error) {
	var old *route.Router
	if previous != nil {
		old = previous.router
	}
	t := &table{rows: map[string]*rowState{}}
	if soon {
		t.router = route.NewSoon(s, m.flights, eps, parallel)
	} else {
		t.router = route.New(s, m.flights, eps, old)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, model := range t.router.Models() {
		row := &rowState{Row: t.router.Row(model), model: m.model(model)}
		row.refusal = m.metrics.shedRefusals(row.Row)
		for _, target := range row.Targets() {
			transport, base, err := m.transports.to(target.Engine.URL, target.Engine.Protocol)
			if err != nil {
				return nil, err
			}
			row.targets = append(row.targets, targetState{
				base: base, transport: transport, engine: m.engine(target.Engine.Name), seen: m.see(model, target),
			})
		}
		row.probeUnproven(time.Now().UnixNano())
		if s := row.model.popularity.Load(); s == nil || !s.Fits(len(row.targets)) {
			row.model.popularity.Store(route.NewPopularity(len(row.targets)))
		}
		t.rows[model] = row
	}
	m.forget(t)
	return t, nil
}

// parallel runs jobs on all cores: nobody is served yet.
func parallel(n int, job func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				job(int(i - 1))
			}
		})
	}
	wg.Wait()
}

// probeUnproven has engines probed that come back into the row and have not answered since
// they were found unfit to serve.
func (r *rowState) probeUnproven(now int64) {
	for i := range r.targets {
		if !r.Targets()[i].Flight.PassedOver() && !r.targets[i].engine.life.Proven() {
			r.PassOver(i, now, now)
		}
	}
}

func (m *memory) model(name string) *modelState {
	s := m.models[name]
	if s == nil {
		s = &modelState{budget: protect.NewRetryBudget(m.ratio)}
		m.models[name] = s
	}
	return s
}

// knownEngine finds an engine's state; nil when the snapshot lacks it.
func (m *memory) knownEngine(name string) *engineState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.engines[name]
}

func (m *memory) engine(name string) *engineState {
	s := m.engines[name]
	if s == nil {
		s = &engineState{}
		m.engines[name] = s
	}
	return s
}

func (m *memory) see(model string, t route.Target) *seenState {
	key := [2]string{model, t.Engine.Name}
	s := m.seen[key]
	if s == nil {
		s = &seenState{
			model: model, engine: t.Engine.Name, named: []string{t.Engine.Name},
			success: m.metrics.attempts.WithLabelValues(t.Engine.Name, model, outcomeNames[protect.Success]),
			arrived: m.metrics.firstByte.WithLabelValues(model),
		}
		m.seen[key] = s
	}
	s.flight = t.Flight
	return s
}

// forget drops the states of models and engines that the snapshot lacks, so that
// memory stays bounded however often the fleet changes.
func (m *memory) forget(t *table) {
	known := map[string]bool{}
	for _, e := range t.router.Snapshot.Engines {
		known[e.Name] = true
	}
	for name := range m.models {
		if t.rows[name] == nil {
			delete(m.models, name)
		}
	}
	for name := range m.engines {
		if !known[name] {
			delete(m.engines, name)
		}
	}
	keep := func(model, engine string) bool { return t.rows[model] != nil && known[engine] }
	for key, s := range m.seen {
		if !keep(key[0], key[1]) && s.flight.Requests() == 0 {
			delete(m.seen, key)
		}
	}
	m.flights.Trim(keep)
}
