package proxy

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardrop-lb/wardrop/protect"
)

// errStalled ends the waiting for an engine that accepts and never answers.
var errStalled = errors.New("the engine gives no sign of life")

const (
	sweepInterval = 500 * time.Millisecond
	// stallFactor is how many times the predicted time of a usual request an
	// engine may be silent beyond stall_after.
	stallFactor = 5
)

// pulse tells whether an engine makes progress, and who waits for its first
// byte. Any byte of any answer counts. Safe for concurrent use.
type pulse struct {
	last atomic.Int64 // nanoseconds of the last sign of life
	// owed is how long the engine was silent, in nanoseconds, while requests waited
	// that then gave up. Without it an engine whose clients are less patient than we
	// are would never be found.
	owed atomic.Int64

	mu      sync.Mutex
	waiting []*attempt // each knows its place here
	since   int64      // when the first of those that wait began to
}

func (p *pulse) beat(now int64) { p.last.Store(now) }

// wait adds an attempt to those that end when the engine stalls.
func (p *pulse) wait(a *attempt) {
	p.mu.Lock()
	if len(p.waiting) == 0 {
		p.since = a.sent.UnixNano()
	}
	a.place = len(p.waiting)
	p.waiting = append(p.waiting, a)
	p.mu.Unlock()
}

// leave takes an attempt out at time now.
func (p *pulse) leave(a *attempt, now int64) {
	p.mu.Lock()
	switch {
	case p.last.Load() >= p.since:
		p.owed.Store(0)
	case len(p.waiting) == 1:
		p.owed.Add(now - p.since)
	}
	last := p.waiting[len(p.waiting)-1]
	p.waiting[a.place], last.place = last, a.place
	p.waiting[len(p.waiting)-1] = nil
	p.waiting = p.waiting[:len(p.waiting)-1]
	p.mu.Unlock()
}

// stall ends all waits at time now.
func (p *pulse) stall(now int64) {
	p.beat(now)
	p.owed.Store(0)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.waiting {
		a.cancel(errStalled)
	}
}

// sweep looks for black holes: engines with work in flight that have given no
// byte for too long, whatever their health page says. How long is too long grows
// with the time that the plan predicts and with the size of what is in flight, so
// that a long prefill is no alarm.
func (p *DataPlane) sweep(now time.Time) {
	t := p.table.Load()
	if t == nil || p.config.StallAfter <= 0 {
		return
	}
	for _, row := range t.rows {
		for i := range row.targets {
			target := &row.Targets()[i]
			requests, work := target.Flight.InFlight()
			if requests == 0 {
				continue
			}
			size := max(1, float64(work)/float64(requests)/max(row.model.usual.load(), 1))
			limit := time.Duration(p.config.StallAfter) + time.Duration(stallFactor*size*target.Predicted*float64(time.Second))
			engine := row.targets[i].engine
			// An idle engine owes no sign of life.
			since := max(engine.pulse.last.Load(), target.Flight.BusySince())
			if silent := now.Sub(time.Unix(0, since)) + time.Duration(engine.pulse.owed.Load()); silent > limit {
				p.log.Warn("engine gives no sign of life; what waits for it goes elsewhere",
					"engine", target.Engine.Name, "model", row.Model, "silent", silent, "in_flight", requests)
				p.passOver(row, i, protect.Stalled, now.UnixNano())
				engine.pulse.stall(now.UnixNano())
			}
		}
	}
}

// watchLiveness sweeps until ctx is done.
func (p *DataPlane) watchLiveness(ctx context.Context) {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			p.sweep(now)
		}
	}
}
