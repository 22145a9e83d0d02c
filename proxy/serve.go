package proxy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.opentelemetry.io/otel/trace"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/protect"
	"github.com/wardrop-lb/wardrop/route"
)

const (
	// bytesPerToken turns a body's size into expected prompt tokens.
	bytesPerToken = 4
	// usualOutput is the output expected of a request that sets no limit, in tokens.
	usualOutput = 256
	// shedRetryAfter is what a refused client is told to wait: about a tick.
	shedRetryAfter = 2
	// statusClientClosed is what nginx calls a client that went away; it is
	// counted, never read by anyone.
	statusClientClosed = 499
)

// request is one request on its way.
type request struct {
	w        http.ResponseWriter
	r        *http.Request
	ctx      context.Context // the client's, with the request's deadline
	endpoint endpoint
	upload   upload
	body     *bodyBuffer
	table    *table
	row      *rowState
	pick     route.Pick
	charge   route.Charge // of the pick's first engine, until the first attempt takes it over
	tokens   int64        // expected, prompt and answer
	work     int64        // tokens, and as many again as a usual request has
	priority fleet.Priority
	lot      lot
	arrived  time.Time
	fields   Fields
	span     trace.Span // nil without a tracer
	record   record
}

// serve answers a request that names its model in the body.
func (p *DataPlane) serve(w http.ResponseWriter, r *http.Request, e endpoint) {
	q := p.newRequest(w, r)
	defer p.done(q)
	q.endpoint, q.record.path = e, e.path
	if err := p.readBody(q); err != nil {
		p.refuse(w, q, p.bodyError(r, err))
		return
	}
	refusal, cancel := p.admit(q)
	defer cancel()
	if refusal != nil {
		p.refuse(w, q, refusal)
		return
	}
	p.forward(q)
}

var requests = sync.Pool{New: func() any { return new(request) }}

func (p *DataPlane) newRequest(w http.ResponseWriter, r *http.Request) *request {
	q := requests.Get().(*request)
	prefix := q.fields.Prefix
	prefix.Reset()
	*q = request{w: w, r: r, ctx: r.Context(), arrived: time.Now(), priority: fleet.Standard, fields: Fields{Prefix: prefix}}
	q.record.sequence, q.record.client = p.records.next.Add(1), r.RemoteAddr
	p.tracing.begin(q)
	return q
}

// done remembers the decision and gives back what the request held.
func (p *DataPlane) done(q *request) {
	q.charge.Release()
	p.remember(q)
	if q.body != nil {
		q.body.release()
	}
	if p.config.HedgeAfter == 0 { // else the loser of a hedge may still use it
		requests.Put(q)
	}
}

// remember puts the decision into the ring.
func (p *DataPlane) remember(q *request) {
	d := &q.record
	d.arrived, d.priority, d.work = q.arrived.UnixNano(), q.priority, q.work
	d.model, d.seconds = q.fields.Model, time.Since(q.arrived).Seconds()
	d.spilled, d.passed, d.remembered = uint16(q.pick.Spilled), uint16(q.pick.Passed), q.pick.Remembered
	if q.table != nil {
		d.epoch, d.version, d.aged, d.table = q.table.router.Snapshot.Epoch, q.table.router.Snapshot.Version, q.table.aged, q.table.number
	}
	if q.row != nil {
		d.names, d.utilisation, d.shedPart = q.row.Names(), q.row.Utilisation, q.row.Shed[q.priority]
	}
	p.records.put(d)
	if q.span != nil {
		p.tracing.end(q, p.records.id(d.sequence), p.cluster)
	}
}

// readBody reads a request's body within the bounds of the configuration.
func (p *DataPlane) readBody(q *request) (err error) {
	q.upload.w = q.w
	q.body, err = p.uploads.read(&q.upload, q.r, int64(p.config.MaxBody), q.arrived)
	if errors.Is(err, errSlow) {
		q.w.Header().Set("Connection", "close") // what is still to come would be taken for a request
	}
	return err
}

// bodyError says why a body could not be read. A client that went away gets no
// answer that it could read, but the connection must still be closed by one.
func (p *DataPlane) bodyError(r *http.Request, err error) *refusal {
	if errors.Is(err, errTooLarge) {
		return refuse(http.StatusRequestEntityTooLarge, "invalid_request_error", "body_too_large",
			"the body is larger than %d bytes, the limit of this proxy", p.config.MaxBody)
	}
	if errors.Is(err, errSlow) {
		return refuse(http.StatusRequestTimeout, "invalid_request_error", "slow_body",
			"the body came too slowly: less than %d bytes in %v", uploadLeast, time.Duration(p.config.UploadTimeout))
	}
	if r.Context().Err() != nil {
		return clientClosed()
	}
	return badRequest("unreadable_body", "the body could not be read: %v", err)
}

func clientClosed() *refusal {
	return refuse(statusClientClosed, "invalid_request_error", codeGone, "the client went away")
}

func noSnapshot() *refusal {
	return refuse(http.StatusServiceUnavailable, "server_error", "no_snapshot",
		"this data plane has no routing weights yet: it waits for the control plane")
}

