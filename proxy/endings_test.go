package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
)

// hangs answers with what it is given, piece by piece, and then not until its client has gone.
func hangs(contentType string, pieces ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", contentType)
		for _, p := range pieces {
			_, _ = io.WriteString(w, p)
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
	}
}

// cuts is hangs that breaks the connection.
func cuts(contentType string, pieces ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		hangs(contentType, pieces...)(w, r.WithContext(ctx))
		panic(http.ErrAbortHandler)
	}
}

func fails(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		http.Error(w, "no", status)
	}
}

// events is an answer in events.
func events(text ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, strings.Join(text, ""))
	}
}

const (
	sseType = "text/event-stream"
	token   = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n"
	spoilt  = "data: {\"error\":{\"message\":\"out of memory\",\"code\":500}}\n\n"
)

// ending is how a request ends, and what is to be recorded of it.
type ending struct {
	settings config.Proxy
	engines  []http.HandlerFunc
	header   []string
	leaves   bool // the client leaves once it has read a token, or else at once when the engine has the request

	kept             Kept
	status           int
	refused, aborted string
	outcomes         string // of the attempts
	trouble          string // of the last
	words            string
}

var endings = map[string]ending{
	"as usual": {
		engines: []http.HandlerFunc{events(token)},
		kept:    KeptSample, status: 200, outcomes: "success", words: "The answer had status 200 and ended",
	},
	"gone before an answer": {
		engines: []http.HandlerFunc{hangs(sseType)}, leaves: true,
		kept: KeptSample, status: 499, refused: "client_closed", outcomes: "canceled", trouble: "context canceled", words: "had not begun to answer when it was called off after",
	},
	"gone during the answer": {
		engines: []http.HandlerFunc{hangs(sseType, token)}, leaves: true,
		kept: KeptSample, status: 200, aborted: "client_closed", outcomes: "success", words: "during the answer of status 200",
	},
	"no time before an answer": {
		engines: []http.HandlerFunc{hangs(sseType)}, header: []string{"X-Request-Timeout", "1100ms"},
		kept: KeptError, status: 504, refused: "deadline", outcomes: "canceled", trouble: "context deadline exceeded", words: "its time was up",
	},
	"no time during the answer": {
		engines: []http.HandlerFunc{hangs(sseType, token)}, header: []string{"X-Request-Timeout", "1100ms"},
		kept: KeptError, status: 200, aborted: "deadline", outcomes: "success", words: "was cut off",
	},
	"silent during the answer": {
		settings: config.Proxy{IdleTimeout: config.Duration(50 * time.Millisecond)}, engines: []http.HandlerFunc{hangs(sseType, token)},
		kept: KeptError, status: 200, aborted: "engine_failed", outcomes: "failure", trouble: errIdle.Error(), words: "It ended in failure after",
	},
	"cut off by the engine": {
		engines: []http.HandlerFunc{cuts(sseType, token)},
		kept:    KeptError, status: 200, aborted: "engine_failed", outcomes: "failure", trouble: "unexpected EOF", words: "(unexpected EOF)",
	},
	"cut off by the second engine": {
		engines: []http.HandlerFunc{fails(500), cuts(sseType, token)}, settings: config.Proxy{RetryBudget: 1},
		kept: KeptError, status: 200, aborted: "engine_failed", outcomes: "failure failure", trouble: "unexpected EOF", words: "failure after",
	},
	"an error in the stream": {
		engines: []http.HandlerFunc{events(token, spoilt)},
		kept:    KeptError, status: 200, outcomes: "failure", trouble: "in the stream: error event", words: "It ended in failure after",
	},
	"an error in the second stream": {
		engines: []http.HandlerFunc{fails(500), events(token, spoilt)}, settings: config.Proxy{RetryBudget: 1},
		kept: KeptError, status: 200, outcomes: "failure failure", trouble: "in the stream: error event", words: "(status 500)",
	},
	"at the second engine": {
		engines: []http.HandlerFunc{fails(503), events(token)}, settings: config.Proxy{RetryBudget: 1},
		kept: KeptRetry, status: 200, outcomes: "backpressure success", words: "(status 503)",
	},
	"no retry for a refusal": {
		engines: []http.HandlerFunc{fails(429)},
		kept:    KeptError, status: 429, outcomes: "backpressure", trouble: "status 429", words: "retries were left in the budget",
	},
	"no engine to be reached": {
		kept: KeptError, status: 503, refused: "no_engine", outcomes: "unreachable", trouble: "connection refused", words: "no engine could be reached",
	},
	"the client's error": {
		engines: []http.HandlerFunc{fails(400)},
		kept:    KeptSample, status: 400, outcomes: "success", words: "The answer had status 400",
	},
}

// Every way in which a request may end is recorded as what it was.
func TestEndings(t *testing.T) {
	for name, c := range endings {
		t.Run(name, func(t *testing.T) { c.play(t) })
	}
}

func (c *ending) play(t *testing.T) {
	engines := c.engines
	if engines == nil {
		engines = []http.HandlerFunc{events()}
	}
	h := newHarnessWith(t, c.settings, engines...)
	if c.engines == nil {
		h.engines[0].Close()
	}
	d := c.decision(h)
	require.Equal(t, []any{c.kept, c.status, c.refused, c.aborted}, []any{d.Kept, d.Status, d.Refused, d.Aborted}, "%+v", d)
	var outcomes []string
	for _, a := range d.Attempts {
		outcomes = append(outcomes, a.Outcome)
	}
	require.Equal(t, c.outcomes, strings.Join(outcomes, " "))
	last := d.Attempts[len(d.Attempts)-1]
	if c.trouble == "" {
		require.Empty(t, last.Error)
	} else {
		require.Contains(t, last.Error, c.trouble)
		require.Positive(t, last.FailedAfter)
	}
	require.Contains(t, strings.Join(d.Words(), "\n"), c.words)
}

