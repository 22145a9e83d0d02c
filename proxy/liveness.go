package proxy

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardrop-lb/wardrop/protect"
	"github.com/wardrop-lb/wardrop/signals"
)

// errStalled ends the waiting for an engine that accepts and never answers.
var errStalled = errors.New("the engine gives no sign of life")

const (
	sweepInterval = 500 * time.Millisecond
	// stallFactor is how many times the predicted time of a usual request an
	// engine may be silent beyond stall_after.
	stallFactor = 5
	// watchedFor is how long a reading of an engine's counters counts, in
	// nanoseconds.
	watchedFor = 5e9
)

// waiters are attempts that end when their engine stalls. The zero value is ready.
type waiters struct{ list []*attempt } // each knows its place here

func (w *waiters) add(a *attempt) {
	a.place = len(w.list)
	w.list = append(w.list, a)
}

func (w *waiters) remove(a *attempt) {
	n := len(w.list) - 1
	last := w.list[n]
	w.list[a.place], last.place = last, a.place
	w.list[n] = nil
	w.list = w.list[:n]
}

func (w *waiters) end() {
	for _, a := range w.list {
		a.cancel(errStalled)
	}
}

// pulse tells whether an engine makes progress, and who waits for its first
// byte. Any byte of any answer counts, and so does what the engine's own counters
// say. Safe for concurrent use.
type pulse struct {
	last atomic.Int64 // nanoseconds of the last sign of life
	// chunks counts pieces of answers after the first; the sweep sees that it moved,
	// so that a token costs no look at the clock.
	chunks atomic.Uint64
	seen   uint64 // of chunks, by the sweep alone
	// owed is how long the engine was silent, in nanoseconds, while streams waited
	// that then gave up. Without it an engine whose clients are less patient than we
	// are would never be found.
	owed atomic.Int64
	// watched is when the engine's counters were last read, in nanoseconds.
	watched  atomic.Int64
	progress atomicFloat // the counter that grows with any work

	mu      sync.Mutex
	streams waiters // for a first token: silence means something
	whole   waiters // for a whole answer, which may take long
	since   int64   // when the first of the streams that wait began to
}

func (p *pulse) beat(now int64) { p.last.Store(now) }

// count takes a reading of the engine's counter of progress.
func (p *pulse) count(progress float64, now int64) {
	if p.watched.Swap(now) == 0 || progress != p.progress.load() {
		p.beat(now)
	}
	p.progress.store(progress)
}

// wait adds an attempt to those that end when the engine stalls.
func (p *pulse) wait(a *attempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !a.stream {
		p.whole.add(a)
		return
	}
	if len(p.streams.list) == 0 {
		p.since = a.sent.UnixNano()
	}
	p.streams.add(a)
}

// leave takes an attempt out at time now.
func (p *pulse) leave(a *attempt, now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !a.stream {
		p.whole.remove(a)
		return
	}
	switch {
	case p.last.Load() >= p.since:
		p.owed.Store(0)
	case len(p.streams.list) == 1:
		p.owed.Add(now - p.since)
	}
	p.streams.remove(a)
}

// silence is how long the engine has owed a sign of life at time now, given when
// its work in flight began. Streams owe a token; a whole answer owes nothing until
// it is whole, but then the engine's counters must move, if they are read. It is
// the sweep's to call.
func (p *pulse) silence(now, busySince int64) (silent time.Duration, counted bool) {
	if n := p.chunks.Load(); n != p.seen {
		p.seen = n
		p.beat(now)
	}
	p.mu.Lock()
	streams, first := len(p.streams.list), p.since
	p.mu.Unlock()
	counted = now-p.watched.Load() < watchedFor
	since := max(p.last.Load(), busySince)
	switch {
	case counted:
		silent = time.Duration(now - since)
	case streams > 0:
		silent = time.Duration(now - max(since, first))
	}
	return silent + time.Duration(p.owed.Load()), counted
}

// stall ends the waits at time now: those of streams, and all if the engine's own
// counters say that it stands still.
func (p *pulse) stall(now int64, counted bool) {
	p.beat(now)
	p.owed.Store(0)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams.end()
	if counted {
		p.whole.end()
	}
}

// sweep looks for black holes: engines with work in flight that have given no
// sign of life for too long, whatever their health page says. How long is too long
// grows with the time that the plan predicts and with the size of what is in
// flight, so that a long prefill is no alarm.
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
				continue // an idle engine owes no sign of life
			}
			size := max(1, float64(work)/float64(requests)/max(row.model.usual.load(), 1))
			limit := time.Duration(p.config.StallAfter) + time.Duration(stallFactor*size*target.Predicted*float64(time.Second))
			pulse := &row.targets[i].engine.pulse
			if silent, counted := pulse.silence(now.UnixNano(), target.Flight.BusySince()); silent > limit {
				p.log.Warn("engine gives no sign of life; what waits for it goes elsewhere",
					"engine", target.Engine.Name, "model", row.Model, "silent", silent, "in_flight", requests)
				p.passOver(row, i, protect.Stalled, now.UnixNano())
				pulse.stall(now.UnixNano(), counted)
			}
		}
	}
}

// progressed takes what an engine's signals say of its progress.
func (p *DataPlane) progressed(st signals.State) {
	if st.Err == "" && st.Signal != nil && st.Signal.Progress.Known {
		if e := p.memory.knownEngine(st.Engine); e != nil {
			e.pulse.count(st.Signal.Progress.Value, st.Signal.Time.UnixNano())
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
