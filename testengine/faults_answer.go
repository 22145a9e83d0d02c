package testengine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
)

// Break is how answers end early while everything about their connection is right.
type Break struct {
	// How is one of breaks.
	How string `json:"how"`
	// After is how many tokens come before it; an answer that is not longer is whole.
	After int `json:"after,omitempty"`
	// Code is the code in an error; default 500. Of answers that are no streams it is
	// the status.
	Code int `json:"code,omitempty"`
}

// What Break.How may be.
const (
	// BreakError ends a stream with an event {"error": ...} and [DONE], as vLLM does
	// when its core dies and, after no token, when it takes no more requests.
	BreakError = "error"
	// BreakAbort ends an answer with the finish reason "abort" and [DONE], as vLLM does
	// when it is told to stop.
	BreakAbort = "abort"
	// BreakEnd ends a stream with neither a finish reason nor [DONE]; of a whole
	// answer it leaves half.
	BreakEnd = "end"

	breakReset = "reset" // AbortAfter's
)

var breaks = []string{BreakError, BreakAbort, BreakEnd}

func (b *Break) validate() error {
	if b == nil {
		return nil
	}
	if b.After < 0 {
		return fmt.Errorf("break: after: %d is negative", b.After)
	}
	if err := errorStatus("break: code", b.Code); err != nil {
		return err
	}
	return oneOf("break: how", b.How, breaks)
}

// What Shape may hold.
const (
	ShapeComments = "comments" // a comment line before every write
	ShapeEmpty    = "empty"    // an event without choices first
	ShapeCRLF     = "crlf"     // lines end with CR LF
	ShapeSplit    = "split"    // writes of a few bytes each, so that events are cut
	ShapeUsage    = "usage"    // every event says the usage so far: a total, not to be added up
)

var shapes = []string{ShapeComments, ShapeEmpty, ShapeCRLF, ShapeSplit, ShapeUsage}

// ending is how the faults end an answer early.
type ending struct {
	how   string // "" for not at all
	after int    // tokens
	code  int
}

// ending says what the faults in force have in mind for a request.
func (s *Server) ending(c *call) ending {
	f := s.faults.Load()
	switch {
	case f.AbortAfter != nil:
		return ending{how: breakReset, after: *f.AbortAfter}
	case f.State == Asleep && c.sleeps != s.sleeps.Load():
		return ending{how: BreakAbort, after: int(c.tokens.Load())}
	case f.Break != nil && f.Break.After < c.output:
		code := f.Break.Code
		if code == 0 {
			code = http.StatusInternalServerError
		}
		return ending{f.Break.How, f.Break.After, code}
	}
	return ending{after: math.MaxInt}
}

func brokenError(code int) map[string]any {
	kind := "InternalServerError"
	if code == http.StatusServiceUnavailable {
		kind = "Service Unavailable"
	}
	return map[string]any{"error": map[string]any{
		"message": "the engine was told to break", "type": kind, "param": nil, "code": code,
	}}
}

// breakOff appends to a stream how it ends early.
func (a *answer) breakOff(dst []byte, e ending) []byte {
	switch e.how {
	case BreakError:
		raw, _ := json.Marshal(brokenError(e.code))
		dst = append(append(append(dst, "data: "...), raw...), "\n\n"...)
	case BreakAbort:
		dst = append(dst, a.envelope()...)
		open := `[{"index":0,"text":""`
		if a.chat {
			open = `[{"index":0,"delta":{"content":""}`
		}
		dst = append(append(dst, open...), `,"logprobs":null,"finish_reason":"abort"}]}`+"\n\n"...)
	default:
		return dst
	}
	return append(dst, "data: [DONE]\n\n"...)
}

// writeBroken sends a whole answer that ends early.
func (a *answer) writeBroken(w http.ResponseWriter, e ending) {
	switch e.how {
	case breakReset:
		reset(w)
	case BreakError:
		writeJSON(w, e.code, brokenError(e.code))
	case BreakAbort:
		writeJSON(w, http.StatusOK, a.whole(e.after, "abort"))
	default:
		raw, _ := json.Marshal(a.whole(e.after, a.finish))
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(raw[:len(raw)/2])
	}
}

// splitBytes is how much ShapeSplit writes at once.
const splitBytes = 7

// shaper writes a stream in an unusual shape.
type shaper struct {
	w       http.ResponseWriter
	flusher *http.ResponseController
	shape   []string
}

func (s *shaper) has(shape string) bool { return slices.Contains(s.shape, shape) }

// send writes events; false when the client has gone.
func (s *shaper) send(events []byte) bool {
	if s.has(ShapeComments) {
		events = append([]byte(": keep-alive\n\n"), events...)
	}
	if s.has(ShapeCRLF) {
		events = bytes.ReplaceAll(events, []byte("\n"), []byte("\r\n"))
	}
	size := len(events)
	if s.has(ShapeSplit) {
		size = splitBytes
	}
	for piece := range slices.Chunk(events, max(size, 1)) {
		if _, err := s.w.Write(piece); err != nil || s.flusher.Flush() != nil {
			return false
		}
	}
	return true
}

// dead tells of a stream that begins whether it is one that stands still.
func (s *Server) dead() bool {
	n := s.streams.Add(1)
	every := s.faults.Load().DeadStreams
	return every > 0 && n%uint64(every) == 0
}

// standStill waits until no stream stands still any more; false when the client has gone.
func (s *Server) standStill(w http.ResponseWriter, r *http.Request) bool {
	for {
		s.mu.Lock()
		f, changed := s.faults.Load(), s.changed
		s.mu.Unlock()
		if f.DeadStreams == 0 {
			return true
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return false
		case <-s.stop:
			reset(w)
		}
	}
}
