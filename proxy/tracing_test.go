package proxy

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/route"
)

// traced is a harness whose spans are kept.
type traced struct {
	*harness
	spans *tracetest.SpanRecorder
}

func newTraced(t *testing.T, settings config.Proxy, sampler trace.Sampler, engines ...http.HandlerFunc) *traced {
	t.Helper()
	x := &traced{newHarnessWith(t, settings, engines...), tracetest.NewSpanRecorder()}
	provider := trace.NewTracerProvider(trace.WithSpanProcessor(x.spans), trace.WithSampler(sampler))
	x.plane.tracing = newTracing(provider)
	return x
}

// attributes are a span's, by their names.
func attributes(s trace.ReadOnlySpan) map[string]any {
	out := map[string]any{}
	for _, a := range s.Attributes() {
		out[string(a.Key)] = a.Value.AsInterface()
	}
	return out
}

const clientsParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// A request's span goes on from the client's, and the engine's goes on from the attempt's.
func TestSpans(t *testing.T) {
	var mu sync.Mutex
	var parents []string
	engine := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			mu.Lock()
			parents = append(parents, r.Header.Get("Traceparent"))
			mu.Unlock()
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"usage":{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":5}}}`)
		}
	}
	x := newTraced(t, config.Proxy{RetryBudget: 1}, trace.ParentBased(trace.NeverSample()), engine(500), engine(200))
	session := ""
	for i := range 20 { // one whose first engine is the broken one
		parents = nil
		x.spans.Reset()
		session = strings.Repeat("s", i+1)
		resp := x.post(`{"model":"m","max_tokens":9,"messages":[]}`, "Traceparent", clientsParent, "Tracestate", "a=b", "X-Session-Id", session)
		require.Equal(t, 200, resp.StatusCode)
		x.read(resp)
		if resp.Header.Get("X-Wardrop-Attempts") == "2" {
			break
		}
	}
	x.front()
	spans := x.spans.Ended()
	require.Len(t, spans, 3)
	first, second, request := spans[0], spans[1], spans[2]
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", request.SpanContext().TraceID().String())
	require.Equal(t, "b7ad6b7169203331", request.Parent().SpanID().String())
	require.Equal(t, "POST /v1/chat/completions", request.Name())
	a := attributes(request)
	require.Equal(t, "1.1", a["wardrop.plan"])
	require.Equal(t, "session", a["wardrop.key"])
	require.EqualValues(t, 2, a["wardrop.attempts"])
	require.EqualValues(t, 200, a["http.response.status_code"])
	require.Equal(t, codes.Unset, request.Status().Code)
	d, ok := x.plane.Decision(a["wardrop.decision"].(string))
	require.True(t, ok)
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", d.Trace)

	for i, s := range []trace.ReadOnlySpan{first, second} {
		require.Equal(t, "chat m", s.Name())
		require.Equal(t, request.SpanContext().SpanID(), s.Parent().SpanID())
		require.Equal(t, "00-0af7651916cd43dd8448eb211c80319c-"+s.SpanContext().SpanID().String()+"-01", parents[i])
		require.Equal(t, "chat", attributes(s)["gen_ai.operation.name"])
		require.Equal(t, "m", attributes(s)["gen_ai.request.model"])
		require.EqualValues(t, 9, attributes(s)["gen_ai.request.max_tokens"])
		require.Equal(t, "127.0.0.1", attributes(s)["server.address"])
		require.InDelta(t, 0.5, attributes(s)["wardrop.weight"], 1e-9)
	}
	require.Equal(t, codes.Error, first.Status().Code)
	require.Equal(t, "failure", attributes(first)["error.type"])
	b := attributes(second)
	require.EqualValues(t, 7, b["gen_ai.usage.input_tokens"])
	require.EqualValues(t, 3, b["gen_ai.usage.output_tokens"])
	require.EqualValues(t, 5, b["gen_ai.usage.cache_read.input_tokens"])
	require.Positive(t, b["gen_ai.response.time_to_first_chunk"])
}

