package testengine_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/testengine"
)

// still is an engine in virtual time, asked without sockets.
type still struct {
	*testengine.Server
	t *testing.T
}

// inBubble has a test run in virtual time.
func inBubble(t *testing.T, c testengine.Config, do func(e still)) {
	t.Helper()
	c.Models = []string{"m"}
	synctest.Test(t, func(t *testing.T) {
		s, err := testengine.New(c)
		require.NoError(t, err)
		defer s.Close()
		do(still{s, t})
	})
}

func (e still) call(path, body string) (int, string) {
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	w := httptest.NewRecorder()
	e.Handler().ServeHTTP(w, httptest.NewRequestWithContext(e.t.Context(), method, path, strings.NewReader(body)))
	return w.Code, w.Body.String()
}

// start sends a request and gives the answer when there is one.
func (e still) start(body string) <-chan string {
	answer := make(chan string, 1)
	go func() {
		_, got := e.call("/v1/chat/completions", body)
		answer <- got
	}()
	synctest.Wait()
	return answer
}

func (e still) shows(series ...string) {
	e.t.Helper()
	_, page := e.call("/metrics", "")
	for _, s := range series {
		require.Contains(e.t, page, s+"\n")
	}
}

const (
	running   = `vllm:num_requests_running{engine="0",model_name="m"} `
	waiting   = `vllm:num_requests_waiting{engine="0",model_name="m"} `
	kvUsage   = `vllm:kv_cache_usage_perc{engine="0",model_name="m"} `
	preempted = `vllm:num_preemptions_total{engine="0",model_name="m"} `
	generated = `vllm:generation_tokens_total{engine="0",model_name="m"} `
)

func TestLivelock(t *testing.T) {
	inBubble(t, testengine.Config{}, func(e still) {
		require.NoError(t, e.SetFaults(testengine.Faults{Livelock: true}))
		answer := e.start(chat("p", 4, ""))
		time.Sleep(time.Second)
		e.shows(running+"1.0", preempted+"100.0", generated+"0.0")
		code, _ := e.call("/health", "")
		require.Equal(t, 200, code)
		time.Sleep(time.Second)
		e.shows(running+"1.0", preempted+"200.0", generated+"0.0")
		require.Empty(t, answer)

		require.NoError(t, e.SetFaults(testengine.Faults{}))
		require.Contains(t, <-answer, e.Text("p", 4))
		e.shows(running+"0.0", preempted+"200.0", generated+"4.0")
	})
}

func TestFaultsEndByThemselves(t *testing.T) {
	inBubble(t, testengine.Config{}, func(e still) {
		require.NoError(t, e.SetFaults(testengine.Faults{State: testengine.Loading, For: 5}))
		for _, path := range []string{"/health", "/v1/models", "/metrics"} {
			code, _ := e.call(path, "")
			require.Equal(t, 503, code, path)
		}
		code, _ := e.call("/v1/chat/completions", chat("p", 1, ""))
		require.Equal(t, 503, code)
		time.Sleep(5*time.Second - 1)
		code, _ = e.call("/health", "")
		require.Equal(t, 503, code)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		code, _ = e.call("/v1/chat/completions", chat("p", 1, ""))
		require.Equal(t, 200, code)

		require.NoError(t, e.SetFaults(testengine.Faults{Fail: 500, For: 1}))
		require.NoError(t, e.SetFaults(testengine.Faults{Fail: 429}))
		time.Sleep(2 * time.Second)
		code, _ = e.call("/v1/chat/completions", chat("p", 1, ""))
		require.Equal(t, 429, code, "the end of the old ones does not end the new ones")
	})
}

func TestAsleep(t *testing.T) {
	inBubble(t, testengine.Config{}, func(e still) {
		stream := e.start(chat("p", 100, `,"stream":true`))
		whole := e.start(chat("p", 100, ""))
		time.Sleep(20 * time.Millisecond)
		require.NoError(t, e.SetFaults(testengine.Faults{State: testengine.Asleep}))
		got := <-stream
		require.Contains(t, got, `"finish_reason":"abort"`)
		require.True(t, strings.HasSuffix(got, "data: [DONE]\n\n"))
		require.Contains(t, <-whole, `"finish_reason":"abort"`)

		later := e.start(chat("q", 3, ""))
		time.Sleep(time.Minute)
		e.shows(running+"0.0", waiting+"1.0", `vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="awake"} 0.0`)
		code, _ := e.call("/health", "")
		require.Equal(t, 200, code)
		require.NoError(t, e.SetFaults(testengine.Faults{}))
		require.Contains(t, <-later, e.Text("q", 3))
		e.shows(`vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="awake"} 1.0`)
	})
}

