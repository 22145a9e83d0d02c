package proxy

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/wardrop-lb/wardrop/protect"
	"github.com/wardrop-lb/wardrop/route"
)

// maxRetries bounds the retries of a request that an engine may have seen: one that
// kills engines must not get to many. An engine that could not be reached has seen
// nothing and does not count; a hedge does.
const maxRetries = 1

// maxRetryAfter bounds what an engine may ask for in Retry-After.
const maxRetryAfter = 30 * time.Second

// errFirstByte is why an attempt ends that waited too long for its first byte.
var errFirstByte = errors.New("the engine took too long to begin its answer")

// chunkSize is what is read of an answer at once. Not a power of two: the buffers of
// many streams, of which each token uses the beginning, would share a few sets of
// the processor's caches.
const chunkSize = 13568

var chunks = sync.Pool{New: func() any { b := make([]byte, chunkSize); return &b }}

// forward sends the request to the engines of its pick, one after the other,
// until one begins to answer.
func (p *DataPlane) forward(q *request) {
	target, charge, retries := q.pick.At(0), q.charge, 0
	q.charge = route.Charge{}
	for {
		var a *attempt
		if p.config.HedgeAfter > 0 && retries == 0 {
			var both bool
			if a, both = p.hedged(q, target, charge); both {
				retries++
			}
		} else {
			a = p.attempt(q.ctx, q, target, charge, time.Now())
		}
		q.note(a)
		if a.outcome == protect.Success {
			p.finish(q, a)
			return
		}
		if q.ctx.Err() != nil {
			p.end(q, a)
			p.refuse(q.w, q, q.late())
			return
		}
		p.judge(q, a)
		next, c, ok := p.next(q, a)
		if !ok || !p.mayRetry(q, a, &retries) {
			c.Release()
			p.fail(q, a)
			return
		}
		target, charge = next, c
		p.end(q, a)
		p.metrics.retries.WithLabelValues(outcomeNames[a.outcome]).Inc()
	}
}

// next charges the engine to try after a failed attempt. One that is alone gets
// another connection when the last was cut before it answered: it may have been
// an idle one that the engine was just closing.
func (p *DataPlane) next(q *request, a *attempt) (int, route.Charge, bool) {
	now := time.Now().UnixNano()
	target, c, ok := q.row.TakeNext(&q.pick, q.work, now)
	if !ok && q.pick.Len() == 1 && a.outcome == protect.Failure && a.resp == nil && !errors.Is(a.err, errFirstByte) {
		return a.target, q.row.Targets()[a.target].Flight.Charge(q.work, now), true
	}
	return target, c, ok
}

// late says why a request ended before any engine answered: its client left or
// its time was up.
func (q *request) late() *refusal {
	if q.r.Context().Err() != nil {
		return clientClosed()
	}
	return refuse(http.StatusGatewayTimeout, "server_error", codeLate, "no engine of %q answered in the time that the request has", q.row.Model)
}

// mayRetry decides whether a failed attempt is followed by another. One that
// reached no engine adds work to none, so it needs no budget: the pick's length
// bounds it.
func (p *DataPlane) mayRetry(q *request, a *attempt, retries *int) bool {
	if a.outcome == protect.Unreachable {
		return true
	}
	*retries++
	return *retries <= maxRetries && q.row.model.budget.Spend(q.row.Utilisation)
}

// attempt is one try at one engine.
type attempt struct {
	target int
	stream bool
	asked  bool // to say how the engine is in the answer, by us alone
	place  int  // among those that wait for the engine, or whose answers are under way
	begun  bool // its answer is under way
	// reads is odd while the answer's next piece is waited for. seenReads is what the sweep
	// saw of it, and seenAt when the engine last was not waited for, in nanoseconds.
	reads     atomic.Uint32
	seenReads uint32
	seenAt    int64
	// longPrompt and longOutput are by how much its parts may take longer than all of
	// a usual request, in seconds.
	longPrompt, longOutput float64
	sent                   time.Time
	waited                 time.Duration // to the first byte, or to the failure
	charge                 route.Charge
	cancel                 context.CancelCauseFunc
	resp                   *http.Response // nil when err is set
	first                  []byte         // the body's first bytes
	ended                  error          // what came with them, io.EOF when they are all
	late                   *lateRead      // what of the body is still being read when the first bytes pass on
	inBand                 string         // how the answer said that the engine has given up; err is nil
	chunk                  *[]byte
	err                    error
	outcome                protect.Outcome
	span                   trace.Span // nil without a tracer
}