// front waits until no handler runs any more: spans end after the answer.
func (h *harness) front() {
	h.t.Helper()
	h.client.CloseIdleConnections()
	h.requireIdle()
	require.Eventually(h.t, func() bool {
		return h.plane.records.sample.next.Load()+h.plane.records.notable.next.Load() == h.plane.records.next.Load()
	}, 5e9, 1e6)
}

// What is not sampled leaves no span, but the engine is told so; and without a tracer the client's
// headers pass as they are.
func TestSpansThatAreNotSampled(t *testing.T) {
	var got http.Header
	engine := func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		answers(`{}`)(w, r)
	}
	x := newTraced(t, config.Proxy{}, trace.ParentBased(trace.AlwaysSample()), engine)
	require.Equal(t, 200, x.post(chat, "Traceparent", strings.TrimSuffix(clientsParent, "1")+"0").StatusCode)
	require.Empty(t, x.spans.Ended())
	require.Regexp(t, "^00-0af7651916cd43dd8448eb211c80319c-[0-9a-f]{16}-00$", got.Get("Traceparent"))
	require.NotContains(t, got.Get("Traceparent"), "b7ad6b7169203331")

	x.plane.tracing = tracing{}
	resp := x.post(chat, "Traceparent", clientsParent, "Tracestate", "a=b")
	require.Equal(t, clientsParent, got.Get("Traceparent"))
	require.Equal(t, "a=b", got.Get("Tracestate"))
	x.front()
	d, ok := x.plane.Decision(resp.Header.Get("X-Wardrop-Decision"))
	require.True(t, ok)
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", d.Trace)
	require.Equal(t, 200, x.post(chat, "Traceparent", "nonsense").StatusCode)
	require.Equal(t, "nonsense", got.Get("Traceparent"))
}

// A refusal has a span too, and one that the client's fault is no error.
func TestSpansOfRefusals(t *testing.T) {
	x := newTraced(t, config.Proxy{}, trace.AlwaysSample(), answers(`{}`))
	require.Equal(t, 404, x.post(`{"model":"ghost"}`).StatusCode)
	x.engines[0].Close()
	require.Equal(t, 503, x.post(chat).StatusCode)
	x.front()
	spans := x.spans.Ended()
	require.Len(t, spans, 3)
	require.Equal(t, "model_not_found", attributes(spans[0])["wardrop.refused"])
	require.Equal(t, codes.Unset, spans[0].Status().Code)
	require.Equal(t, "unreachable", attributes(spans[1])["error.type"])
	require.Equal(t, codes.Error, spans[2].Status().Code)
}

