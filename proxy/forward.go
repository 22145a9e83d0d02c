package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/wardrop-lb/wardrop/protect"
	"github.com/wardrop-lb/wardrop/route"
)

// statusClientClosed is what nginx calls a client that went away; it is counted,
// never read by anyone.
const statusClientClosed = 499

// maxRetries bounds the retries of a request that an engine may have seen. An
// engine that could not be reached has seen nothing and does not count.
const maxRetries = 1

var chunks = sync.Pool{New: func() any { b := make([]byte, 16<<10); return &b }}

// forward sends the request to the engines of its pick, one after the other,
// until one begins to answer.
func (p *DataPlane) forward(q *request) {
	retries := 0
	for i := 0; ; i++ {
		target := q.pick.At(i)
		a := p.attempt(q, target)
		if a.err == nil && a.outcome == protect.Success {
			p.finish(q, &a)
			return
		}
		if q.r.Context().Err() != nil {
			a.close()
			p.refuse(q.w, refuse(statusClientClosed, "invalid_request_error", "client_closed", "the client went away"))
			return
		}
		p.judge(q, &a)
		if i+1 == q.pick.Len() || !p.mayRetry(q, &a, &retries) {
			p.fail(q, &a)
			return
		}
		a.close()
		p.metrics.retries.WithLabelValues(outcomeNames[a.outcome]).Inc()
	}
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
	target  int
	sent    time.Time
	charge  route.Charge
	cancel  context.CancelFunc
	resp    *http.Response // nil when err is set
	first   []byte         // the body's first bytes
	chunk   *[]byte
	err     error
	outcome protect.Outcome
}

// attempt sends the request to one engine and waits for the first byte of the
// answer's body. The engine is charged from here until close.
func (p *DataPlane) attempt(q *request, target int) attempt {
	a := attempt{target: target, sent: time.Now()}
	t := &q.row.targets[target]
	a.charge = q.row.Targets()[target].Flight.Charge(q.work)
	t.seen.attempts.add()
	ctx, cancel := context.WithCancel(q.r.Context())
	a.cancel = cancel
	if limit := time.Duration(p.config.FirstByteTimeout); limit > 0 {
		timer := time.AfterFunc(limit, cancel)
		defer timer.Stop()
	}
	a.resp, a.err = p.transport.RoundTrip(outbound(ctx, q, t)) //nolint:bodyclose // close does
	if a.err != nil {
		a.outcome = outcomeOf(a.err)
		return a
	}
	if a.outcome = outcomeOfStatus(a.resp.StatusCode); a.outcome == protect.Success {
		a.readFirst()
	}
	return a
}

// readFirst waits for the body's first byte: until then nothing was promised to
// the client.
func (a *attempt) readFirst() {
	a.chunk = chunks.Get().(*[]byte)
	n, err := a.resp.Body.Read(*a.chunk)
	a.first = (*a.chunk)[:n]
	if n == 0 && err != nil && err != io.EOF {
		a.err, a.outcome = err, protect.Failure
	}
}

// close ends the attempt: the engine's work in flight is released and what is
// left of the answer dropped.
func (a *attempt) close() {
	a.charge.Release()
	a.cancel()
	if a.resp != nil {
		_ = a.resp.Body.Close()
	}
	if a.chunk != nil {
		chunks.Put(a.chunk)
		a.chunk = nil
	}
}

// judge records how a failed attempt ended and passes the engine over if that
// was once too often.
func (p *DataPlane) judge(q *request, a *attempt) {
	t := &q.row.targets[a.target]
	t.seen.failures.add()
	now := time.Now().UnixNano()
	if lease := t.engine.outlier.Observe(a.outcome, now); lease > 0 {
		if q.row.PassOver(a.target, now+int64(lease), now) {
			p.log.Debug("engine passed over", "engine", t.seen.engine, "model", t.seen.model, "for", lease, "error", a.err)
		}
	}
	p.metrics.attempts.WithLabelValues(t.seen.engine, t.seen.model, outcomeNames[a.outcome]).Inc()
}

// fail gives the client the last engine's answer, or says why there is none.
func (p *DataPlane) fail(q *request, a *attempt) {
	if a.resp != nil && a.err == nil {
		p.relay(q, a)
		return
	}
	a.close()
	name := q.row.targets[a.target].seen.engine
	if a.outcome == protect.Unreachable {
		e := refuse(http.StatusServiceUnavailable, "server_error", "no_engine", "no engine of %q can be reached: %s: %v", q.row.Model, name, a.err)
		e.retryAfter = shedRetryAfter
		p.refuse(q.w, e)
		return
	}
	p.refuse(q.w, refuse(http.StatusBadGateway, "server_error", "engine_failed", "engine %s failed before it answered: %v", name, a.err))
}