// attempt sends the request to one engine and waits until the answer promises
// something. The engine was charged, at a time that counts as the one when it was sent, and is until end.
func (p *DataPlane) attempt(ctx context.Context, q *request, target int, charge route.Charge, now time.Time) *attempt {
	a := &attempt{target: target, sent: now, charge: charge, stream: q.fields.Stream}
	t := &q.row.targets[target]
	t.seen.attempts.add()
	t.seen.spent.begin(a.sent)
	a.longPrompt, a.longOutput = q.long(q.row.Targets()[target].Predicted)
	ctx, a.cancel = context.WithCancelCause(ctx)
	t.engine.pulse.wait(a)
	defer func() { t.engine.pulse.leave(a, a.sent.Add(a.waited).UnixNano()) }()
	began := func() {}
	if limit := time.Duration(p.config.FirstByteTimeout); limit > 0 {
		timer := time.AfterFunc(limit, func() { a.cancel(errFirstByte) })
		defer timer.Stop()
		began = func() { timer.Stop() }
	}
	out := outbound(ctx, q, t)
	a.span = p.tracing.attempt(ctx, q, target, out.Header)
	asks := !a.stream && t.engine.inBand.ask(a.sent.UnixNano())
	if asks && len(out.Header[inBandFormat]) == 0 {
		out.Header[inBandFormat], a.asked = inBandText, true
	}
	a.resp, a.err = t.transport.RoundTrip(out) //nolint:bodyclose // end does
	if a.err == nil {
		if asks {
			p.takeInBand(t.seen.engine, a.resp.Header)
		}
		switch a.outcome = outcomeOfStatus(a.resp.StatusCode); {
		case a.outcome == protect.Success:
			a.readFirst(&t.engine.pulse, began)
		case a.resp.StatusCode == http.StatusServiceUnavailable && a.resp.ContentLength > 0:
			a.readFirst(&t.engine.pulse, began) // it may say why
			a.err = nil
		}
	}
	a.waited = time.Since(a.sent)
	if a.err != nil {
		a.outcome = outcomeOf(ctx, a.err)
		if cause := context.Cause(ctx); cause != nil {
			a.err = cause
		}
	} else {
		t.engine.pulse.heard(a.sent.Add(a.waited).UnixNano())
	}
	return a
}

// end ends an attempt: the engine's work in flight is released, what is left of
// the answer dropped, and the next in the queue gets its turn.
func (p *DataPlane) end(q *request, a *attempt) {
	a.endSpan()
	a.charge.Release()
	q.row.targets[a.target].engine.pulse.gone(a)
	seen := q.row.targets[a.target].seen
	seen.spent.end(a.sent, time.Now())
	seen.ended.Add(1)
	a.cancel(nil)
	if a.resp != nil {
		_ = a.resp.Body.Close()
	}
	if a.late != nil {
		<-a.late.done // it reads into the chunk
	}
	if a.chunk != nil {
		chunks.Put(a.chunk)
		a.chunk = nil
	}
	q.row.model.queue.wake()
}

// note adds an attempt to the decision.
func (q *request) note(a *attempt) {
	x := q.tried(a.target, a.sent)
	x.Outcome, x.Error = a.ending(), a.trouble()
	if a.outcome == protect.Success && a.err == nil {
		x.FirstByte = a.waited.Seconds()
		q.record.slow = q.record.queued+x.FirstByte > max(leastSlow, slowFactor*x.Expected)
	} else {
		x.FailedAfter = a.waited.Seconds()
	}
	q.record.attempt(x)
}

// broke notes that an answer failed which had begun.
func (q *request) broke(a *attempt) {
	x := q.record.last()
	x.Outcome, x.Error, x.FailedAfter = a.ending(), a.trouble(), time.Since(a.sent).Seconds()
}

// What attempts come to beside protect's outcomes, which are about engines.
const (
	outrun   = "outrun"   // the other of a hedge was faster
	canceled = "canceled" // the client left, the time was up, or the other of a hedge was faster
	notHere  = "not_here" // the engine does not hold the stored response
)

// ending is how an attempt came out.
func (a *attempt) ending() string {
	if errors.Is(a.err, context.Canceled) || errors.Is(a.err, context.DeadlineExceeded) {
		return canceled
	}
	return outcomeNames[a.outcome]
}

// maxTrouble bounds what is kept of what went wrong, in bytes: engines may write much.
const maxTrouble = 300

// trouble is what went wrong with an attempt; empty if nothing did.
func (a *attempt) trouble() string {
	switch {
	case a.err != nil:
		return brief(a.err.Error(), maxTrouble)
	case a.inBand != "":
		return inAnswer + a.inBand
	case a.outcome != protect.Success:
		return "status " + strconv.Itoa(a.resp.StatusCode)
	}
	return ""
}

// tried is an attempt as it is recorded before anything has come of it.
func (q *request) tried(target int, at time.Time) Attempt {
	t, typical := &q.row.Targets()[target], &q.row.model.typical
	x := Attempt{Engine: t.Engine.Name, After: at.Sub(q.arrived).Seconds(), Predicted: t.Predicted}
	if q.fields.Stream {
		x.Expected = typical.First(q.size() * t.Predicted)
	} else {
		x.Expected = typical.Of(q.size() * t.Predicted) // its first byte comes with its last
	}
	return x
}

