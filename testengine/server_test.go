package testengine_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wardrop-lb/wardrop/enginemodel"
	"github.com/wardrop-lb/wardrop/testengine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a started engine and a client of it.
type rig struct {
	*testengine.Server
	t      *testing.T
	client *http.Client
}

func start(t *testing.T, c testengine.Config) rig {
	t.Helper()
	if c.Models == nil {
		c.Models = []string{"m"}
	}
	s, err := testengine.New(c)
	require.NoError(t, err)
	require.NoError(t, s.Start("127.0.0.1:0"))
	transport := &http.Transport{MaxIdleConnsPerHost: 1000}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		s.Close()
	})
	return rig{s, t, &http.Client{Transport: transport, Timeout: 20 * time.Second}}
}

func (r rig) request(ctx context.Context, path, body string) (*http.Response, error) {
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, r.URL()+path, strings.NewReader(body))
	require.NoError(r.t, err)
	return r.client.Do(req)
}

// call expects an answer and gives its status, body and headers.
func (r rig) call(path, body string) (int, string, http.Header) {
	r.t.Helper()
	resp, err := r.request(r.t.Context(), path, body)
	require.NoError(r.t, err)
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	return resp.StatusCode, string(b), resp.Header
}

func (r rig) eventually(what string, f func(testengine.Stats) bool) {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return f(r.Stats()) }, 10*time.Second, time.Millisecond, what)
}

func chat(prompt string, tokens int, more string) string {
	return fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}],"max_tokens":%d%s}`, prompt, tokens, more)
}

// chunk is an event of a stream, of either kind.
type chunk struct {
	Object  string
	Choices []struct {
		Delta        struct{ Role, Content string }
		Text         string
		FinishReason *string `json:"finish_reason"`
	}
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
	}
}

// events reads a stream to its end and gives its events, [DONE] left out; done
// says whether that came.
func events(t *testing.T, r io.Reader) (list []chunk, done bool, err error) {
	s := bufio.NewScanner(r)
	for s.Scan() {
		line := s.Text()
		if line == "" {
			continue
		}
		require.False(t, done, "nothing after [DONE]")
		data, ok := strings.CutPrefix(line, "data: ")
		require.True(t, ok, line)
		if data == "[DONE]" {
			done = true
			continue
		}
		var c chunk
		require.NoError(t, json.Unmarshal([]byte(data), &c), data)
		list = append(list, c)
	}
	return list, done, s.Err()
}

func TestChat(t *testing.T) {
	r := start(t, testengine.Config{Name: "e1", Seed: 9})
	code, body, header := r.call("/v1/chat/completions", chat("hello there", 5, ""))
	require.Equal(t, 200, code, body)
	require.Equal(t, "e1", header.Get("x-engine"))
	var got struct {
		Choices []struct {
			Message      struct{ Role, Content string }
			FinishReason string `json:"finish_reason"`
		}
		Usage map[string]int
	}
	require.NoError(t, json.Unmarshal([]byte(body), &got))
	require.Equal(t, testengine.Text(9, "hello there", 5), got.Choices[0].Message.Content)
	require.Equal(t, r.Text("hello there", 5), got.Choices[0].Message.Content)
	require.Equal(t, "length", got.Choices[0].FinishReason)
	require.Equal(t, map[string]int{"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}, got.Usage)
	require.NotEqual(t, testengine.Text(9, "hello", 5), testengine.Text(9, "hello there", 5))

	_, body, _ = r.call("/v1/completions", `{"model":"m","prompt":["a","b"]}`)
	require.Contains(t, body, r.Text("a\nb", 16))
	require.Contains(t, body, `"stop"`)
}

func TestStreams(t *testing.T) {
	r := start(t, testengine.Config{PromptTokens: 100})
	for path, body := range map[string]string{
		"/v1/chat/completions": chat("p", 40, `,"stream":true,"stream_options":{"include_usage":true}`),
		"/v1/completions":      `{"model":"m","prompt":"p","max_tokens":40,"stream":true,"stream_options":{"include_usage":true}}`,
	} {
		resp, err := r.request(t.Context(), path, body)
		require.NoError(t, err)
		require.Equal(t, "text/event-stream; charset=utf-8", resp.Header.Get("Content-Type"))
		list, done, err := events(t, resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.True(t, done)

		var text strings.Builder
		finished := 0
		for _, c := range list[:len(list)-1] {
			text.WriteString(c.Choices[0].Delta.Content + c.Choices[0].Text)
			if f := c.Choices[0].FinishReason; f != nil {
				require.Equal(t, "length", *f)
				finished++
			}
		}
		require.Equal(t, r.Text("p", 40), text.String())
		require.Equal(t, 1, finished)
		last := list[len(list)-1]
		require.Empty(t, last.Choices)
		require.Equal(t, 140, last.Usage.Total)
	}
	r.eventually("both are through", func(s testengine.Stats) bool { return s.Finished == 2 && s.Running == 0 })
}

func TestOtherPaths(t *testing.T) {
	r := start(t, testengine.Config{Models: []string{"m", "m2"}})
	code, body, _ := r.call("/v1/models", "")
	require.Equal(t, 200, code)
	require.Contains(t, body, `"id":"m2"`)

	code, _, _ = r.call("/health", "")
	require.Equal(t, 200, code)

	_, body, _ = r.call("/v1/embeddings", `{"model":"m2","input":["a","b","a"]}`)
	var got struct {
		Data []struct{ Embedding []float64 }
	}
	require.NoError(t, json.Unmarshal([]byte(body), &got))
	require.Len(t, got.Data, 3)
	require.Equal(t, got.Data[0], got.Data[2])
	require.NotEqual(t, got.Data[0], got.Data[1])
	_, body, _ = r.call("/v1/embeddings", `{"model":"m2","input":"a","encoding_format":"base64"}`)
	require.Contains(t, body, `"embedding":"`)
}

