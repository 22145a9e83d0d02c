package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/protect"
)

// Events as engines send them.
const (
	keepAlive = ": keep-alive\n\n"
	noChoices = "data: {\"choices\":[]}\n\n"
	roleEvent = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n"
	wordEvent = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"},\"finish_reason\":null}]}\n\n"
	stopEvent = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
	aborted   = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"},\"finish_reason\":\"abort\"}]}\n\n"
	doneEvent = "data: [DONE]\n\n"
)

func errorOf(code any) string {
	return fmt.Sprintf("data: {\"error\":{\"message\":\"x\",\"code\":%v}}\n\n", code)
}

// sayer is an engine that answers in pieces, in full or not at all.
type sayer struct {
	kind   string // of the content
	pieces []string
	hits   atomic.Int64
}

func (s *sayer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.hits.Add(1)
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", s.kind)
	for _, piece := range s.pieces {
		if piece == "cut" {
			cut(w)
			return
		}
		_, _ = io.WriteString(w, piece)
		if len(s.pieces) > 1 {
			w.(http.Flusher).Flush()
		}
	}
}

const eventStream = "text/event-stream; charset=utf-8"

// behind is an engine that a request goes to first, and one that is well.
func behind(t *testing.T, first *sayer) (h *harness, session string) {
	t.Helper()
	well := &sayer{kind: first.kind, pieces: []string{"well"}}
	var armed atomic.Bool
	h = newHarness(t, func(w http.ResponseWriter, r *http.Request) {
		if armed.Load() {
			first.ServeHTTP(w, r)
			return
		}
		well.ServeHTTP(w, r)
	}, well.ServeHTTP)
	for i := 0; ; i++ {
		session = fmt.Sprint("s", i)
		resp := h.post(chat, "X-Session-Id", session)
		h.read(resp)
		if resp.Header.Get("X-Wardrop-Engine") == "e0" {
			armed.Store(true)
			return h, session
		}
	}
}

// TestAnswersGivenUpBeforeAnyPromise go elsewhere, and those that promise something, or are
// the client's own error, pass as they are.
func TestAnswersGivenUpBeforeAnyPromise(t *testing.T) {
	const failure, full, passes = "failure", "backpressure", ""
	choice := func(reason, text string) string {
		return fmt.Sprintf(`{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":%q}`, text, reason)
	}
	for name, c := range map[string]struct {
		kind    string
		outcome string
		pieces  []string
	}{
		"error":                      {eventStream, failure, []string{errorOf(500) + doneEvent}},
		"error without a code":       {eventStream, failure, []string{errorOf("null") + doneEvent}},
		"full":                       {eventStream, full, []string{errorOf(503), doneEvent}},
		"too many":                   {eventStream, full, []string{errorOf(`"429"`)}},
		"the client's error":         {eventStream, passes, []string{errorOf(400) + doneEvent}},
		"abort":                      {eventStream, failure, []string{aborted + doneEvent}},
		"abort after the role":       {eventStream, failure, []string{roleEvent, aborted, doneEvent}},
		"abort in a completion":      {eventStream, failure, []string{"data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"abort\"}]}\n\n"}},
		"comments first":             {eventStream, full, []string{keepAlive, keepAlive + noChoices, errorOf(503)}},
		"in small pieces":            {eventStream, failure, strings.SplitAfter(keepAlive+aborted, ":")},
		"CRLF":                       {eventStream, failure, []string{strings.ReplaceAll(keepAlive+aborted, "\n", "\r\n")}},
		"no end of line":             {eventStream, failure, []string{strings.TrimSpace(errorOf(500))}},
		"cut after comments":         {eventStream, failure, []string{keepAlive, "cut"}},
		"cut in the first event":     {eventStream, failure, []string{roleEvent + wordEvent[:20], "cut"}},
		"messages API":               {eventStream, full, []string{"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n"}},
		"messages API, client":       {eventStream, passes, []string{"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\"}}\n\n"}},
		"responses API":              {eventStream, failure, []string{"event: response.failed\ndata: {}\n\n"}},
		"word, then abort":           {eventStream, passes, []string{wordEvent, aborted, doneEvent}},
		"abort with words":           {eventStream, passes, []string{strings.ReplaceAll(wordEvent, "null", `"abort"`)}},
		"tool calls":                 {eventStream, passes, []string{"data: {\"choices\":[{\"delta\":{\"content\":null,\"tool_calls\":[{}]}}]}\n\n", aborted}},
		"one choice of two":          {eventStream, passes, []string{"data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"abort\"},{\"text\":\"x\"}]}\n\n"}},
		"well":                       {eventStream, passes, []string{keepAlive, noChoices, roleEvent, wordEvent, stopEvent, doneEvent}},
		"well and empty":             {eventStream, passes, []string{roleEvent, stopEvent, doneEvent}},
		"nothing but comments":       {eventStream, passes, []string{keepAlive, keepAlive}},
		"no error":                   {eventStream, passes, []string{"data: {\"error\":null,\"choices\":[{\"text\":\"x\"}]}\n\n"}},
		"no events":                  {eventStream, passes, []string{"hello"}},
		"too many comments":          {eventStream, passes, []string{strings.Repeat(keepAlive, 2*chunkSize/len(keepAlive)), wordEvent}},
		"whole error":                {"application/json", failure, []string{`{"error":{"message":"x"}}`}},
		"whole, full":                {"application/json", full, []string{`{"error":{"message":"x","code":503}}`}},
		"whole, the client's error":  {"application/json", passes, []string{`{"error":{"message":"x","code":404}}`}},
		"whole, no error":            {"application/json", passes, []string{`{"error":null,"choices":[` + choice("stop", "x") + `]}`}},
		"whole abort":                {"application/json; charset=utf-8", failure, []string{`{"choices":[` + choice("abort", "half of") + `],"usage":{}}`}},
		"whole, one choice of two":   {"application/json", passes, []string{`{"choices":[` + choice("stop", "x") + `,` + choice("abort", "") + `]}`}},
		"whole, in the text":         {"application/json", passes, []string{`{"choices":[` + choice("stop", `"finish_reason":"abort"`) + `]}`}},
		"whole, begun before it was": {"application/json", failure, []string{`{"choices":[` + choice("abort", ""), `],"usage":{}}`}},
		"text":                       {"text/plain", passes, []string{errorOf(500)}},
	} {
		t.Run(name, func(t *testing.T) {
			first := &sayer{kind: c.kind, pieces: c.pieces}
			h, session := behind(t, first)
			resp := h.post(chat, "X-Session-Id", session)
			require.Equal(t, http.StatusOK, resp.StatusCode)
			got, d := h.read(resp), h.decision(resp.Header)
			require.Equal(t, int64(1), first.hits.Load())
			if c.outcome == passes {
				require.Equal(t, strings.Join(c.pieces, ""), got, "not a byte differs")
				require.Len(t, d.Attempts, 1)
			} else {
				require.Equal(t, "well", got)
				require.Len(t, d.Attempts, 2)
				require.Equal(t, c.outcome, d.Attempts[0].Outcome)
				require.NotEmpty(t, d.Attempts[0].Error)
			}
			h.requireIdle()
		})
	}
}