// admit decides where the request may go: it sniffs the body, finds the row,
// sheds if the plan says so, picks, and waits for room if there is none. cancel
// must be called when the request has ended.
func (p *DataPlane) admit(q *request) (_ *refusal, cancel context.CancelFunc) {
	cancel = func() {}
	if q.table = p.table.Load(); q.table == nil {
		return noSnapshot(), cancel
	}
	if e := q.sniff(); e != nil {
		return e, cancel
	}
	if e := p.resolve(q); e != nil {
		return e, cancel
	}
	if f := &q.row.model.demand[q.priority]; retried(q.r) {
		f.retries.Add(1)
	} else {
		f.add()
	}
	if q.shed() {
		q.row.model.shed[q.priority].add()
		return q.row.refusal[q.priority], cancel
	}
	q.tokens = expectedTokens(len(q.body.data), q.fields.MaxTokens)
	q.row.model.usual.blend(float64(q.tokens))
	q.work = q.tokens + int64(q.row.model.usual.load())
	timeout, e := q.timeout(time.Duration(p.config.TotalTimeout))
	if e != nil {
		return e, cancel
	}
	if timeout > 0 {
		q.ctx, cancel = context.WithTimeout(q.ctx, timeout-time.Since(q.arrived))
	}
	q.row.model.budget.Admit(q.row.Utilisation)
	q.record.retriesLeft = q.row.model.budget.Left()
	h := q.key()
	q.pick = q.row.Decide(route.Query{Source: q.record.key, Hash: h, Work: q.work, Now: q.arrived.UnixNano(), Trace: &q.record.probes})
	p.prefer(q)
	return p.room(q), cancel
}

// sniff reads what routing needs of headers and body.
func (q *request) sniff() *refusal {
	if name := q.r.Header.Get("X-Priority"); name != "" {
		priority, err := fleet.ParsePriority(name)
		if err != nil {
			return badRequest("invalid_priority", "x-priority: %v", err)
		}
		q.priority = priority
	}
	var err error
	if q.endpoint.body == formBody {
		err = q.fields.sniffForm(q.body.data, q.r.Header.Get("Content-Type"))
	} else {
		err = q.fields.sniff(q.body.data, q)
	}
	if err != nil && !errors.Is(err, errStopped) {
		return badRequest("invalid_body", "%v", err)
	}
	return nil
}

// resolve finds the row of the model, or of one that an alias stands for.
func (p *DataPlane) resolve(q *request) *refusal {
	if q.lot == drawnShed {
		return nil // it was found already
	}
	if a := p.aliases[q.fields.Model]; a != nil {
		model := a.choose(q.keyAmong(a.name, a.shared, aliasSpread))
		if q.fields.modelAt[1] == 0 {
			return badRequest("invalid_body", "the alias %q cannot be used in this form", a.name)
		}
		body, err := q.body.rename(q.fields.modelAt, model, q.endpoint.body == jsonBody)
		if err != nil {
			return badRequest("invalid_body", "%v", err)
		}
		q.body.release()
		q.body, q.fields.Model, q.record.alias = body, model, a.name
	}
	if q.row = q.table.rows[q.fields.Model]; q.row == nil {
		return refuse(http.StatusNotFound, "invalid_request_error", "model_not_found", "the model %q does not exist", q.fields.Model)
	}
	return nil
}

// lot is whether a request is of the fraction that the plan sheds.
type lot uint8

const (
	notDrawn lot = iota
	drawnServed
	drawnShed
)

// stops ends the walk over the body of a request that is shed: nothing else in it
// matters, and to refuse must stay cheap.
func (q *request) stops(model string) bool {
	row := q.table.rows[model]
	if row == nil || row.Shed[q.priority] == 0 {
		return false
	}
	q.row = row
	return q.shed()
}

// shed draws the lot, once.
func (q *request) shed() bool {
	if q.lot == notDrawn {
		q.lot = drawnServed
		if fraction := q.row.Shed[q.priority]; fraction > 0 {
			draw := shedDraw(q.r)
			q.record.lot = protect.Lot(draw)
			if protect.Shed(draw, fraction) {
				q.lot = drawnShed
			}
		}
	}
	return q.lot == drawnShed
}

// timeout is the least of the client's and our own limit, 0 for none. A request
// that cannot make it is refused at once: it would only take others' place.
func (q *request) timeout(total time.Duration) (time.Duration, *refusal) {
	limit := total
	own, err := q.clientTimeout()
	if err != nil {
		return 0, badRequest("invalid_timeout", "x-request-timeout: %v", err)
	}
	if own > 0 && (limit == 0 || own < limit) {
		limit = own
	}
	// A smaller request than usual takes less than the plan predicts.
	expected := q.row.Fastest * min(1, float64(q.tokens)/q.row.model.usual.load())
	if limit > 0 && expected > limit.Seconds() {
		return 0, refuse(http.StatusGatewayTimeout, "server_error", codeLate,
			"no engine of %q is expected to answer within %v: the fastest takes %.3g s", q.fields.Model, limit, expected)
	}
	return limit, nil
}

