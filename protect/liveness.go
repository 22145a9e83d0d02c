package protect

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// patienceFactor is how many times the predicted time of its work an engine may
	// be silent, beyond what it may be silent anyhow.
	patienceFactor = 5
	// deadFactor is how many times as long a single stream may stand still while its
	// engine works: to cut it costs a client its answer.
	deadFactor = 3
	// watchedFor is how long a reading counts, in nanoseconds.
	watchedFor = 5e9
	// paceWanted is in how many readings in a row tokens must have come before their
	// absence in the next ones says much.
	paceWanted = 3
	// gapHalf is how long the memory of a standstill that ended by itself takes to halve.
	gapHalf = 10 * time.Minute
	// markLeast is the shortest lease of a mark for want of progress: a plan that leaves
	// the engine out for less would only move traffic to and fro.
	markLeast = 10 * time.Second
	// begunFor is how long an engine that began anew is called restarting.
	begunFor = 10 * time.Second
)

// Patience is how long an engine may be silent over work that is predicted to take so
// many seconds; stallAfter is what it may be anyhow.
func Patience(stallAfter time.Duration, seconds float64) time.Duration {
	return stallAfter + ofPredicted(seconds)
}

// StreamPatience is how long one stream may stand still while its engine works.
func StreamPatience(stallAfter time.Duration, seconds float64) time.Duration {
	return deadFactor * Patience(stallAfter, seconds)
}

func ofPredicted(seconds float64) time.Duration {
	return time.Duration(patienceFactor * min(seconds, 1e6) * float64(time.Second))
}

// Counts is what a reading of an engine says of its progress. What it does not say is
// NaN.
type Counts struct {
	Incarnation uint64  // another one is another run of the engine; 0 is not known
	Running     float64 // requests
	Waiting     float64 // requests
	KVUsage     float64 // 0..1
	Steps       float64 // counter that grows with any work
	Tokens      float64 // counter that grows with every token of an answer, as it comes
	Preemptions float64 // counter
}

// Work is what one data plane has in flight at an engine, and what came of it.
type Work struct {
	Requests int64 // in flight
	Since    int64 // since when some are, nanoseconds
	Heard    int64 // when the last byte came, or the engine's counters moved; nanoseconds
	Answered int64 // when the last byte came, nanoseconds
	// Streams is how long a first token has been owed without any sign of life; Whole
	// how long whole answers have, which may take long. Those that gave up count.
	Streams, Whole time.Duration
	// Unserved is how long first tokens have been owed without a byte of any answer,
	// whatever the counters do.
	Unserved time.Duration
	// Predicted is the predicted time of a usual request; Prompts and Outputs by how
	// much the work in flight may take longer. Seconds.
	Predicted, Prompts, Outputs float64
}

// Verdict is what the evidence says of an engine.
type Verdict struct {
	State  State
	Reason string
	Silent time.Duration
	Own    bool // see Mark
	// Spare says that no request need be kept away: those that wait are given up, and the
	// next answer shows that the engine is well. Without one it is not said again.
	Spare bool
}

// Liveness is the evidence on one engine and the state it was found in. Every state
// but Live is a lease. The zero value is a live engine of which nothing is known. Safe
// for concurrent use.
type Liveness struct {
	suspect atomic.Bool // there is something that an answer would clear

	mu      sync.Mutex
	read    int64 // when last was, nanoseconds; 0: never
	last    Counts
	moved   int64 // when anything did, but for preemptions
	yielded int64 // when a token came
	churned int64 // when it preempted
	pace    int   // readings in a row with tokens, at most paceWanted
	still   int64 // since when no token came though something ran, 0: one did; nanoseconds
	gap     time.Duration
	gapAt   int64 // when it ended
	refusal refusal
	lease   time.Duration // the last one of a mark by refusal; 0 after an answer
	mark    Mark
}

// Read takes a reading at time now. It tells whether anything moved, which is a sign of
// life, and whether it is the engine's first since it began anew: then nothing that
// was held against the old run is left here.
func (l *Liveness) Read(c Counts, now int64) (moved, anew bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.read == 0
	anew = !first && c.Incarnation != 0 && l.last.Incarnation != 0 && c.Incarnation != l.last.Incarnation
	if first || anew {
		l.forget()
		l.moved, l.yielded = now, now
		if anew {
			l.mark = Mark{State: Restarting, Reason: "it began anew", Since: now, Until: now + int64(begunFor)}
		}
		l.last, l.read = c, now
		return true, anew
	}
	tokens := differs(c.Tokens, l.last.Tokens)
	moved = tokens || differs(c.Steps, l.last.Steps) || differs(c.KVUsage, l.last.KVUsage) || differs(c.Running, l.last.Running)
	if differs(c.Preemptions, l.last.Preemptions) {
		l.churned = now
	}
	l.keepPace(tokens, c.Running, now)
	if moved {
		l.moved = now
		if l.mark.State == BlackHole {
			l.mark = Mark{} // it works again; whether it answers, probes find out
		}
	}
	l.last, l.read, l.refusal.unready = c, now, 0
	l.refusal.findRoom(&c)
	return moved, false
}

// differs tells of two counts that are both known.
func differs(a, b float64) bool { return a != b && !math.IsNaN(a) && !math.IsNaN(b) }

