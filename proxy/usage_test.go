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
	"pgregory.net/rapid"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/fleet"
)

func TestUsageAsEnginesSayIt(t *testing.T) {
	for name, c := range map[string]struct {
		text                   string
		prompt, output, cached int64
	}{
		"chat":           {`"usage":{"prompt_tokens":19,"completion_tokens":7,"total_tokens":26,"prompt_tokens_details":{"cached_tokens":16}}`, 19, 7, 16},
		"spaced":         {`"usage": {"prompt_tokens": 19, "completion_tokens": 7, "prompt_tokens_details": null}}`, 19, 7, 0},
		"running totals": {`{"usage":{"prompt_tokens":19,"completion_tokens":1}} {"usage":{"prompt_tokens":19,"completion_tokens":2}} {"usage":null}`, 19, 2, 0},
		"responses":      {`{"usage":{"input_tokens":5,"input_tokens_details":{"cached_tokens":4},"output_tokens":6,"output_tokens_details":{"reasoning_tokens":3},"total_tokens":11}}`, 5, 6, 4},
		"messages":       {`{"message":{"usage":{"input_tokens":5,"cache_creation_input_tokens":2,"cache_read_input_tokens":3,"output_tokens":1}}} {"usage":{"output_tokens":9}}`, 10, 9, 3},
		"embeddings":     {`{"usage":{"prompt_tokens":8,"total_tokens":8}}`, 8, 0, 0},
		"in a text":      {`{"content":"{\"usage\":{\"prompt_tokens\":1}}"}`, 0, 0, 0},
		"other units":    {`{"usage":{"type":"duration","seconds":12}}`, 0, 0, 0},
		"no number":      {`{"usage":{"prompt_tokens":"5","completion_tokens":null}}`, 0, 0, 0},
		"too large":      {`{"usage":{"prompt_tokens":99999999999999999999999,"completion_tokens":3}}`, 0, 3, 0},
		"another key":    {`{"my_usage":{"prompt_tokens":5}}`, 0, 0, 0},
		"cut off":        {`{"usage":{"prompt_tokens":12`, 0, 0, 0},
		"cut in a key":   {`{"usage":{"prompt_tokens":12,"compl`, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var u usage
			u.find([]byte(c.text))
			require.Equal(t, []int64{c.prompt, c.output, c.cached},
				[]int64{u.prompt + u.besideRead + u.besideWritten, u.output, u.cached + u.besideRead})
			require.Equal(t, c.prompt+c.output > 0, u.said)
		})
	}
}

// pieces cuts a text at random places.
func pieces(t *rapid.T, text string) (out []string) {
	for len(text) > 0 {
		n := rapid.IntRange(1, min(len(text), rapid.SampledFrom([]int{3, 80, 5000}).Draw(t, "most"))).Draw(t, "n")
		out, text = append(out, text[:n]), text[n:]
	}
	return out
}

// TestUsageHoweverAnAnswerIsCut: reads end anywhere.
func TestUsageHoweverAnAnswerIsCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := usage{said: true, prompt: rapid.Int64Range(0, 1e6).Draw(t, "prompt"), output: rapid.Int64Range(0, 1e6).Draw(t, "output"), cached: rapid.Int64Range(0, 1e6).Draw(t, "cached")}
		said := fmt.Sprintf(`"usage":{"prompt_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d},"completion_tokens":%d}`, want.prompt, want.cached, want.output)
		content := strings.Repeat(rapid.SampledFrom([]string{"word ", "}", `\"usage\":{`}).Draw(t, "word"), rapid.IntRange(0, 3000).Draw(t, "words"))
		after := strings.Repeat(" ", rapid.IntRange(0, 500).Draw(t, "after"))

		var s sseScanner
		for _, p := range pieces(t, `{"content":"`+content+`",`+said+after+`}`) {
			s.whole([]byte(p))
		}
		require.Equal(t, want, s.usage)

		s = sseScanner{}
		for _, p := range pieces(t, `data: {"delta":"`+content[:min(len(content), 4000)]+`","usage":null}`+"\n\ndata: {"+said+"}\n\ndata: [DONE]\n\n") {
			s.scan([]byte(p))
		}
		require.Equal(t, want, s.usage)
		require.Empty(t, s.failed)
	})
}

