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
	// longOutput is the output, in tokens, that an answer may have whose request
	// sets no limit.
	longOutput = 4096
)

// waiters are attempts that end when their engine stalls. The zero value is ready.
type waiters struct {
	list  []*attempt // each knows its place here
	since int64      // when the first of those that wait began to
	// owed is how long the engine was silent, in nanoseconds, while some waited that
	// then gave up. Without it an engine whose clients are less patient than we are
	// would never be found.
	owed int64
}

func (w *waiters) add(a *attempt) {
	if len(w.list) == 0 {
		w.since = a.sent.UnixNano()
	}
	a.place = len(w.list)
	w.list = append(w.list, a)
}

// remove takes an attempt out at time now; last is when the engine gave its last
// sign of life.
func (w *waiters) remove(a *attempt, now, last int64) {
	switch {
	case last >= w.since:
		w.owed = 0
	case len(w.list) == 1:
		w.owed += now - w.since
	}
	n := len(w.list) - 1
	moved := w.list[n]
	w.list[a.place], moved.place = moved, a.place
	w.list[n] = nil
	w.list = w.list[:n]
}

// silence is how long at time now those that wait have had no sign of life, those
// counted that gave up.
func (w *waiters) silence(now, last int64) time.Duration {
	silent := w.owed
	if last > w.since {
		silent = 0
	}
	if len(w.list) > 0 {
		silent += now - max(last, w.since)
	}
	return time.Duration(silent)
}

func (w *waiters) end() {
	for _, a := range w.list {
		a.cancel(errStalled)
	}
}

// beyond is by how much those that wait may take longer than usual requests, in
// seconds: prompts take their turns, outputs grow side by side.
func (w *waiters) beyond() float64 {
	prompts, output := 0.0, 0.0
	for _, a := range w.list {
		prompts += a.longPrompt
		output = max(output, a.longOutput)
	}
	return prompts + output
}

// pulse tells whether an engine makes progress, and who waits for its first
// byte. Any byte of any answer counts, and so does what the engine's own counters
// say. Safe for concurrent use.
type pulse struct {
	last atomic.Int64 // nanoseconds of the last sign of life
	// moving tells that a piece of an answer came since the last sweep, so that a token
	// costs no look at the clock and, but for the first one, no write to memory that
	// all streams of the engine share.
	moving atomic.Bool
	// watched is when the engine's counters were last read, in nanoseconds.
	watched  atomic.Int64
	progress atomicFloat // the counter that grows with any work

	mu      sync.Mutex
	streams waiters // for a first token: silence means something
	whole   waiters // for a whole answer, which may take long
}

func (p *pulse) beat(now int64) { p.last.Store(now) }

// move tells that a piece of an answer came.
func (p *pulse) move() {
	if !p.moving.Load() {
		p.moving.Store(true)
	}
}

// count takes a reading of the engine's counter of progress.
func (p *pulse) count(progress float64, now int64) {
	if p.watched.Swap(now) == 0 || progress != p.progress.load() {
		p.beat(now)
	}
	p.progress.store(progress)
}

// among gives the list that an attempt waits in.
func (p *pulse) among(a *attempt) *waiters {
	if a.stream {
		return &p.streams
	}
	return &p.whole
}

// wait adds an attempt to those that end when the engine stalls.
func (p *pulse) wait(a *attempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.among(a).add(a)
}

// leave takes an attempt out at time now.
func (p *pulse) leave(a *attempt, now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.among(a).remove(a, now, p.last.Load())
}

// silences is how long an engine has owed a sign of life.
type silences struct {
	// streams is how long it owed a first token, or its own counters stood still with
	// work in flight if they are read: counted. That is a black hole.
	streams time.Duration
	counted bool
	// whole is how long nothing was finished though whole answers are waited for.
	// That may be a black hole, or long work; beyond is by how much it may be longer
	// than usual, in seconds.
	whole  time.Duration
	beyond float64
}

