package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/wardrop-lb/wardrop/protect"
)

// errIdle is why an answer ends that was silent for too long.
var errIdle = errors.New("the engine was silent for too long")

var newline = []byte{'\n'}

// What headers hold that are the same for many requests; nobody changes them.
var (
	attemptCounts = func() (out [maxAsked + 1][]string) {
		for i := range out {
			out[i] = []string{strconv.Itoa(i)}
		}
		return out
	}()
	protoHTTP  = []string{"http"}
	protoHTTPS = []string{"https"}
)

// relay copies an answer to the client, byte for byte, as it comes. Once the
// client has seen its beginning a failure must be visible: the connection is
// cut, never ended cleanly.
func (p *DataPlane) relay(q *request, a *attempt) {
	defer p.end(q, a)
	t := &q.row.targets[a.target]
	header := q.w.Header()
	copyHeader(header, a.resp.Header)
	if a.asked {
		delete(header, inBandReport)
	}
	header["X-Wardrop-Engine"] = t.seen.named
	header["X-Wardrop-Decision"] = []string{p.records.id(q.record.sequence)}
	header["X-Wardrop-Attempts"] = attemptCounts[q.record.n]
	q.record.status = int32(a.resp.StatusCode)
	q.w.WriteHeader(a.resp.StatusCode)
	c := p.newCopier(q, a)
	clientErr, engineErr := c.run(a.first, a.ended)
	switch {
	case engineErr != nil && q.ctx.Err() == nil:
		a.outcome, a.err = protect.Failure, engineErr
		q.record.aborted = codeFailed
		q.broke(a)
		p.judge(q, a)
		panic(http.ErrAbortHandler)
	case clientErr != nil || engineErr != nil:
		p.metrics.cancelled.Inc()
		q.record.aborted = codeLate
		if clientErr != nil || q.r.Context().Err() != nil { // else its time was up
			q.record.aborted = codeGone
			q.row.model.demand[q.priority].cancelled.Add(1)
		}
		panic(http.ErrAbortHandler)
	}
	for name, values := range a.resp.Trailer {
		header[http.TrailerPrefix+name] = values
	}
	if a.resp.StatusCode < http.StatusMultipleChoices && c.scanner.failed == "" {
		q.account(&c)
		q.used(a.span)
	}
	p.settle(q, a, &c.scanner)
}

// inAnswer begins what is recorded of a failure that an answer tells of.
const inAnswer = "in the stream: "

// settle records how an answer that came to its end speaks for the engine. That of
// one which failed before was judged.
func (p *DataPlane) settle(q *request, a *attempt, s *sseScanner) {
	t := &q.row.targets[a.target]
	switch {
	case a.outcome != protect.Success:
	case s.failed != "":
		a.outcome, a.err = s.outcome, errors.New(inAnswer+s.failed)
		q.broke(a)
		p.judge(q, a)
	default:
		t.engine.outlier.Observe(protect.Success, time.Now().UnixNano())
		t.seen.success.Inc()
	}
}

// copier moves one answer's body. What each token needs stands in it directly: a
// token is so little work that a pointer which must be followed to memory that has
// gone cold since the last one counts.
type copier struct {
	w       http.ResponseWriter
	body    io.Reader
	chunk   []byte
	flush   http.Flusher // nil when the answer has a known length
	events  bool
	whole   bool // an answer in JSON that is no stream
	early   bool // the last bytes leave before the end, for trailers need chunks
	idle    time.Duration
	scanner sseScanner
	// deadline bounds the client's next read; nil without an idle timeout.
	deadline func(time.Time) error
	cancel   context.CancelCauseFunc
	reads    *atomic.Uint32 // the attempt's
	// What tokens are taken from if the answer does not say them.
	bytes, lines, linesPerEvent int64
}

func (p *DataPlane) newCopier(q *request, a *attempt) copier {
	if a.chunk == nil {
		a.chunk = chunks.Get().(*[]byte)
	}
	c := copier{
		w: q.w, body: a.resp.Body, chunk: *a.chunk, early: len(a.resp.Trailer) > 0, idle: time.Duration(p.config.IdleTimeout),
		cancel: a.cancel, reads: &a.reads,
		events: isStream(a.resp), whole: isJSON(a.resp), linesPerEvent: 2, // with the blank one
	}
	if a.resp.ContentLength < 0 {
		c.flush, _ = q.w.(http.Flusher)
	}
	if bytes.HasPrefix(a.first, eventField) {
		c.linesPerEvent = 3
	}
	if c.idle > 0 {
		c.deadline = http.NewResponseController(q.w).SetWriteDeadline
	}
	return c
}

