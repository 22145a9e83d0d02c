package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/wardrop-lb/wardrop/protect"
)

// holdTime is how long after its first byte a stream is held that has promised the
// client nothing yet. Comments must reach clients that wait behind impatient gateways.
const holdTime = time.Second

// readFirst waits until the answer promises the client something, or turns out to be a
// failure, which costs the client nothing yet. began is called when the first byte has come.
func (a *attempt) readFirst(p *pulse, began func()) {
	a.chunk = chunks.Get().(*[]byte)
	n, err := a.resp.Body.Read(*a.chunk)
	began()
	a.first, a.ended = (*a.chunk)[:n], err
	var o opening
	v := promised
	switch {
	case a.resp.StatusCode >= http.StatusMultipleChoices: // an error's own body
	case isStream(a.resp):
		v = a.hold(&o, p)
	case isJSON(a.resp):
		v = o.whole(a.first)
	}
	switch {
	case v == broken:
		a.outcome, a.inBand = o.outcome, o.why
	case (v == undecided || len(a.first) == 0) && a.ended != nil && !errors.Is(a.ended, io.EOF):
		a.err = a.ended
	}
}

// hold reads on as long as a stream promises nothing: until its chunk is full, and no
// longer than holdTime.
func (a *attempt) hold(o *opening, p *pulse) verdict {
	var timer *time.Timer
	for {
		v := o.stream(a.first, errors.Is(a.ended, io.EOF))
		if v != undecided || a.ended != nil {
			return v
		}
		if len(a.first) == len(*a.chunk) {
			return promised
		}
		p.heard(time.Now().UnixNano())
		if timer == nil {
			timer = time.NewTimer(holdTime)
			defer timer.Stop()
		}
		r := newLateRead(a.resp.Body, (*a.chunk)[len(a.first):])
		select {
		case <-r.done:
			a.first, a.ended = (*a.chunk)[:len(a.first)+r.n], r.err
		case <-timer.C:
			a.resp.Body, a.late = r, r
			return promised
		}
	}
}

// lateRead is a body of which a piece is still being read. As a reader it waits for that
// piece, and goes on with the rest.
type lateRead struct {
	io.ReadCloser
	done  chan struct{} // closed when the piece has come
	piece []byte
	n     int
	err   error
}

func newLateRead(body io.ReadCloser, to []byte) *lateRead {
	r := &lateRead{ReadCloser: body, done: make(chan struct{}), piece: to}
	go func() {
		defer close(r.done)
		r.n, r.err = body.Read(to)
	}()
	return r
}

func (r *lateRead) Read(b []byte) (int, error) {
	if r.piece == nil {
		return r.ReadCloser.Read(b)
	}
	<-r.done
	n := copy(b, r.piece[:r.n])
	if r.piece, r.n = r.piece[n:], r.n-n; r.n > 0 {
		return n, nil
	}
	r.piece = nil
	return n, r.err
}

func isStream(r *http.Response) bool {
	return strings.HasPrefix(r.Header.Get("Content-Type"), "text/event-stream")
}

func isJSON(r *http.Response) bool {
	return strings.HasPrefix(r.Header.Get("Content-Type"), "application/json")
}

// verdict is what the beginning of an answer says.
type verdict uint8

const (
	undecided verdict = iota // nothing was promised yet
	promised
	broken // the engine has given up on the request
)

// opening looks at how an answer begins that has the status of a good one.
type opening struct {
	at    int  // where the first line begins that was not looked at
	named bool // the event that begins is one of an error, by its name

	// Of a broken one:
	outcome protect.Outcome
	why     string
}

// stream looks at the events with which a stream begins, of which b has more each time.
// Comments promise nothing, nor do events in which no choice has content. end tells that
// b is all.
func (o *opening) stream(b []byte, end bool) verdict {
	for o.at < len(b) {
		line, next := b[o.at:], len(b)
		if i := bytes.IndexByte(line, '\n'); i >= 0 {
			line, next = line[:i], o.at+i+1
		} else if !end {
			return undecided
		}
		o.at = next
		if v := o.line(bytes.TrimRight(line, "\r")); v != undecided {
			return v
		}
	}
	return undecided
}

func (o *opening) line(line []byte) verdict {
	field, value, _ := bytes.Cut(line, []byte(":"))
	switch string(field) {
	case "": // a comment, or the end of an event
		if len(line) == 0 && o.named {
			return o.failed(0)
		}
		return undecided
	case "id", "retry":
		return undecided
	case "event":
		o.named = isErrorEvent(value)
		return undecided
	case "data":
		return o.data(bytes.TrimSpace(value))
	}
	return promised
}