// FuzzUsage: what engines send is theirs, and sums of it must stay sums.
func FuzzUsage(f *testing.F) {
	f.Add([]byte(`{"usage":{"prompt_tokens":19,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":16}}}`), 20)
	f.Add([]byte(`"usage": {"a\"`), 3)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		cut = min(max(cut, 0), len(data))
		var whole, stream sseScanner
		for _, piece := range [][]byte{data[:cut], data[cut:]} {
			whole.whole(piece)
			stream.scan(piece)
		}
		for _, u := range []usage{whole.usage, stream.usage} {
			for _, n := range []int64{u.prompt, u.output, u.cached, u.besideRead, u.besideWritten} {
				if n < 0 || n >= mostTokens {
					t.Fatalf("%d is no number of tokens", n)
				}
			}
		}
		if len(whole.line) > usageTail {
			t.Fatal("memory is bounded")
		}
	})
}

// demand gives what the data plane reports of model m at a priority.
func (h *harness) demand(priority fleet.Priority) *pb.Demand {
	r := &pb.ReportRequest{}
	h.plane.memory.report(r, time.Now())
	for _, d := range r.Demands {
		if d.Priority == uint32(priority) {
			d.Rate, d.Window = 0, 0
			return d
		}
	}
	return nil
}

// TestDemandKnowsTokens learns them from whole answers and streams, and takes them from
// sizes where neither says.
func TestDemandKnowsTokens(t *testing.T) {
	var answer string
	h := newHarness(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		if strings.HasPrefix(answer, "data:") {
			w.Header().Set("Content-Type", "text/event-stream")
			w.(http.Flusher).Flush()
		}
		_, _ = io.WriteString(w, answer)
	})
	ask := func(text, body string, header ...string) {
		answer = text
		h.read(h.post(body, header...))
	}
	ask(`{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":100,"completion_tokens":20,"prompt_tokens_details":{"cached_tokens":64}}}`, chat)
	// Running totals: the last counts.
	ask("data: {\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":1}}\n\ndata: {\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n", chat)
	want := &pb.Demand{Model: "m", Priority: 1, Count: 2, Samples: 2, PromptTokens: 110, OutputTokens: 23, CachedTokens: 64}
	require.Equal(t, want.String(), h.demand(fleet.Standard).String())

	ask(strings.Repeat("data: {\"choices\":[]}\n\n", 12)+"data: [DONE]\n\n", chat)
	want.Count, want.Samples, want.Estimated = 3, 3, 1
	want.PromptTokens, want.OutputTokens = want.PromptTokens+uint64(len(chat)/bytesPerToken), want.OutputTokens+10
	require.Equal(t, want.String(), h.demand(fleet.Standard).String())

	ask(`{"choices":[{"message":{"content":"`+strings.Repeat("word ", 400)+`"}}]}`, chat, "X-Priority", "batch")
	batch := h.demand(fleet.Batch)
	require.Equal(t, []uint64{1, 1}, []uint64{batch.Samples, batch.Estimated})
	require.InDelta(t, 425, float64(batch.OutputTokens), 10)

	// What a client sends again is no demand, but work all the same.
	ask(`{"usage":{"prompt_tokens":1,"completion_tokens":1}}`, chat, "X-Priority", "critical", "X-Stainless-Retry-Count", "0")
	ask(`{"usage":{"prompt_tokens":1,"completion_tokens":1}}`, chat, "X-Priority", "critical", "X-Stainless-Retry-Count", "2")
	critical := h.demand(fleet.Critical)
	require.Equal(t, []uint64{1, 1, 2}, []uint64{critical.Count, critical.Retries, critical.Samples})
}

// TestDemandKnowsWhoLeft counts clients that go before and after the first byte.
func TestDemandKnowsWhoLeft(t *testing.T) {
	begun := make(chan struct{}, 2)
	h := newHarness(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Header.Get("X-Begin") != "" {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: {}\n\n")
			w.(http.Flusher).Flush()
		}
		begun <- struct{}{}
		<-r.Context().Done()
	})
	leave := func(begin string) {
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url+"/v1/chat/completions", strings.NewReader(chat))
		require.NoError(t, err)
		req.Header.Set("X-Begin", begin)
		go func() { <-begun; cancel() }()
		resp, err := h.client.Do(req)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
		}
		require.Error(t, err)
	}
	leave("")
	leave("yes")
	h.requireIdle()
	require.Eventually(t, func() bool { return h.demand(fleet.Standard).Cancelled == 2 }, 5*time.Second, time.Millisecond)
	d := h.demand(fleet.Standard)
	require.Equal(t, []uint64{2, 0}, []uint64{d.Count, d.Samples})
}
