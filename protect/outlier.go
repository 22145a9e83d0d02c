package protect

import (
	"math"
	"sync"
	"time"
)

// Outcome is how one attempt at an engine ended, as far as it says something
// about the engine.
type Outcome uint8

const (
	// Success is an answer, 4xx included: client errors are neutral.
	Success Outcome = iota
	// Backpressure is a 429 or 503: the engine lives and is full.
	Backpressure
	// Failure is a broken connection, a 5xx or an aborted stream.
	Failure
	// Unreachable is a connection that could not be made: nothing was sent.
	Unreachable
	// Stalled is an engine that accepts requests and gives no sign of life.
	Stalled
)

const (
	failuresToPassOver = 3
	leaseFirst         = time.Second
	leaseMax           = 16 * time.Second
	penaltyStep        = 0.5 // seconds a failure adds
	penaltyStalled     = 5   // seconds a stall adds
	penaltyMax         = 10  // seconds
	penaltyHalfLife    = 5 * time.Second
	slowFactor         = 3.0 // times the prediction before slowness counts
	slowShare          = 0.01
)

// Outlier keeps the evidence against one engine. A penalty is seconds added to
// the engine's latency: it grows with evidence and halves every five seconds, so
// that a mark is always a lease. Safe for concurrent use.
type Outlier struct {
	mu          sync.Mutex
	consecutive int
	lease       time.Duration
	penalty     float64
	at          int64 // when penalty was last brought up to date
}

// Observe records how an attempt ended at time now. It returns how long the
// engine is to be passed over, 0 for not at all: at once when it is unreachable
// or stalled, after three failures in a row otherwise, twice as long each time it goes on.
func (o *Outlier) Observe(outcome Outcome, now int64) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.decay(now)
	switch outcome {
	case Success:
		o.consecutive, o.lease = 0, 0
		return 0
	case Backpressure:
		o.penalty = min(o.penalty+penaltyStep/5, penaltyMax)
		return 0
	case Unreachable, Stalled:
		o.consecutive = max(o.consecutive, failuresToPassOver-1)
	}
	o.consecutive++
	step := penaltyStep
	switch outcome {
	case Stalled:
		step = penaltyStalled
	case Unreachable:
		step = 0 // it is away, not bad: once it is back it may serve at once
	}
	o.penalty = min(o.penalty+step, penaltyMax)
	if o.consecutive < failuresToPassOver {
		return 0
	}
	o.lease = min(max(2*o.lease, leaseFirst), leaseMax)
	return o.lease
}

// Forget drops the evidence: the engine began anew.
func (o *Outlier) Forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.consecutive, o.lease, o.penalty = 0, 0, 0
}

// ObserveFirstByte records the seconds to the first byte against the plan's
// prediction for the whole request: slower than three times that counts.
func (o *Outlier) ObserveFirstByte(seconds, predicted float64, now int64) {
	if excess := seconds - slowFactor*predicted; excess > 0 && predicted > 0 {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.decay(now)
		o.penalty = min(o.penalty+slowShare*excess, penaltyMax)
	}
}

// Penalty is the engine's penalty in seconds; below a millisecond it is none.
func (o *Outlier) Penalty(now int64) float64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.decay(now)
	return o.penalty
}

func (o *Outlier) decay(now int64) {
	if o.penalty > 0 && now > o.at {
		o.penalty *= math.Exp2(-float64(now-o.at) / float64(penaltyHalfLife))
		if o.penalty < 1e-3 {
			o.penalty = 0
		}
	}
	o.at = now
}