// clientTimeout is how long the client says that it waits, 0 when it does not.
func (q *request) clientTimeout() (time.Duration, error) {
	if text := q.r.Header.Get("X-Request-Timeout"); text != "" {
		return parseTimeout(text)
	}
	// OpenAI's and Anthropic's clients, in seconds; some say NOT_GIVEN.
	if text := q.r.Header.Get("X-Stainless-Timeout"); text != "" {
		if own, err := parseTimeout(text); err == nil {
			return own, nil
		}
	}
	return 0, nil
}

// parseTimeout reads seconds or a duration with a unit.
func parseTimeout(text string) (time.Duration, error) {
	if s, err := strconv.ParseFloat(text, 64); err == nil {
		if s > 0 && s < 1e6 {
			return time.Duration(s * float64(time.Second)), nil
		}
	} else if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return d, nil
	}
	return 0, fmt.Errorf("%q is no time: write seconds, or 1500ms", text)
}

// expectedTokens is how many tokens a request is expected to take, prompt and answer.
func expectedTokens(bodyBytes int, maxTokens int64) int64 {
	if maxTokens == 0 {
		maxTokens = usualOutput
	}
	return int64(bodyBytes)/bytesPerToken + maxTokens
}

// key hashes the affinity key; without one the request may go anywhere.
func (q *request) key() uint64 {
	h := q.keyAmong(q.fields.Model, q.row.model.popularity.Load(), len(q.row.targets))
	q.record.hash = h
	return h
}

// keyAmong hashes the first key there is: the session's, the body's explicit one,
// the prompt's prefix at the depth where it tells traffic apart.
func (q *request) keyAmong(model string, shared *route.Popularity, engines int) uint64 {
	if session := q.r.Header.Get("X-Session-Id"); session != "" {
		q.record.key = route.KeySession
		return route.HashKey(route.KeySession, model, []byte(session))
	}
	if q.fields.KeySource != route.KeyNone {
		q.record.key = q.fields.KeySource
		return route.HashKey(q.fields.KeySource, model, q.fields.Key)
	}
	if q.endpoint.cached && q.fields.Prefix.Len() > 0 {
		h, depth := shared.Key(&q.fields.Prefix, engines, q.arrived.UnixNano())
		q.record.key, q.record.depth = route.KeyPrefix, int32(depth)
		return route.HashPrefix(model, h)
	}
	q.record.key = route.KeyNone
	return rand.Uint64()
}

// prefer sends a request that goes on from a stored response to the engine that
// holds it.
func (p *DataPlane) prefer(q *request) {
	if q.fields.Previous == "" {
		return
	}
	if at, ok := p.stored.get(q.fields.Previous); ok {
		q.row.Prefer(&q.pick, at.engine)
	}
}

// shedDraw is uniform, and the same for the same request id.
func shedDraw(r *http.Request) uint64 {
	if id := r.Header.Get("X-Request-Id"); id != "" {
		return xxhash.Sum64String(id)
	}
	return rand.Uint64()
}

// room charges the picked engine, or another of the row that has room, and waits
// for one if there is none. Then the request is refused: to add to a crowd helps
// nobody.
func (p *DataPlane) room(q *request) *refusal {
	fits := func() (ok bool) {
		q.charge, ok = q.row.Take(&q.pick, q.work, time.Now().UnixNano())
		return ok
	}
	// Those who wait were here first. But a request that is to find out whether a
	// failing engine is back takes the place of none of them: they wait for others.
	if (q.pick.Probing || q.row.model.queue.empty()) && fits() {
		return nil
	}
	w := newWaiter(q.priority, int64(len(q.body.data)))
	if !p.waiting.enter(w) {
		return p.full(q)
	}
	defer p.waiting.leave(w)
	start := time.Now()
	err := q.row.model.queue.wait(q.ctx, w, time.Duration(p.config.QueueTime), fits)
	q.record.queued = time.Since(start).Seconds()
	switch {
	case err == nil:
		return nil
	case q.ctx.Err() != nil: // the client left, or its time was up
		return q.late()
	}
	return p.full(q)
}

func (p *DataPlane) full(q *request) *refusal {
	q.row.model.shed[q.priority].add()
	e := refuse(http.StatusTooManyRequests, "rate_limit_error", "full", "every engine of %q is full", q.fields.Model)
	e.retryAfter = shedRetryAfter
	return e
}

// refuse answers a request itself; q is nil for one that never was a request.
func (p *DataPlane) refuse(w http.ResponseWriter, q *request, e *refusal) {
	if e.counter != nil {
		e.counter.Inc()
	} else {
		p.metrics.refused.WithLabelValues(e.code).Inc()
	}
	if q != nil {
		if e.status == statusClientClosed && q.row != nil {
			q.row.model.demand[q.priority].cancelled.Add(1)
		}
		q.record.status, q.record.refused = int32(e.status), e.code
		w.Header()["X-Wardrop-Decision"] = []string{p.records.id(q.record.sequence)}
	}
	e.write(w)
}