func TestHealthWhileBusy(t *testing.T) {
	p := testengine.DefaultParams()
	p.PerPrefillToken = 0.01
	inBubble(t, testengine.Config{Params: p, PromptTokens: 1000}, func(e still) {
		require.NoError(t, e.SetFaults(testengine.Faults{HealthBusy: 503}))
		health := func() int {
			code, _ := e.call("/health", "")
			return code
		}
		require.Equal(t, 200, health())
		answer := e.start(chat("p", 1000, ""))
		time.Sleep(5 * time.Second)
		require.Equal(t, 503, health(), "in the prefill, which takes ten seconds")
		time.Sleep(5500 * time.Millisecond)
		require.Equal(t, 200, health(), "it generates")
		<-answer
	})
}

func TestPageThatTakesLong(t *testing.T) {
	inBubble(t, testengine.Config{}, func(e still) {
		require.NoError(t, e.SetFaults(testengine.Faults{Page: &testengine.Page{Wait: 3}}))
		begin := time.Now()
		e.shows(running + "0.0")
		require.Equal(t, 3*time.Second, time.Since(begin))
		ctx, cancel := context.WithTimeout(e.t.Context(), time.Second)
		defer cancel()
		w := httptest.NewRecorder()
		e.Handler().ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", nil))
		require.Equal(t, 4*time.Second, time.Since(begin), "a reader that goes ends it")
		require.Zero(t, w.Body.Len())
	})
}

// Some streams stand still after their headers while all else works.
func TestDeadStreams(t *testing.T) {
	r := start(t, testengine.Config{})
	r.faults(`{"dead_streams":2}`)
	var dead *http.Response
	for i := range 4 {
		resp, err := r.request(t.Context(), "/v1/chat/completions", chat("p", 5, `,"stream":true`))
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		if i%2 == 1 {
			dead = resp
			t.Cleanup(func() { _ = resp.Body.Close() })
			continue
		}
		_, done, err := events(t, resp.Body)
		require.NoError(t, err)
		require.True(t, done)
		_ = resp.Body.Close()
	}
	code, _, _ := r.call("/v1/chat/completions", chat("p", 5, ""))
	require.Equal(t, 200, code)
	r.eventually("what nobody gets is generated", func(s testengine.Stats) bool { return s.Finished == 5 })

	r.faults(`{}`)
	list, done, err := events(t, dead.Body)
	require.NoError(t, err)
	require.True(t, done)
	require.Len(t, list, 6, "it goes on, and has the role and five tokens")
}

func TestDraining(t *testing.T) {
	r := start(t, testengine.Config{Params: slow()})
	resp, err := r.request(t.Context(), "/v1/chat/completions", chat("p", 20, `,"stream":true`))
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	for body, want := range map[string]int{
		`{"state":"draining"}`:              503,
		`{"state":"draining","fail":500}`:   500, // as vLLM 0.32 does
		`{"state":"draining","health":503}`: 503,
	} {
		r.faults(body)
		code, _, _ := r.call("/v1/chat/completions", chat("p", 1, ""))
		require.Equal(t, want, code)
		health, _, _ := r.call("/health", "")
		require.Equal(t, strings.Contains(body, "health"), health == 503)
	}
	list, done, err := events(t, resp.Body)
	require.NoError(t, err)
	require.True(t, done, "what is in the engine is finished")
	require.Len(t, list, 21)
}

func TestBreaks(t *testing.T) {
	r := start(t, testengine.Config{})
	stream := func() string {
		code, body, _ := r.call("/v1/chat/completions", chat("p", 9, `,"stream":true`))
		require.Equal(t, 200, code)
		return body
	}
	const token = `"delta":{"content":"`
	whole := stream()
	require.Equal(t, 9, strings.Count(whole, token))

	r.faults(`{"break":{"how":"error","code":503}}`)
	got := stream()
	require.True(t, strings.HasPrefix(got, `data: {"error":{"code":503,`), got)
	require.True(t, strings.HasSuffix(got, "data: [DONE]\n\n"))
	code, body, _ := r.call("/v1/chat/completions", chat("p", 9, ""))
	require.Equal(t, 503, code)
	require.Contains(t, body, `"code":503`)

	r.faults(`{"break":{"how":"abort","after":4}}`)
	got = stream()
	require.Equal(t, 5, strings.Count(got, token), "four and an empty one")
	require.Contains(t, got, `"finish_reason":"abort"`)
	require.True(t, strings.HasSuffix(got, "data: [DONE]\n\n"))
	code, body, _ = r.call("/v1/chat/completions", chat("p", 9, ""))
	require.Equal(t, 200, code)
	require.Contains(t, body, `"finish_reason":"abort"`)
	require.Contains(t, body, `"completion_tokens":4`)

	r.faults(`{"break":{"how":"end","after":4}}`)
	got = stream()
	require.Equal(t, 4, strings.Count(got, token))
	require.NotContains(t, got, "[DONE]")
	require.Equal(t, strings.Count(got, "data: "), strings.Count(got, `"finish_reason":null`))
	_, body, _ = r.call("/v1/chat/completions", chat("p", 9, ""))
	require.NotContains(t, body, "usage")

	r.faults(`{"break":{"how":"end","after":9}}`)
	require.Equal(t, whole[:4], stream()[:4])
	require.Contains(t, stream(), "[DONE]", "an answer that is not longer is whole")
}