// decision asks until the first engine is the one that is asked first.
func (c *ending) decision(h *harness) Decision {
	for n := 0; ; n++ {
		c.ask(h, fmt.Sprint("s", n))
		h.front()
		list := h.plane.Decisions(Wanted{})
		require.Len(h.t, list, n+1, "each is recorded, once")
		if d := list[n]; d.Attempts[0].Engine == "e0" {
			return d
		}
		require.Less(h.t, n, 20)
	}
}

func (c *ending) ask(h *harness, session string) {
	ctx, cancel := context.WithCancel(h.t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url+"/v1/chat/completions", strings.NewReader(`{"model":"m","stream":true,"messages":[]}`))
	require.NoError(h.t, err)
	req.Header.Set("X-Session-Id", session)
	for i := 0; i+1 < len(c.header); i += 2 {
		req.Header.Set(c.header[i], c.header[i+1])
	}
	if c.leaves && c.aborted == "" {
		done := make(chan error)
		go func() {
			_, err := h.client.Do(req) //nolint:bodyclose // there is none
			done <- err
		}()
		require.Eventually(h.t, func() bool { return h.inFlight() > 0 }, 5*time.Second, time.Millisecond)
		cancel()
		require.Error(h.t, <-done)
		return
	}
	resp, err := h.client.Do(req)
	require.NoError(h.t, err)
	defer func() { _ = resp.Body.Close() }()
	if c.leaves {
		_, err = resp.Body.Read(make([]byte, 10))
		require.NoError(h.t, err)
		return
	}
	_, err = io.Copy(io.Discard, resp.Body)
	require.Equal(h.t, c.aborted != "", err != nil, "what is cut off is seen to be")
}

// Who asks for a stored response that nobody has made is no retry and no error.
func TestEndingOfStoredResponses(t *testing.T) {
	h := newHarness(t, fails(404), fails(404), fails(404), fails(404), fails(404), fails(404))
	resp, err := h.client.Get(h.url + "/v1/responses/resp_1")
	require.NoError(t, err)
	h.wantError(resp, 404, "response_not_found")
	require.NoError(t, resp.Body.Close())
	h.front()
	d := h.plane.Decisions(Wanted{})[0]
	require.Equal(t, KeptSample, d.Kept)
	require.Len(t, d.Attempts, 6)
	require.Equal(t, "not_here", d.Attempts[5].Outcome)
	words := strings.Join(d.Words(), "\n")
	require.Contains(t, words, "request for a stored response")
	require.Contains(t, words, "e5 was asked and did not hold it.")
	require.NotContains(t, words, "Nothing tied")
}

// A decision says by which name its model was asked for.
func TestDecisionKnowsTheAlias(t *testing.T) {
	h := newHarness(t, answers(`{}`))
	h.plane.aliases = newAliases([]config.Alias{{Name: "best", To: map[string]float64{"m": 1}}})
	require.Equal(t, 200, h.post(strings.Replace(chat, `"m"`, `"best"`, 1)).StatusCode)
	h.front()
	d := h.plane.Decisions(Wanted{})[0]
	require.Equal(t, []string{"m", "best"}, []string{d.Model, d.Alias})
	for model, want := range map[string]int{"m": 1, "best": 1, "other": 0} {
		require.Len(t, h.plane.Decisions(Wanted{Model: model}), want)
	}
}

// What waited for room is slow, however fast its engine was then; what comes whole is not slow
// because others come as streams.
func TestWhatIsSlow(t *testing.T) {
	q := &request{record: record{queued: 10}, row: &rowState{}}
	h := newHarness(t, answers(`{}`))
	q.row = h.plane.table.Load().rows["m"]
	q.arrived = time.Now()
	a := &attempt{sent: q.arrived, waited: 10 * time.Millisecond}
	q.note(a)
	require.True(t, q.record.slow)
	for range 1000 {
		q.row.model.typical.Observe(0.01, 1)
	}
	for _, streams := range []bool{true, false} {
		q.record = record{}
		q.fields.Stream = streams
		a.waited = 900 * time.Millisecond
		q.note(a)
		require.Equal(t, streams, q.record.slow, "a second is what the plan says of the whole")
	}
}

// A long request counts for the time at which it ends: else the short ones that came meanwhile
// would leave it no place in the sample. A clock that is set back does not end the sample.
func TestLongRequestsAreOfTheSample(t *testing.T) {
	g := newRecords("i", "c", 10)
	put := func(arrived, seconds float64) {
		g.put(&record{sequence: g.next.Add(1), arrived: int64(arrived * 1e9), seconds: seconds, status: 200})
	}
	for i := range 100 {
		put(1000+float64(i), 0.1)
	}
	put(1000, 100)
	put(100, 0.1)
	require.Len(t, g.list(func(*record) bool { return true }), 102)
}

// What is remembered does not keep the names of engines that have gone.
func TestRecordsKeepFewNames(t *testing.T) {
	var urls []string
	for i := range 100 {
		urls = append(urls, fmt.Sprint("http://127.0.0.1:", i+1))
	}
	h := newHarness(t)
	require.NoError(t, h.plane.apply(evenSnapshot(urls...)))
	require.Equal(t, 503, h.post(chat, "X-Session-Id", "s").StatusCode)
	h.front()
	for i := range h.plane.records.notable.slots {
		if r := &h.plane.records.notable.slots[i].r; r.arrived != 0 {
			require.Less(t, cap(r.names), 33)
		}
	}
	require.NoError(t, Replay(strings.NewReader(string(exported(t, h.plane, Wanted{}))), func(r Replayed) { require.NoError(t, r.Err) }))
}
