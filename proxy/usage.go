package proxy

import (
	"bytes"
	"net/http"
	"strings"
)

// usage is what an answer says of its tokens. Of what it says more than once the last
// counts: engines give running totals on request.
type usage struct {
	said                      bool
	prompt, output, cached    int64 // as OpenAI's APIs count: cached ones are of the prompt
	besideRead, besideWritten int64 // as Anthropic's counts: beside the prompt
}

// usageTail is how many bytes from its end of an answer that comes whole are looked at:
// all engines say there what it took.
const usageTail = 2 << 10

// mostTokens is more than any request has: beyond, a number is none.
const mostTokens = 1 << 30

// usageField is looked for in every token's event. Without the first quote, of which
// such events are full, that takes a tenth of the time.
var usageField = []byte(`usage":`)

// find looks for usage in a piece of an answer. One that is cut off does not count;
// cut tells of it.
func (u *usage) find(b []byte) (cut bool) {
	for {
		i := bytes.Index(b, usageField)
		if i < 0 {
			return cut
		}
		whole := i > 0 && b[i-1] == '"'
		b = b[i+len(usageField):]
		if object := bytes.TrimLeft(b, " "); whole && len(object) > 0 && object[0] == '{' {
			next := *u
			if cut = !next.object(object); !cut {
				*u = next
			}
		}
	}
}

// object takes the numbers of a JSON object and of those within it, and says whether
// it is all there.
func (u *usage) object(b []byte) bool {
	depth := 0
	var key []byte
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '{':
			depth++
		case c == '}':
			if depth--; depth == 0 {
				return true
			}
		case c == '"':
			n := bytes.IndexByte(b[i+1:], '"')
			if n < 0 {
				return false
			}
			key = b[i+1 : i+1+n]
			i += 1 + n
		case c >= '0' && c <= '9':
			n := int64(0)
			for ; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
				n = min(10*n+int64(b[i]-'0'), mostTokens)
			}
			if i--; n < mostTokens {
				u.set(key, n)
			}
		}
	}
	return false
}

func (u *usage) set(key []byte, n int64) {
	switch string(key) {
	case "prompt_tokens", "input_tokens":
		u.prompt, u.said = n, true
	case "completion_tokens", "output_tokens":
		u.output, u.said = n, true
	case "cached_tokens":
		u.cached = n
	case "cache_read_input_tokens":
		u.besideRead = n
	case "cache_creation_input_tokens":
		u.besideWritten = n
	}
}

// whole looks at a piece of an answer that comes whole, in one or more pieces.
func (s *sseScanner) whole(b []byte) {
	if len(s.line) > 0 { // the end of what came before, for usage may have been cut
		s.line = append(s.line, b[:min(len(b), usageTail)]...)
		s.usage.find(s.line)
		s.line = s.line[max(0, len(s.line)-usageTail):]
	}
	if len(s.line) > 0 && len(b) <= usageTail {
		return // it is all in there
	}
	s.line = s.line[:0]
	tail := b[max(0, len(b)-usageTail):]
	cut := s.usage.find(tail)
	if end := bytes.TrimRight(tail, " \r\n"); cut || len(end) == 0 || end[len(end)-1] != '}' { // else it was all, or nothing is cut
		if s.line == nil {
			s.line = make([]byte, 0, 2*usageTail) // with what comes next
		}
		s.line = append(s.line, tail...)
	}
}

// retried tells a client's retry from its first attempt: OpenAI's and Anthropic's
// clients count them.
func retried(r *http.Request) bool {
	count := r.Header[retryCount]
	return len(count) > 0 && strings.TrimLeft(count[0], "0") != ""
}

const retryCount = "X-Stainless-Retry-Count"

// answerHead is what an answer from an engine has beside its tokens, in bytes and, of a
// stream, in events: names, ids, the end.
const answerHead, streamHead = 300, 3

// account counts the tokens of an answer that came to its end. Where it does not say
// them, and generates text, they are taken from sizes.
func (q *request) account(c *copier) {
	f, u := &q.row.model.demand[q.priority], &c.scanner.usage
	prompt, output := u.prompt+u.besideRead+u.besideWritten, u.output
	if !u.said {
		if !q.endpoint.cached {
			return
		}
		f.estimated.Add(1)
		prompt = int64(len(q.body.data)) / bytesPerToken
		if output = max(0, c.bytes-answerHead) / bytesPerToken; c.events {
			output = max(0, c.lines/c.linesPerEvent-streamHead)
		}
	}
	cached := min(u.cached+u.besideRead, prompt)
	q.record.prompt, q.record.output, q.record.cached = prompt, output, cached
	f.samples.Add(1)
	f.prompt.Add(uint64(prompt))
	f.output.Add(uint64(output))
	f.cached.Add(uint64(cached))
}