// finish relays a good answer and records what it says about the engine.
func (p *DataPlane) finish(q *request, a *attempt) {
	t := &q.row.targets[a.target]
	waited := time.Since(a.sent)
	t.seen.firstByte.observe(waited)
	p.metrics.firstByte.WithLabelValues(t.seen.model).Observe(time.Since(q.arrived).Seconds())
	now := time.Now().UnixNano()
	t.engine.outlier.ObserveFirstByte(waited.Seconds(), q.row.Targets()[a.target].Predicted, now)
	p.relay(q, a)
}

// relay copies an answer to the client, byte for byte, as it comes. Once the
// client has seen its beginning a failure must be visible: the connection is
// cut, never ended cleanly.
func (p *DataPlane) relay(q *request, a *attempt) {
	defer a.close()
	t := &q.row.targets[a.target]
	header := q.w.Header()
	copyHeader(header, a.resp.Header)
	header.Set("X-Wardrop-Engine", t.seen.engine)
	q.w.WriteHeader(a.resp.StatusCode)
	clientErr, engineErr := p.copy(q.w, a)
	a.outcome = outcomeOfStatus(a.resp.StatusCode)
	switch {
	case engineErr != nil && q.r.Context().Err() == nil:
		a.outcome = protect.Failure
		p.judge(q, a)
		panic(http.ErrAbortHandler)
	case clientErr != nil || engineErr != nil:
		p.metrics.cancelled.Inc()
		panic(http.ErrAbortHandler)
	}
	for name, values := range a.resp.Trailer {
		header[http.TrailerPrefix+name] = values
	}
	switch {
	case a.resp.StatusCode == http.StatusInternalServerError:
		a.outcome = protect.Failure // not to be retried, for it may have cost, but evidence
		p.judge(q, a)
	case a.outcome == protect.Success:
		t.engine.outlier.Observe(protect.Success, time.Now().UnixNano())
		p.metrics.attempts.WithLabelValues(t.seen.engine, t.seen.model, outcomeNames[protect.Success]).Inc()
	}
}

// copy moves the body. It flushes what has no known end, so that a token leaves
// as it comes.
func (p *DataPlane) copy(w http.ResponseWriter, a *attempt) (clientErr, engineErr error) {
	if a.chunk == nil {
		a.chunk = chunks.Get().(*[]byte)
	}
	flusher, _ := w.(http.Flusher)
	stream := a.resp.ContentLength < 0 && flusher != nil
	for data := a.first; ; {
		if len(data) > 0 {
			if _, err := w.Write(data); err != nil {
				return err, nil
			}
			if stream {
				flusher.Flush()
			}
		}
		n, err := a.resp.Body.Read(*a.chunk)
		data = (*a.chunk)[:n]
		if err == nil {
			continue
		}
		if n > 0 {
			if _, err := w.Write(data); err != nil {
				return err, nil
			}
		}
		if err == io.EOF {
			err = nil
		}
		return nil, err
	}
}

// outbound builds the engine's request: the same method, path, query, body and
// end-to-end headers.
func outbound(ctx context.Context, q *request, t *targetState) *http.Request {
	in := q.r
	u := &url.URL{Scheme: t.base.Scheme, Host: t.base.Host, Path: in.URL.Path, RawPath: in.URL.RawPath, RawQuery: in.URL.RawQuery}
	out := (&http.Request{
		Method: in.Method, URL: u, Host: t.base.Host, Header: make(http.Header, len(in.Header)+1),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: int64(q.body.buf.Len()), Body: q.body.reader(),
		GetBody: func() (io.ReadCloser, error) { return q.body.reader(), nil },
	}).WithContext(ctx)
	copyHeader(out.Header, in.Header)
	// The body was read already: the engine must not be asked whether to send it.
	out.Header.Del("Expect")
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = nil // keep net/http from adding its own
	}
	if host, _, err := net.SplitHostPort(in.RemoteAddr); err == nil {
		if prior := in.Header["X-Forwarded-For"]; len(prior) > 0 {
			host = strings.Join(prior, ", ") + ", " + host
		}
		out.Header.Set("X-Forwarded-For", host)
	}
	return out
}

// hopByHop are the headers of one connection (RFC 9110, section 7.6.1).
var hopByHop = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// copyHeader copies end-to-end headers, leaving out those of the connection and
// those that it names.
func copyHeader(dst, src http.Header) {
	for name, values := range src {
		dst[name] = values
	}
	for _, line := range src["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			dst.Del(textproto.TrimString(name))
		}
	}
	for _, name := range hopByHop {
		dst.Del(name)
	}
}

var outcomeNames = [...]string{
	protect.Success: "success", protect.Backpressure: "backpressure",
	protect.Failure: "failure", protect.Unreachable: "unreachable",
}

// outcomeOf says what a broken exchange says about the engine.
func outcomeOf(err error) protect.Outcome {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return protect.Unreachable
	}
	return protect.Failure
}

// outcomeOfStatus says what an answer's status says about the engine: client
// errors are neutral, 429 and 503 are backpressure, and the gateway errors mean
// that nothing was generated.
func outcomeOfStatus(status int) protect.Outcome {
	switch status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return protect.Backpressure
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		return protect.Failure
	}
	return protect.Success
}