// Whatever clients write, spans stay small and can be sent; and an engine is told of no state of a
// trace that could not be read.
func TestSpansOfHostileRequests(t *testing.T) {
	var got http.Header
	engine := func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		answers(`{}`)(w, r)
	}
	x := newTraced(t, config.Proxy{}, trace.AlwaysSample(), engine)
	do := func(method, path, kind, body string) {
		req, err := http.NewRequest(method, x.url+path, strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", kind)
		resp, err := x.client.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	do("POST", "/v1/audio/translations", "multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n\xff\xfe\r\n--b--\r\n")
	do("GET", "/v1/responses/%ff"+strings.Repeat("x", 100_000), "", "")
	do(strings.Repeat("M", 1000), "/v1/responses/a", "", "")
	require.Equal(t, 200, x.post(chat, "Traceparent", "00-nonsense", "Tracestate", "a=b").StatusCode)
	require.Empty(t, got["Tracestate"])
	require.Len(t, got["Traceparent"], 1)
	x.front()
	spans := x.spans.Ended()
	require.Greater(t, len(spans), 5)
	for _, s := range spans {
		require.NotEmpty(t, s.Name())
		require.Less(t, len(s.Name()), 100)
		for _, a := range s.Attributes() {
			require.True(t, utf8.ValidString(a.Value.AsString()), "%s", a.Key)
			require.Less(t, len(a.Value.AsString()), maxAttribute+10, "%s", a.Key)
		}
		require.True(t, utf8.ValidString(s.Status().Description))
	}
}

// Who is called off is no error of the engine; what is cut off is one of the request, whatever its status.
func TestSpansOfEndings(t *testing.T) {
	for name, want := range map[string][2]codes.Code{
		"gone before an answer": {codes.Unset, codes.Unset}, "gone during the answer": {codes.Unset, codes.Unset}, "cut off by the engine": {codes.Error, codes.Error},
		"no time during the answer": {codes.Unset, codes.Error}, "an error in the stream": {codes.Error, codes.Unset},
	} {
		c := endings[name]
		x := newTraced(t, c.settings, trace.AlwaysSample(), c.engines...)
		c.ask(x.harness, "s")
		x.front()
		spans := x.spans.Ended()
		require.Len(t, spans, 2, name)
		require.Equal(t, want, [2]codes.Code{spans[0].Status().Code, spans[1].Status().Code}, name)
	}
}

// The loser of a hedge has a span, and failed in nothing.
func TestSpansOfHedges(t *testing.T) {
	x := newTraced(t, config.Proxy{RetryBudget: 1, HedgeAfter: config.Duration(20 * time.Millisecond)}, trace.AlwaysSample(), hangs(sseType), events(token))
	for i := 0; len(x.spans.Ended()) < 3; i++ {
		x.spans.Reset()
		x.read(x.post(`{"model":"m","stream":true,"messages":[]}`, "X-Session-Id", fmt.Sprint(i)))
		x.front()
		x.plane.background.Wait()
	}
	for _, s := range x.spans.Ended() {
		require.Equal(t, codes.Unset, s.Status().Code, "%s %v", s.Name(), s.Status())
	}
	list := x.plane.Decisions(Wanted{Kept: KeptRetry})
	require.Equal(t, []string{"e0 outrun", "e1 success"}, []string{list[0].Attempts[0].Engine + " " + list[0].Attempts[0].Outcome, list[0].Attempts[1].Engine + " " + list[0].Attempts[1].Outcome})
}

func TestOperations(t *testing.T) {
	for path, want := range map[string]string{
		"/v1/chat/completions": "chat", "/v1/messages": "chat", "/v1/responses": "chat", "/v1/completions": "text_completion", "/v1/embeddings": "embeddings",
		"/v1/audio/speech": "speech", "/tokenize": "tokenize", storedPath: "stored_response",
	} {
		require.Equal(t, want, operationOf(path))
	}
	require.Equal(t, []attribute.KeyValue{attribute.String("server.address", "host"), attribute.Int("server.port", 80)}, serverOf(&url.URL{Scheme: "http", Host: "host:80"}))
}

// What spans cost a request, which has one attempt: without a tracer, with one that does not sample it,
// and with one that does.
func BenchmarkSpans(b *testing.B) {
	discard := trace.NewTracerProvider(trace.WithSampler(trace.NeverSample()))
	sampled := trace.NewTracerProvider(trace.WithSampler(trace.AlwaysSample()))
	for _, c := range []struct {
		name string
		with tracing
	}{{"none", tracing{}}, {"not sampled", newTracing(discard)}, {"sampled", newTracing(sampled)}} {
		b.Run(c.name, func(b *testing.B) {
			row := &rowState{Row: route.New(evenSnapshot("http://127.0.0.1:1"), route.NewFlights(), 0.5, nil).Row("m"), targets: []targetState{{base: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}}}}
			r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", nil)
			b.ReportAllocs()
			for b.Loop() {
				q := &request{r: r, ctx: r.Context(), row: row}
				c.with.begin(q)
				a := attempt{span: c.with.attempt(q.ctx, q, 0, http.Header{})}
				a.endSpan()
				if q.span != nil {
					c.with.end(q, "i-1", "c")
				}
			}
		})
	}
}
