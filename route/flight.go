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

	places places
}

type rowFlights struct {
	work    atomic.Int64 // sum over the row's engines
	passing sync.Mutex   // held while an engine is passed over, so that two at once count each other
	engines map[string]*Flight
}

// Flight is one engine's part of a row: work in flight and whether the row
// passes the engine over.
type Flight struct {
	row       *rowFlights
	work      atomic.Int64
	requests  atomic.Int64
	busySince atomic.Int64 // when the first of the requests in flight was charged
	passSince atomic.Int64 // when the engine was passed over last
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

// Charge counts a request's work, in tokens, from the moment it is picked: now,
// in nanoseconds.
func (f *Flight) Charge(work, now int64) Charge {
	c, _, _ := f.charge(work, now, 0)
	return c
}

// charge is Charge unless the engine has as many requests as limit allows; a
// limit of 0 allows any number. To look and to count are one step, so that a
// burst of requests does not all see the same room; n is what was seen.
func (f *Flight) charge(work, now int64, limit float64) (c Charge, n int64, ok bool) {
	for {
		n = f.requests.Load()
		if limit > 0 && float64(n) >= limit {
			return Charge{}, n, false
		}
		if n == 0 {
			f.busySince.Store(now)
		}
		if f.requests.CompareAndSwap(n, n+1) {
			break
		}
	}
	f.work.Add(work)
	f.row.work.Add(work)
	return Charge{flight: f, work: work}, n, true
}

// BusySince is when the engine was charged last while nothing was in flight.
func (f *Flight) BusySince() int64 { return f.busySince.Load() }

// Requests is the number of requests in flight.
func (f *Flight) Requests() int64 { return f.requests.Load() }

// InFlight is the number of requests in flight and their work in tokens.
func (f *Flight) InFlight() (requests, work int64) { return f.requests.Load(), f.work.Load() }

// passOver makes picks pass the engine over from now until the given time, in
// the nanoseconds that Pick's now counts. It is a lease: it ends by itself. From
// then on a request now and then probes the engine, until Recovered is called. A
// lease that ends later is not shortened.
func (f *Flight) passOver(now, until int64) {
	f.passSince.Store(now)
	until = max(until, f.passUntil.Load())
	f.probeAt.Store(until)
	f.passUntil.Store(until)
}

// Recovered ends the lease and the probing: the engine answered a request that
// was sent at that time. Of one that was sent before the engine was passed over
// the answer says nothing.
func (f *Flight) Recovered(sent int64) {
	if f.passUntil.Load() != 0 && sent >= f.passSince.Load() {
		f.passUntil.Store(0)
	}
}

// PassedOver tells whether the engine is passed over or being probed.
func (f *Flight) PassedOver() bool { return f.passUntil.Load() != 0 }

// Leased tells whether a lease keeps all requests away at a time; once it is over a request now
// and then probes the engine.
func (f *Flight) Leased(now int64) bool { return f.passUntil.Load() > now }

// admits tells whether a request may go to the engine; to one that is being
// probed, one in each interval may.
func (f *Flight) admits(now int64) bool {
	if f.passUntil.Load() == 0 {
		return true
	}
	next := f.probeAt.Load()
	return now >= next && f.probeAt.CompareAndSwap(next, now+probeInterval)
}

// Charge is one request in flight; the zero value is none. It releases exactly
// once, however often Release is called; it must not be copied after its first
// use.
type Charge struct {
	flight *Flight
	work   int64
}

// Held tells whether there is something to release.
func (c *Charge) Held() bool { return c.flight != nil }

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