func (o *opening) data(data []byte) verdict {
	if o.named {
		code, _ := errorCode(data)
		return o.failed(code)
	}
	if code, ok := inBandError(data); ok {
		return o.failed(code)
	}
	return o.choices(data)
}

// failed takes an error with its code, 0 for none.
func (o *opening) failed(code int) verdict {
	o.why, o.outcome = "error event", outcomeOfCode(code)
	if o.outcome == protect.Success {
		return promised // the client's error is its answer
	}
	return broken
}

// choices looks at an event that has some; every other event is a promise.
func (o *opening) choices(data []byte) verdict {
	if !bytes.Contains(data, choicesField) || hasText(data) {
		return promised
	}
	var e struct {
		Choices []struct {
			Text   string                     `json:"text"`
			Delta  map[string]json.RawMessage `json:"delta"`
			Reason string                     `json:"finish_reason"`
		} `json:"choices"`
	}
	if json.Unmarshal(data, &e) != nil || e.Choices == nil {
		return promised
	}
	v := undecided
	for _, c := range e.Choices {
		for key, value := range c.Delta {
			if key != "role" && !isEmpty(value) {
				return promised
			}
		}
		if c.Text != "" || c.Reason != "" && !givenUp(c.Reason) {
			return promised
		}
		if c.Reason != "" {
			v, o.outcome, o.why = broken, protect.Failure, "finish_reason "+c.Reason
		}
	}
	return v
}

var (
	choicesField = []byte(`"choices"`)
	textFields   = [...][]byte{[]byte(`"content":`), []byte(`"text":`)}
)

// hasText finds the text that all but a few events have, for less than decoding costs.
func hasText(data []byte) bool {
	for _, field := range textFields {
		if i := bytes.Index(data, field); i >= 0 {
			value := bytes.TrimLeft(data[i+len(field):], " ")
			return len(value) > 1 && value[0] == '"' && value[1] != '"'
		}
	}
	return false
}

func isEmpty(value json.RawMessage) bool {
	switch string(value) {
	case "null", `""`, "[]", "{}":
		return true
	}
	return false
}

// givenUp tells of the finish reasons of engines that end a request of their own accord.
func givenUp(reason string) bool { return reason == "abort" || reason == "error" }

// whole looks at the first bytes of an answer that is no stream. It was given up if all
// finish reasons that it shows say so.
func (o *opening) whole(b []byte) verdict {
	b = bytes.TrimLeft(b, " \r\n")
	if code, ok := inBandError(b); ok {
		return o.failed(code)
	}
	for {
		i := bytes.Index(b, finishField)
		if i < 0 {
			break
		}
		reason := valueOf(b[i+len(finishField):])
		if !givenUp(reason) {
			return promised
		}
		o.outcome, o.why = protect.Failure, "finish_reason "+reason
		b = b[i+len(finishField):]
	}
	if o.why == "" {
		return promised
	}
	return broken
}

// inBandError tells whether data is an object whose first field is an error, as engines
// send it in place of an answer, and gives the error's code, 0 for none.
func inBandError(data []byte) (code int, ok bool) {
	rest, ok := bytes.CutPrefix(data, errorStart)
	if !ok || bytes.HasPrefix(bytes.TrimLeft(rest, " :"), []byte("null")) {
		return 0, false
	}
	code, _ = errorCode(data)
	return code, true
}

// errorCode finds the status that an error says it would have had; false if it says none.
func errorCode(data []byte) (int, bool) {
	var e struct {
		Error struct {
			Code any    `json:"code"`
			Type string `json:"type"`
		} `json:"error"`
	}
	if json.Unmarshal(data, &e) != nil {
		return 0, false
	}
	switch code := e.Error.Code.(type) {
	case float64:
		return int(code), true
	case string:
		if n, err := strconv.Atoi(code); err == nil {
			return n, true
		}
	}
	code, ok := errorTypes[e.Error.Type]
	return code, ok
}

// errorTypes are those of OpenAI's and Anthropic's APIs, which give no number.
var errorTypes = map[string]int{
	"invalid_request_error": http.StatusBadRequest, "authentication_error": http.StatusUnauthorized, "permission_error": http.StatusForbidden,
	"not_found_error": http.StatusNotFound, "request_too_large": http.StatusRequestEntityTooLarge,
	"rate_limit_error": http.StatusTooManyRequests, "overloaded_error": http.StatusServiceUnavailable,
}

// outcomeOfCode is outcomeOfStatus for an error within an answer, which is a failure if it
// has no code.
func outcomeOfCode(code int) protect.Outcome {
	if o := outcomeOfStatus(code); o != protect.Success {
		return o
	}
	if code >= http.StatusBadRequest && code < http.StatusInternalServerError {
		return protect.Success
	}
	return protect.Failure
}