func TestShapes(t *testing.T) {
	r := start(t, testengine.Config{})
	stream := func(shape string) string {
		r.faults(`{"shape":["` + shape + `"]}`)
		code, body, _ := r.call("/v1/completions", `{"model":"m","prompt":"p","max_tokens":6,"stream":true}`)
		require.Equal(t, 200, code)
		return body
	}
	text := func(body string) string {
		list, done, err := events(t, strings.NewReader(body))
		require.NoError(t, err)
		require.True(t, done)
		var out strings.Builder
		for _, c := range list {
			if len(c.Choices) > 0 {
				out.WriteString(c.Choices[0].Text)
			}
		}
		return out.String()
	}
	got := stream("comments")
	require.True(t, strings.HasPrefix(got, ": keep-alive\n\n"))
	require.Equal(t, r.Text("p", 6), text(strings.ReplaceAll(got, ": keep-alive\n", "")))

	got = stream("empty")
	require.Contains(t, got[:strings.Index(got, "\n")], `"choices":[]`)
	require.Equal(t, r.Text("p", 6), text(got))

	got = stream("crlf")
	require.Equal(t, strings.Count(got, "\n"), strings.Count(got, "\r\n"))
	require.Equal(t, r.Text("p", 6), text(got))

	got = stream("usage")
	list, _, err := events(t, strings.NewReader(got))
	require.NoError(t, err)
	require.Len(t, list, 6)
	for i, c := range list {
		require.Equal(t, i+1, c.Usage.Completion)
	}
	require.Equal(t, r.Text("p", 6), text(got))
}

// Events leave in pieces: each chunk on the wire has a few bytes.
func TestSplitStream(t *testing.T) {
	r := start(t, testengine.Config{})
	r.faults(`{"shape":["split"]}`)
	conn, err := net.Dial("tcp", r.Addr())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	body := chat("p", 6, `,"stream":true`)
	_, err = fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: e\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	require.NoError(t, err)
	raw, err := io.ReadAll(conn)
	require.NoError(t, err)
	_, chunks, found := strings.Cut(string(raw), "\r\n\r\n")
	require.True(t, found)
	var whole strings.Builder
	for chunks != "" {
		size, rest, _ := strings.Cut(chunks, "\r\n")
		n, err := strconv.ParseUint(size, 16, 8)
		require.NoError(t, err)
		require.LessOrEqual(t, n, uint64(7))
		whole.WriteString(rest[:n])
		chunks = rest[n+2:]
	}
	list, done, err := events(t, strings.NewReader(whole.String()))
	require.NoError(t, err)
	require.True(t, done)
	require.Len(t, list, 7)
}

// The help names every fault there is.
func TestHelpIsComplete(t *testing.T) {
	for _, of := range []any{testengine.Faults{}, testengine.Break{}, testengine.Page{}, testengine.Show{}} {
		for i := range reflect.TypeOf(of).NumField() {
			name, _, _ := strings.Cut(reflect.TypeOf(of).Field(i).Tag.Get("json"), ",")
			require.Contains(t, testengine.Help, `"`+name+`":`, name)
		}
	}
}

func TestMoreFaultsAreChecked(t *testing.T) {
	r := start(t, testengine.Config{})
	for _, body := range []string{
		`{"state":"dead"}`, `{"dead_streams":-1}`, `{"for":-1}`, `{"health_busy":200}`, `{"shape":["round"]}`,
		`{"break":{}}`, `{"break":{"how":"reset"}}`, `{"break":{"how":"end","after":-1}}`, `{"break":{"how":"end","code":200}}`,
		`{"page":{"value":"1"}}`, `{"page":{"body":"xml"}}`, `{"page":{"ranks":-1}}`, `{"page":{"bytes":2000000000}}`,
		`{"page":{"wait":-1}}`, `{"page":{"status":200}}`, `{"page":{"size":1}}`,
	} {
		code, got, _ := r.call("/faults", body)
		require.Equal(t, http.StatusBadRequest, code, body)
		require.NotContains(t, got, "EOF")
	}
	require.Equal(t, testengine.Faults{}, r.Faults())
}