// size is how many times as large as a usual request of the model this one is, at least 1: a
// prediction is for a usual one, and a larger one may take as much longer.
func (q *request) size() float64 {
	return max(1, float64(q.tokens)/max(q.row.model.usual.load(), 1))
}

// judge records how a failed attempt ended and passes the engine over if that
// was once too often, or for as long as the engine itself asks for.
func (p *DataPlane) judge(q *request, a *attempt) {
	t := &q.row.targets[a.target]
	t.seen.failures.add()
	p.metrics.attempts.WithLabelValues(t.seen.engine, t.seen.model, outcomeNames[a.outcome]).Inc()
	now := time.Now().UnixNano()
	if a.outcome == protect.Backpressure {
		if !p.refused(a, t, now) {
			t.engine.outlier.Observe(a.outcome, now)
		}
		if wait := retryAfter(a.resp); wait > 0 {
			q.row.PassOver(a.target, now, now+int64(wait))
		}
		return
	}
	if errors.Is(a.err, errStalled) || errors.Is(a.err, errDeadStream) {
		return // the sweep that found it has judged; a dead stream says nothing about the engine
	}
	lease := p.passOver(q.row, a.target, a.outcome, now)
	if a.outcome == protect.Unreachable {
		t.engine.life.Away(now, lease)
	}
}

// passOver records a failure and passes the engine over if that was once too
// often, for as long as it returns.
func (p *DataPlane) passOver(row *rowState, target int, outcome protect.Outcome, now int64) (lease time.Duration) {
	t := &row.targets[target]
	lease = t.engine.outlier.Observe(outcome, now)
	if lease > 0 && row.PassOver(target, now, now+int64(lease)) {
		p.log.Debug("engine passed over", "engine", t.seen.engine, "model", t.seen.model, "for", lease, "outcome", outcomeNames[outcome])
	}
	return lease
}

// retryAfter reads how long an engine asks to be left alone; dates are not looked
// at, for clocks differ.
func retryAfter(r *http.Response) time.Duration {
	if r == nil {
		return 0
	}
	s, err := strconv.ParseFloat(r.Header.Get("Retry-After"), 64)
	if err != nil || !(s > 0) {
		return 0
	}
	return min(time.Duration(min(s, 1e6)*float64(time.Second)), maxRetryAfter)
}

// fail gives the client the last engine's answer, or says why there is none.
func (p *DataPlane) fail(q *request, a *attempt) {
	if a.resp != nil && a.err == nil {
		p.relay(q, a)
		return
	}
	p.end(q, a)
	name := q.row.targets[a.target].seen.engine
	if a.outcome == protect.Unreachable {
		e := refuse(http.StatusServiceUnavailable, "server_error", "no_engine", "no engine of %q can be reached: %s: %v", q.row.Model, name, a.err)
		e.retryAfter = shedRetryAfter
		p.refuse(q.w, q, e)
		return
	}
	p.refuse(q.w, q, refuse(http.StatusBadGateway, "server_error", codeFailed, "engine %s failed before it answered: %v", name, a.err))
}

// finish relays a good answer and records what it says about the engine.
func (p *DataPlane) finish(q *request, a *attempt) {
	t, target := &q.row.targets[a.target], &q.row.Targets()[a.target]
	target.Flight.Recovered(a.sent.UnixNano())
	t.engine.life.Answered(a.sent.UnixNano())
	t.seen.firstByte.observe(a.waited)
	t.seen.arrived.Observe(a.sent.Add(a.waited).Sub(q.arrived).Seconds())
	predicted, typical := q.size()*target.Predicted, &q.row.model.typical
	typical.Observe(a.waited.Seconds(), predicted)
	t.engine.outlier.ObserveFirstByte(a.waited.Seconds(), typical.Of(predicted), time.Now().UnixNano())
	if q.endpoint.stores {
		if id := responseID(a.first); id != "" {
			p.stored.put(id, t.seen.model, t.seen.engine)
		}
	}
	p.relay(q, a)
}

var outcomeNames = [...]string{
	protect.Success: "success", protect.Backpressure: "backpressure",
	protect.Failure: "failure", protect.Unreachable: "unreachable", protect.Stalled: "stalled",
}

// outcomeOf says what a broken exchange says about the engine.
func outcomeOf(ctx context.Context, err error) protect.Outcome {
	var op *net.OpError
	switch {
	case errors.Is(context.Cause(ctx), errStalled), errors.Is(context.Cause(ctx), errDeadStream):
		return protect.Stalled
	case errors.As(err, &op) && (op.Op == "dial" || op.Op == opAlert):
		return protect.Unreachable
	}
	return protect.Failure
}

// outcomeOfStatus says what an answer's status says about the engine: client
// errors are neutral, 429 and 503 are backpressure. A 500 may have cost the engine
// something, but those that drain or have just died answer so too, having done nothing.
func outcomeOfStatus(status int) protect.Outcome {
	switch status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return protect.Backpressure
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusGatewayTimeout:
		return protect.Failure
	}
	return protect.Success
}