// run copies until the end, beginning with what came already. It flushes what has
// no known length, so that a token leaves as it comes.
func (c *copier) run(data []byte, end error) (clientErr, engineErr error) {
	if c.deadline != nil {
		defer func() { _ = c.deadline(time.Time{}) }() // the connection may serve others
	}
	for {
		if len(data) > 0 {
			c.bytes += int64(len(data))
			if c.events {
				c.scanner.scan(data)
				c.lines += int64(bytes.Count(data, newline))
			} else if c.whole {
				c.scanner.whole(data)
			}
			if c.deadline != nil {
				_ = c.deadline(time.Now().Add(c.idle)) // a client that takes nothing is as good as gone
			}
			if _, err := c.w.Write(data); err != nil {
				return err, nil
			}
			if c.flush != nil && (end == nil || c.early) {
				c.flush.Flush()
			}
		}
		if end != nil {
			if errors.Is(end, io.EOF) {
				end = nil
			}
			return nil, end
		}
		var n int
		c.reads.Add(1)
		if c.idle > 0 {
			n, end = c.patientRead()
		} else {
			n, end = c.body.Read(c.chunk)
		}
		data = c.chunk[:n]
		c.reads.Add(1)
	}
}

// patientRead takes what has come, waiting at most for the idle timeout.
func (c *copier) patientRead() (int, error) {
	cancel := c.cancel
	timer := time.AfterFunc(c.idle, func() { cancel(errIdle) })
	defer timer.Stop()
	return c.body.Read(c.chunk)
}

// outbound builds the engine's request: the same method, path, query, body and
// end-to-end headers.
func outbound(ctx context.Context, q *request, t *targetState) *http.Request {
	in, body := q.r, q.body
	u := &url.URL{Scheme: t.base.Scheme, Host: t.base.Host, Path: in.URL.Path, RawPath: in.URL.RawPath, RawQuery: in.URL.RawQuery}
	out := (&http.Request{
		Method: in.Method, URL: u, Host: t.base.Host, Header: make(http.Header, len(in.Header)+4),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if len(body.data) > 0 {
		out.ContentLength, out.Body = int64(len(body.data)), body.reader()
		out.GetBody = func() (io.ReadCloser, error) { return body.reader(), nil }
	}
	copyHeader(out.Header, in.Header)
	// The body was read already: the engine must not be asked whether to send it.
	delete(out.Header, "Expect")
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = nil // keep net/http from adding its own
	}
	forwarded(out.Header, in)
	return out
}

// forwarded says where the request came from, as proxies do.
func forwarded(h http.Header, in *http.Request) {
	var own [2]string // in one piece of memory
	if host, _, err := net.SplitHostPort(in.RemoteAddr); err == nil {
		if prior := h["X-Forwarded-For"]; len(prior) > 0 {
			host = strings.Join(prior, ", ") + ", " + host
		}
		own[0] = host
		h["X-Forwarded-For"] = own[:1:1]
	}
	if _, ok := h["X-Forwarded-Host"]; !ok {
		own[1] = in.Host
		h["X-Forwarded-Host"] = own[1:]
	}
	if _, ok := h["X-Forwarded-Proto"]; !ok {
		h["X-Forwarded-Proto"] = protoHTTP
		if in.TLS != nil {
			h["X-Forwarded-Proto"] = protoHTTPS
		}
	}
}

// hopByHop tells of the headers of one connection (RFC 9110, section 7.6.1).
func hopByHop(name string) bool {
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// copyHeader copies end-to-end headers, leaving out those of the connection and
// those that it names.
func copyHeader(dst, src http.Header) {
	for name, values := range src {
		if !hopByHop(name) {
			dst[name] = values
		}
	}
	for _, line := range src["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			dst.Del(textproto.TrimString(name))
		}
	}
}
