package route

import (
	"sync"
	"sync/atomic"
)

// Flights counts the work in flight of one data plane. The counters belong to
// (model, engine) and outlive snapshots, so that a change of weights never
// forgets a request. Safe for concurrent use.
type Flights struct {
	mu   sync.Mutex
	rows map[string]*rowFlights
}

type rowFlights struct {
	work    atomic.Int64 // sum over the row's engines
	engines map[string]*Flight
}

// Flight is one engine's part of a row: work in flight and whether the row
// passes the engine over.
type Flight struct {
	row       *rowFlights
	work      atomic.Int64
	requests  atomic.Int64
	passUntil atomic.Int64 // 0 for an engine that is well
	probeAt   atomic.Int64 // when the next probe may go, once the lease is over
}

// probeInterval is the time between two real requests that probe an engine whose
// lease is over, in nanoseconds.
const probeInterval = 250e6

// NewFlights starts with nothing in flight.
func NewFlights() *Flights { return &Flights{rows: map[string]*rowFlights{}} }

// Get finds or makes the counter of an engine in a model's row.
func (f *Flights) Get(model, engine string) *Flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.rows[model]
	if r == nil {
		r = &rowFlights{engines: map[string]*Flight{}}
		f.rows[model] = r
	}
	e := r.engines[engine]
	if e == nil {
		e = &Flight{row: r}
		r.engines[engine] = e
	}
	return e
}

// Trim forgets the idle counters that keep does not name.
func (f *Flights) Trim(keep func(model, engine string) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for model, r := range f.rows {
		for engine, e := range r.engines {
			if e.requests.Load() == 0 && !keep(model, engine) {
				delete(r.engines, engine)
			}
		}
		if len(r.engines) == 0 {
			delete(f.rows, model)
		}
	}
}

// Charge counts a request's work, in tokens, from the moment it is picked.
func (f *Flight) Charge(work int64) Charge {
	f.work.Add(work)
	f.row.work.Add(work)
	f.requests.Add(1)
	return Charge{flight: f, work: work}
}

// Requests is the number of requests in flight.
func (f *Flight) Requests() int64 { return f.requests.Load() }

// InFlight is the number of requests in flight and their work in tokens.
func (f *Flight) InFlight() (requests, work int64) { return f.requests.Load(), f.work.Load() }

// PassOver makes picks pass the engine over until the given time, in the
// nanoseconds that Pick's now counts. It is a lease: it ends by itself. From then
// on a request now and then probes the engine, until Recovered is called.
func (f *Flight) PassOver(until int64) {
	f.probeAt.Store(until)
	f.passUntil.Store(until)
}

// Recovered ends the probing: the engine answered.
func (f *Flight) Recovered() {
	if f.passUntil.Load() != 0 {
		f.passUntil.Store(0)
	}
}

// PassedOver tells whether the engine is passed over or being probed.
func (f *Flight) PassedOver() bool { return f.passUntil.Load() != 0 }

// admits tells whether a request may go to the engine; to one that is being
// probed, one in each interval may.
func (f *Flight) admits(now int64) bool {
	if f.passUntil.Load() == 0 {
		return true
	}
	next := f.probeAt.Load()
	return now >= next && f.probeAt.CompareAndSwap(next, now+probeInterval)
}

// Charge is one request in flight. It releases exactly once, however often
// Release is called; it must not be copied after its first use.
type Charge struct {
	flight *Flight
	work   int64
}

// Release takes the work back.
func (c *Charge) Release() {
	f := c.flight
	if f == nil {
		return
	}
	c.flight = nil
	f.work.Add(-c.work)
	f.row.work.Add(-c.work)
	f.requests.Add(-1)
}