// keepPace learns from a reading how regularly tokens come while something runs.
func (l *Liveness) keepPace(tokens bool, running float64, now int64) {
	switch {
	case tokens:
		if l.still != 0 {
			l.gap, l.gapAt = max(l.longestGap(now), time.Duration(now-l.still)), now
		}
		if l.read > l.yielded { // a reading without tokens came between
			l.pace = 0
		}
		l.pace, l.yielded, l.still = min(l.pace+1, paceWanted), now, 0
	case !(running > 0):
		l.still = 0 // an idle engine does not stand still
	case l.still == 0 && l.last.Running > 0:
		l.still = l.read
	case l.still == 0:
		l.still = now
	}
}

// longestGap is the longest standstill that ended by itself, as far as it still counts.
func (l *Liveness) longestGap(now int64) time.Duration {
	return time.Duration(float64(l.gap) * math.Exp2(-float64(now-l.gapAt)/float64(gapHalf)))
}

// forget drops all evidence.
func (l *Liveness) forget() {
	l.churned, l.pace, l.still, l.gap, l.lease = 0, 0, 0, 0, 0
	l.refusal, l.mark = refusal{}, Mark{}
	l.suspect.Store(false)
}

// Counted tells whether the engine's counters are known at time now.
func (l *Liveness) Counted(now int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counted(now)
}

func (l *Liveness) counted(now int64) bool {
	return l.read != 0 && now-l.read < watchedFor && !math.IsNaN(l.last.Steps)
}

// Judge says what the evidence at time now comes to; stallAfter is how long an engine
// with work may be silent anyhow. It changes nothing: Found does.
func (l *Liveness) Judge(w *Work, stallAfter time.Duration, now int64) Verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.Requests <= 0 {
		return Verdict{} // an idle engine owes no sign of life
	}
	usual := Patience(stallAfter, w.Predicted+w.Prompts)
	if !l.counted(now) {
		switch {
		case w.Streams > usual:
			return Verdict{State: BlackHole, Reason: "it owes first tokens and gives no byte", Silent: w.Streams, Own: true}
		case w.Whole > Patience(stallAfter, w.Predicted+w.Prompts+w.Outputs):
			return Verdict{State: Doubtful, Reason: "it finishes nothing", Silent: w.Whole, Own: true}
		}
		return Verdict{}
	}
	silent := max(w.Streams, time.Duration(now-max(w.Heard, w.Since)))
	if silent > l.patience(w, stallAfter, usual, now) {
		switch {
		case l.churns(now):
			return Verdict{State: Livelock, Reason: "it preempts and gives no token", Silent: silent}
		case l.last.Running+l.last.Waiting == 0 && w.Streams > usual:
			return Verdict{DeadStreams, "it says that it has no work, and owes first tokens here", silent, true, l.mark.State == Live}
		}
		return Verdict{State: BlackHole, Reason: "it has work and its counters stand still", Silent: silent}
	}
	return l.fruitless(w, usual, now)
}

// patience is how long the counters of an engine with work may stand still. It is short
// where all the work is known and tokens came with every reading: what stands still
// then prefills no more than what is counted here.
func (l *Liveness) patience(w *Work, stallAfter, usual time.Duration, now int64) time.Duration {
	inside := l.last.Running + l.last.Waiting
	known := inside > 0 && inside <= float64(w.Requests)
	if l.pace < paceWanted || !known {
		return usual
	}
	short := max(stallAfter/2, ofPredicted(w.Predicted)) + ofPredicted(w.Prompts)
	return min(max(short, 2*l.longestGap(now)), usual)
}

func (l *Liveness) churns(now int64) bool { return l.churned != 0 && now-l.churned < watchedFor }

// fruitless looks at an engine that moves.
func (l *Liveness) fruitless(w *Work, usual time.Duration, now int64) Verdict {
	moves := now-l.moved < watchedFor
	if !math.IsNaN(l.last.Tokens) && l.last.Running > 0 {
		barren := time.Duration(now - max(l.yielded, w.Answered, w.Since))
		switch {
		case l.churns(now) && barren > usual:
			return Verdict{State: Livelock, Reason: "it preempts and gives no token", Silent: barren}
		case moves && barren > deadFactor*usual && l.last.Running+l.last.Waiting <= float64(w.Requests):
			return Verdict{State: Livelock, Reason: "it makes steps and gives no token", Silent: barren}
		}
	}
	if moves && l.last.Waiting == 0 && w.Unserved > deadFactor*usual {
		return Verdict{State: DeadStreams, Reason: "it works, and nothing of it arrives here", Silent: w.Unserved, Own: true}
	}
	return Verdict{}
}

// Found marks the engine with a verdict at time now, for as long as requests pass it
// over, but not for less than ten seconds.
func (l *Liveness) Found(v Verdict, now int64, lease time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.suspect.Store(true)
	l.mark = Mark{v.State, v.Reason, now, now + int64(max(lease, markLeast)), v.Own}
}

// Mark is the state that the engine is in at time now; Live when none is in force.
func (l *Liveness) Mark(now int64) Mark {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.mark.In(now) {
		return Mark{}
	}
	return l.mark
}

// Answered clears what was held against the engine when the request that it has
// answered was sent. It is cheap while there is nothing.
func (l *Liveness) Answered(sent int64) {
	if !l.suspect.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if sent < l.mark.Since || sent < l.refusal.since {
		return // it says how the engine was before
	}
	l.lease, l.mark, l.refusal = 0, Mark{}, refusal{}
	l.suspect.Store(false)
}

// Proven tells whether the engine has answered since it was last found unfit to serve,
// or never was.
func (l *Liveness) Proven() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mark.State == Live || l.mark.State == Restarting
}