func TestRefusals(t *testing.T) {
	p := testengine.DefaultParams()
	p.Blocks = 10
	r := start(t, testengine.Config{Params: p})
	for body, want := range map[string]struct {
		code int
		text string
	}{
		`{"model":"x","messages":[{"content":"a"}]}`: {404, "The model `x` does not exist."},
		`{"model":"m","messages":[]}`:                {400, "messages"},
		`{"model":"m"`:                               {400, "JSON"},
		chat("a", 0, ""):                             {400, "max_tokens"},
		chat("a", 1000, ""):                          {400, "maximum context length is 160 tokens"},
	} {
		code, got, _ := r.call("/v1/chat/completions", body)
		require.Equal(t, want.code, code, got)
		require.Contains(t, got, want.text)
		var e struct{ Error struct{ Code int } }
		require.NoError(t, json.Unmarshal([]byte(got), &e))
		require.Equal(t, code, e.Error.Code)
	}
}

// slow is an engine whose requests do not end while a test runs.
func slow() enginemodel.Params {
	p := testengine.DefaultParams()
	p.Base, p.MaxBatch = 0.02, 2
	return p
}

func TestClientThatGoesCancelsAtOnce(t *testing.T) {
	r := start(t, testengine.Config{Params: slow()})
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for i := range 3 {
		clients.Go(func() {
			more := []string{"", `,"stream":true`}[i%2]
			resp, err := r.request(ctx, "/v1/chat/completions", chat("p", 10000, more))
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
	}
	r.eventually("two run, one waits", func(s testengine.Stats) bool { return s.Running == 2 && s.Waiting == 1 })
	cancel()
	clients.Wait()
	r.eventually("all have left", func(s testengine.Stats) bool {
		return s.Cancelled == 3 && s.Running == 0 && s.Waiting == 0
	})
	_, page, _ := r.call("/metrics", "")
	require.Contains(t, page, `vllm:request_success_total{engine="0",finished_reason="abort",model_name="m"}`)
	require.Contains(t, page, "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 0.0\n")
}

func TestCloseCutsOffWhatRuns(t *testing.T) {
	r := start(t, testengine.Config{Params: slow()})
	resp, err := r.request(t.Context(), "/v1/chat/completions", chat("p", 10000, `,"stream":true`))
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	r.Close()
	_, err = io.ReadAll(resp.Body)
	require.Error(t, err, "a stream that is cut off does not look finished")
	_, err = r.request(t.Context(), "/health", "")
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.Error(t, r.Start("127.0.0.1:0"))
}

func TestMetricsPage(t *testing.T) {
	r := start(t, testengine.Config{PromptTokens: 50})
	_, _, _ = r.call("/v1/chat/completions", chat("p", 12, ""))
	_, page, header := r.call("/metrics", "")
	require.Equal(t, "text/plain; version=0.0.4; charset=utf-8", header.Get("Content-Type"))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(page))
	require.NoError(t, err, page)
	value := func(name string) float64 {
		f := families[name]
		require.NotNil(t, f, name)
		m := f.Metric[0]
		return m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	require.Equal(t, 50.0, value("vllm:prompt_tokens_total"))
	require.Equal(t, 12.0, value("vllm:generation_tokens_total"))
	require.Equal(t, 0.0, value("vllm:num_requests_running"))
	require.Equal(t, 0.0, value("vllm:num_requests_waiting"))
	require.Equal(t, 0.0, value("vllm:kv_cache_usage_perc"))
	require.Equal(t, 0.0, value("vllm:num_preemptions_total"))
	require.Equal(t, uint64(1), families["vllm:time_to_first_token_seconds"].Metric[0].GetHistogram().GetSampleCount())
	require.Len(t, families["vllm:request_success_total"].Metric, 4)
	require.Contains(t, page, `num_gpu_blocks="4096"`)
}

// A single engine carries hundreds of streams and many thousand tokens a second.
func TestManyStreamsAreComplete(t *testing.T) {
	const streams, tokens = 200, 100
	p := testengine.DefaultParams()
	p.MaxBatch, p.Base = streams, 5e-3
	r := start(t, testengine.Config{Params: p})
	var clients sync.WaitGroup
	for i := range streams {
		clients.Go(func() {
			prompt := fmt.Sprint("stream ", i)
			resp, err := r.request(t.Context(), "/v1/chat/completions", chat(prompt, tokens, `,"stream":true`))
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = resp.Body.Close() }()
			var text bytes.Buffer
			list, done, err := events(t, resp.Body)
			for _, c := range list {
				text.WriteString(c.Choices[0].Delta.Content)
			}
			if err != nil || !done || text.String() != r.Text(prompt, tokens) {
				t.Errorf("stream %d: done %v, error %v, text %q", i, done, err, text.String())
			}
		})
	}
	clients.Wait()
	r.eventually("all are counted", func(s testengine.Stats) bool { return s.Finished == streams && s.Cancelled == 0 })
}

// TestPromptsThatBeginAlike holds the cache to whole blocks of text, and the answer's
// usage to what was in it.
func TestPromptsThatBeginAlike(t *testing.T) {
	s := start(t, testengine.Config{Models: []string{"m"}})
	prompt := strings.Repeat("All that was said before. ", 20) // 520 bytes: 131 tokens, 8 blocks of 16
	cached := func(prompt string) int64 {
		var a struct {
			Usage struct {
				Details struct {
					Cached int64 `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			} `json:"usage"`
		}
		body := fmt.Sprintf(`{"model":"m","prompt":%q,"max_tokens":1}`, prompt)
		resp, err := http.Post(s.URL()+"/v1/completions", "application/json", strings.NewReader(body))
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&a))
		return a.Usage.Details.Cached
	}
	require.Zero(t, cached(prompt))
	require.EqualValues(t, 8*16, cached(prompt+"And now this."))
	require.EqualValues(t, 4*16, cached(prompt[:4*64]+"Something else, and long enough that another block is whole."))
	require.Zero(t, cached("x"+prompt))
}
