package proxy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// scanIn gives a scanner a stream in pieces of n bytes.
func scanIn(stream string, n int) *sseScanner {
	s := &sseScanner{}
	for len(stream) > 0 {
		k := min(n, len(stream))
		s.scan([]byte(stream[:k]))
		stream = stream[k:]
	}
	return s
}

// TestScannerFindsFailures: whatever the pieces in which a stream comes.
func TestScannerFindsFailures(t *testing.T) {
	for name, c := range map[string]struct {
		stream string
		failed string
	}{
		"good":         {"data: {\"choices\":[{\"finish_reason\":null}]}\n\ndata: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", ""},
		"error":        {"data: {\"error\":{\"message\":\"x\"}}\n\ndata: [DONE]\n\n", "error event"},
		"event":        {"event: error\ndata: {}\n\n", "error event"},
		"response":     {"event: response.failed\ndata: {}\n\n", "error event"},
		"abort":        {"data: {\"choices\":[{\"finish_reason\": \"abort\"}]}\n\ndata: [DONE]\n\n", "finish_reason abort"},
		"CRLF":         {"data:{\"choices\":[{\"finish_reason\":\"abort\"}]}\r\n\r\ndata:[DONE]\r\n\r\n", "finish_reason abort"},
		"comments":     {": keep-alive\n\n: {\"error\"\n\n", ""},
		"in the text":  {"data: {\"choices\":[{\"delta\":{\"content\":\"{\\\"error\\\"\"}}]}\n\n", ""},
		"not ended":    {"data: {\"choices\":[]}\n\n", ""},
		"empty line":   {"\n\n\n", ""},
		"huge line":    {"data: " + strings.Repeat("x", 3*maxLine) + "\ndata: [DONE]\n\n", ""},
		"no last line": {"data: [DONE]", ""},
	} {
		for _, n := range []int{1, 3, 7, 1 << 20} {
			s := scanIn(c.stream, n)
			require.Equal(t, c.failed, s.failed, "%s in pieces of %d", name, n)
		}
	}
}

// FuzzScanner: the pieces in which a stream comes make no difference, and memory
// is bounded.
func FuzzScanner(f *testing.F) {
	f.Add("data: {\"error\":1}\n\ndata: [DONE]\n\n", 3)
	f.Fuzz(func(t *testing.T, stream string, n int) {
		whole, pieces := scanIn(stream, len(stream)+1), scanIn(stream, max(n, 1)%64+1)
		longest := 0
		for line := range strings.SplitSeq(stream, "\n") {
			longest = max(longest, len(line))
		}
		if longest < maxLine && whole.failed != pieces.failed {
			t.Fatalf("whole %+v, in pieces %+v", whole, pieces)
		}
		if cap(pieces.line) > 4*maxLine {
			t.Fatal("the line grows without bound")
		}
	})
}