// TestGivenUpWithoutBudget: what cannot be tried again is the client's to see, unmodified,
// and counts once.
func TestGivenUpWithoutBudget(t *testing.T) {
	for _, s := range []*sayer{
		{kind: eventStream, pieces: []string{keepAlive, aborted + doneEvent}},
		{kind: "application/json", pieces: []string{`{"choices":[{"finish_reason":"abort"}]}`}},
	} {
		h := newHarnessWith(t, config.Proxy{}, s.ServeHTTP, s.ServeHTTP)
		resp := h.post(chat)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Equal(t, strings.Join(s.pieces, ""), h.read(resp))
		require.Equal(t, "in the stream: finish_reason abort", h.decision(resp.Header).Attempts[0].Error)
		h.requireIdle()
		require.Equal(t, int64(1), s.hits.Load())
		require.Equal(t, uint64(1), h.plane.Stats()[0].Failed+h.plane.Stats()[1].Failed)
	}
}

// TestCommentsReachTheClient: they are held for as long as holdTime, an engine that says
// nothing else may take as long as it likes, and what is read meanwhile is not lost.
func TestCommentsReachTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		b := newBubble(t, config.Proxy{RetryBudget: 1, FirstByteTimeout: config.Duration(holdTime / 2)}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", eventStream)
			_, _ = io.WriteString(w, keepAlive)
			w.(http.Flusher).Flush()
			<-goOn
			_, _ = io.WriteString(w, wordEvent+doneEvent)
		}))
		begin := time.Now()
		req, err := http.NewRequest(http.MethodPost, "http://front:80/v1/chat/completions", strings.NewReader(chat))
		require.NoError(t, err)
		resp, err := b.front.RoundTrip(req)
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		got := make([]byte, len(keepAlive))
		_, err = io.ReadFull(resp.Body, got)
		require.NoError(t, err)
		require.Equal(t, keepAlive, string(got))
		require.Equal(t, holdTime, time.Since(begin))
		close(goOn)
		rest, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, wordEvent+doneEvent, string(rest))
	})
}

// TestClientLeavesAHeldStream: the engine is told, and the piece that is being read is
// waited for before its memory serves others.
func TestClientLeavesAHeldStream(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			gone := make(chan struct{})
			b := newBubble(t, config.Proxy{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", eventStream)
				_, _ = io.WriteString(w, keepAlive)
				w.(http.Flusher).Flush()
				<-r.Context().Done()
				close(gone)
			}))
			wait := holdTime / 2
			if late {
				wait = 2 * holdTime
			}
			req, err := http.NewRequest(http.MethodPost, "http://front:80/v1/chat/completions", strings.NewReader(chat))
			require.NoError(t, err)
			client := http.Client{Transport: b.front, Timeout: wait}
			resp, err := client.Do(req)
			if late {
				require.NoError(t, err)
				_, err = io.ReadAll(resp.Body)
				require.NoError(t, resp.Body.Close())
			}
			require.ErrorIs(t, err, context.DeadlineExceeded)
			<-gone
			synctest.Wait()
			require.Zero(t, b.plane.Stats()[0].InFlight)
			require.Zero(t, b.plane.Stats()[0].Failed)
		})
	}
}

// FuzzOpening: the pieces in which a stream comes make no difference.
func FuzzOpening(f *testing.F) {
	f.Add(keepAlive+roleEvent+aborted, 3)
	f.Add("event: error\r\ndata: {\"error\":{\"type\":\"overloaded_error\"}}\r\n\r\n", 1)
	f.Add("data: {\"choices\":null}", 7)
	f.Fuzz(func(t *testing.T, stream string, n int) {
		var whole, pieces opening
		want := whole.stream([]byte(stream), true)
		got := undecided
		for end := 0; got == undecided && end < len(stream); {
			end = min(len(stream), end+max(n, 1)%64+1)
			got = pieces.stream([]byte(stream[:end]), end == len(stream))
		}
		if got != want || whole.why != pieces.why || whole.outcome != pieces.outcome {
			t.Fatalf("whole %v %+v, in pieces %v %+v", want, whole, got, pieces)
		}
		if got == broken && pieces.outcome == protect.Success {
			t.Fatal("a success is no reason to try again")
		}
	})
}
