package proxy

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardrop-lb/wardrop/protect"
)

// errStalled ends the waiting for an engine that accepts and never answers.
var errStalled = errors.New("the engine gives no sign of life")

// errDeadStream ends a stream that stands still while its engine works.
var errDeadStream = errors.New("the stream stands still while the engine works")

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
	w.push(a)
}

func (w *waiters) push(a *attempt) {
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
	w.pull(a)
}

func (w *waiters) pull(a *attempt) {
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
func (w *waiters) beyond() (prompts, output float64) {
	for _, a := range w.list {
		prompts += a.longPrompt
		output = max(output, a.longOutput)
	}
	return prompts, output
}

// pulse tells whether an engine makes progress, who waits for its first byte and
// whose answer is under way. Any byte of any answer counts, and so does what the
// engine's own counters say. Safe for concurrent use.
type pulse struct {
	last  atomic.Int64 // nanoseconds of the last sign of life
	bytes atomic.Int64 // nanoseconds of the last one that was a byte of an answer

	mu      sync.Mutex
	streams waiters // for a first token: silence means something
	whole   waiters // for a whole answer, which may take long
	begun   waiters // answers under way; the list alone is used
	served  int64   // when the newest request was sent that got a first byte
}

// beat notes a sign of life, heard notes a byte.
func (p *pulse) beat(now int64) { p.last.Store(now) }

func (p *pulse) heard(now int64) {
	p.bytes.Store(now)
	p.beat(now)
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

// leave takes an attempt out at time now. One whose answer begins is watched until
// gone is called.
func (p *pulse) leave(a *attempt, now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.among(a).remove(a, now, p.last.Load())
	if a.err == nil && a.outcome == protect.Success {
		p.served = max(p.served, a.sent.UnixNano())
		a.begun = true
		a.seenAt = now
		p.begun.push(a)
	}
}

// gone takes out an attempt whose answer is over, or never began.
func (p *pulse) gone(a *attempt) {
	if !a.begun {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a.begun = false
	p.begun.pull(a)
}

// listen looks at time now which answers under way have moved. A write that a slow
// client holds up is no silence of the engine's.
func (p *pulse) listen(now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.begun.list {
		reads := a.reads.Load()
		if reads != a.seenReads {
			p.heard(now)
		}
		if reads != a.seenReads || reads%2 == 0 {
			a.seenReads, a.seenAt = reads, now
		}
	}
}

// lost tells of an answer that stands still although its engine has gone on for long: it
// owes the next piece while anything moves, or the first while requests that were sent long
// after have got theirs. It says nothing about the engine any more.
func (p *pulse) lost(a *attempt, patience time.Duration) bool {
	if a.begun {
		return p.last.Load()-a.seenAt > int64(patience)/2
	}
	return a.stream && p.served-a.sent.UnixNano() > int64(patience)/2
}

// work says what is in flight at time now, given what is predicted for a usual request,
// when the first request in flight was charged, how many are, and whether the engine's
// counters are read. Whole answers owe no sign while counters are. What is lost does not
// count.
func (p *pulse) work(now, since, requests int64, predicted float64, counted bool, stallAfter time.Duration) protect.Work {
	last, bytes := p.last.Load(), p.bytes.Load()
	p.mu.Lock()
	defer p.mu.Unlock()
	w := protect.Work{Requests: requests, Since: since, Heard: last, Answered: bytes, Predicted: predicted}
	ofStreams, _ := p.streams.beyond()
	ofWhole, outputs := p.whole.beyond()
	w.Prompts, w.Outputs = ofStreams+ofWhole, outputs
	if !counted {
		w.Whole = p.whole.silence(now, last)
	}
	patience := protect.Patience(stallAfter, predicted+w.Prompts)
	lost, first, owed := p.sift(patience)
	if lost == 0 {
		w.Streams = p.streams.silence(now, last)
	} else {
		w.Requests -= lost
		w.Since = max(since, min(first, now))
		w.Streams = time.Duration(now - max(last, min(owed, now)))
	}
	if owed < never {
		w.Unserved = time.Duration(now - max(bytes, owed))
	}
	return w
}

// never is later than all times, in nanoseconds.
const never = math.MaxInt64

// sift counts the answers that are lost, and tells when the first of all others was sent,
// and the first of those that owe a stream's first token; never if there is none.
func (p *pulse) sift(patience time.Duration) (lost, first, owed int64) {
	first, owed = never, never
	for _, list := range [...][]*attempt{p.streams.list, p.whole.list, p.begun.list} {
		for _, a := range list {
			if p.lost(a, patience) {
				lost++
				continue
			}
			sent := a.sent.UnixNano()
			first = min(first, sent)
			if a.stream && !a.begun {
				owed = min(owed, sent)
			}
		}
	}
	return lost, first, owed
}

// stall ends the waits at time now: those of streams, and all if the engine's own
// counters say that it stands still.
func (p *pulse) stall(now int64, counted bool) {
	p.heard(now)
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

// endDead ends what is lost at time now and has stood still for three times as long as an
// engine may. It gives how many these are.
func (p *pulse) endDead(now int64, stallAfter time.Duration, w *protect.Work) (ended int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, list := range [...][]*attempt{p.streams.list, p.begun.list} {
		for _, a := range list {
			seconds, still := w.Predicted+w.Prompts, a.sent.UnixNano()
			if a.begun {
				seconds, still = seconds+a.longOutput, a.seenAt
			}
			if p.lost(a, protect.Patience(stallAfter, seconds)) && now-still > int64(protect.StreamPatience(stallAfter, seconds)) {
				a.cancel(errDeadStream)
				ended++
			}
		}
	}
	return ended
}
