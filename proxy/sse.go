package proxy

import (
	"bytes"

	"github.com/wardrop-lb/wardrop/protect"
)

// sseScanner finds failures that an engine reports inside a stream it began with
// 200: an error event, or a choice that was aborted; and what the stream says of its
// tokens. It keeps the beginning of the
// line that a read may have cut, and changes nothing.
type sseScanner struct {
	line    []byte          // the unfinished line, cut to maxLine
	failed  string          // what was found; empty for nothing
	outcome protect.Outcome // what that says of the engine
	named   bool            // the event under way is one of an error, by its name
	usage   usage
}

// maxLine is how much of a line is looked at: errors and finish reasons of real
// engines stand well within it.
const maxLine = 8 << 10

var (
	dataField   = []byte("data:")
	eventField  = []byte("event:")
	errorStart  = []byte(`{"error"`)
	finishField = []byte(`"finish_reason"`)
)

// failureWords are those of which every event that tells of a failure has one.
var failureWords = [...][]byte{[]byte("error"), []byte("abort"), []byte("failed")}

func mayFail(b []byte) bool {
	for _, word := range failureWords {
		if bytes.Contains(b, word) {
			return true
		}
	}
	return false
}

// scan looks at the next bytes of the stream. Most are whole lines of which none
// can tell of a failure: to see that is all that a usual token costs.
func (s *sseScanner) scan(b []byte) {
	if bytes.Contains(b, usageField) {
		s.usage.find(b)
	}
	if n := len(b); len(s.line) == 0 && !s.named && n > 0 && b[n-1] == '\n' && !mayFail(b) {
		return
	}
	for len(b) > 0 {
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			s.keep(b)
			return
		}
		if len(s.line) > 0 {
			s.keep(b[:end])
			s.usage.find(s.line)
			s.event(s.line)
			s.line = s.line[:0]
		} else {
			s.event(b[:end])
		}
		b = b[end+1:]
	}
}

func (s *sseScanner) keep(b []byte) {
	s.line = append(s.line, b[:min(len(b), maxLine-len(s.line))]...)
}

// event looks at one whole line.
func (s *sseScanner) event(line []byte) {
	if name, ok := bytes.CutPrefix(line, eventField); ok {
		if s.named = isErrorEvent(name); s.named {
			s.error(0)
		}
		return
	}
	data, ok := bytes.CutPrefix(line, dataField)
	if !ok {
		return // comments, blank lines
	}
	data = bytes.TrimSpace(data)
	if s.named {
		s.named = false
		code, _ := errorCode(data)
		s.error(code)
	} else if code, ok := inBandError(data); ok {
		s.error(code)
	} else if reason := finishReason(data); givenUp(reason) {
		s.failed, s.outcome = "finish_reason "+reason, protect.Failure
	}
}

// error takes an error with its code, 0 for none. The client's own are neutral.
func (s *sseScanner) error(code int) {
	s.failed, s.outcome = "error event", outcomeOfCode(code)
	if s.outcome == protect.Success {
		s.failed = ""
	}
}

// isErrorEvent tells of the events of an error in the messages and the responses API, by
// what follows "event:".
func isErrorEvent(name []byte) bool {
	switch string(bytes.TrimSpace(name)) {
	case "error", "response.failed":
		return true
	}
	return false
}

// finishReason gives the value of the last finish_reason of an event.
func finishReason(data []byte) string {
	i := bytes.LastIndex(data, finishField)
	if i < 0 {
		return ""
	}
	return valueOf(data[i+len(finishField):])
}

// valueOf gives the string that is a field's value, "" if it is none or cut off.
func valueOf(rest []byte) string {
	rest = bytes.TrimLeft(rest, " :")
	if len(rest) == 0 || rest[0] != '"' {
		return ""
	}
	value, _, ok := bytes.Cut(rest[1:], []byte(`"`))
	if !ok {
		return ""
	}
	return string(value)
}