// silences looks at time now, given when the engine's work in flight began. It is
// the sweep's to call.
func (p *pulse) silences(now, busySince int64) (s silences) {
	if p.moving.Load() {
		p.moving.Store(false)
		p.beat(now)
	}
	last := p.last.Load()
	p.mu.Lock()
	defer p.mu.Unlock()
	s.streams = p.streams.silence(now, last)
	if s.counted = now-p.watched.Load() < watchedFor; s.counted {
		s.streams = max(s.streams, time.Duration(now-max(last, busySince)))
		return s
	}
	s.whole, s.beyond = p.whole.silence(now, last), p.whole.beyond()
	return s
}

// stall ends the waits at time now: those of streams, and all if the engine's own
// counters say that it stands still.
func (p *pulse) stall(now int64, counted bool) {
	p.beat(now)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams.owed = 0
	p.streams.end()
	if counted {
		p.whole.end()
	}
}

// endProbes ends at time now the waits for whole answers of those that were sent
// since the engine is in doubt and have waited for longer than patience.
func (p *pulse) endProbes(now, since int64, patience time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.whole.list {
		if sent := a.sent.UnixNano(); sent > since && now-sent > int64(patience) {
			a.cancel(errStalled)
		}
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
			if row.Targets()[i].Flight.Requests() == 0 {
				row.targets[i].seen.doubt = doubt{} // an idle engine owes no sign of life
				continue
			}
			p.sweepTarget(row, i, now.UnixNano())
		}
	}
}

func (p *DataPlane) sweepTarget(row *rowState, i int, now int64) {
	target, own := &row.Targets()[i], &row.targets[i]
	requests, work := target.Flight.InFlight()
	s := own.engine.pulse.silences(now, target.Flight.BusySince())
	usual := max(row.model.usual.load(), 1)
	size := max(1, (float64(work)/float64(max(requests, 1))-usual)/usual) // work counts a usual request's tokens too
	if s.streams > p.patience(size*target.Predicted) {
		p.log.Warn("engine gives no sign of life; what waits for it goes elsewhere",
			"engine", target.Engine.Name, "model", row.Model, "silent", s.streams, "in_flight", requests)
		p.passOver(row, i, protect.Stalled, now)
		own.engine.pulse.stall(now, s.counted)
		return
	}
	patience := p.patience(target.Predicted + s.beyond)
	if s.whole <= patience {
		own.seen.doubt = doubt{}
		return
	}
	p.doubt(row, i, s.whole, now)
	own.engine.pulse.endProbes(now, own.seen.doubt.since, patience)
}

// patience is how long an engine may be silent over work that is predicted to take
// so many seconds.
func (p *DataPlane) patience(seconds float64) time.Duration {
	return time.Duration(p.config.StallAfter) + time.Duration(stallFactor*seconds*float64(time.Second))
}

// doubt is about an engine of which nobody can tell whether it works long or does
// not work. The zero value is none.
type doubt struct {
	since int64 // nanoseconds
	until int64 // when the lease ends, nanoseconds
}

// doubt passes an engine over that finishes nothing. What waited for it goes on
// waiting: it may be at work on just that. What comes goes elsewhere, but for a few
// probes, and as long as none of them is answered the engine is passed over again
// when its lease ends. It is the sweep's to call.
func (p *DataPlane) doubt(row *rowState, i int, silent time.Duration, now int64) {
	seen := row.targets[i].seen
	if now < seen.doubt.until {
		return
	}
	if seen.doubt.since == 0 {
		seen.doubt.since = now
		p.log.Warn("engine finishes nothing; new requests go elsewhere",
			"engine", seen.engine, "model", row.Model, "silent", silent, "in_flight", seen.flight.Requests())
	}
	seen.doubt.until = now + int64(p.passOver(row, i, protect.Stalled, now))
}

// progressed takes what an engine's signals say of its progress.
func (p *DataPlane) progressed(st signals.State) {
	e := p.memory.knownEngine(st.Engine)
	if e == nil {
		return
	}
	e.inBand.learn(st)
	if st.Err == "" && st.Signal != nil && st.Signal.Progress.Known {
		e.pulse.count(st.Signal.Progress.Value, st.Signal.Time.UnixNano())
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
