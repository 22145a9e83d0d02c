package signals

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pages is an engine that answers with what it holds, by path.
type pages map[string]Answer

func (p pages) get(_ context.Context, path string) (Answer, error) {
	a, ok := p[path]
	if !ok {
		return Answer{}, &StatusError{Path: path, Code: http.StatusNotFound}
	}
	return a, nil
}

func text(body string) Answer { return Answer{Page: Page{Body: []byte(body)}, Header: http.Header{}} }

func golden(t testing.TB, name string) Answer {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	return text(string(b))
}

func read(t testing.TB, kind string, p pages) (Reading, error) {
	t.Helper()
	a, err := NewAdapter(Target{Kind: kind, URL: "http://e"})
	require.NoError(t, err)
	return a.Read(t.Context(), p.get)
}

func TestVLLM(t *testing.T) {
	r, err := read(t, "vllm", pages{"/metrics": golden(t, "vllm.txt")})
	require.NoError(t, err)
	require.Equal(t, Reading{Start: "1795923418.87", Ranks: 1, Values: Values{
		Running: Some(7), Waiting: Some(4), KVUsage: Some(0.4375), KVTokens: Some(27895 * 16),
		PromptTokens: Some(1.5e6), GenerationTokens: Some(250000), Emitted: Some(250000), Preemptions: Some(2),
		PrefixHits: Some(600000), PrefixQueries: Some(1.5e6), Progress: Some(1.75e6),
	}}, r)
	require.False(t, r.Slots.Known, "vLLM does not say")
}

// The pages are those of a real vLLM on CPUs whose KV cache has 40 blocks: before its
// first request, with six long streams in it, and after.
func TestVLLMOfARealEngine(t *testing.T) {
	for name, want := range map[string]Values{
		"vllm_0.32.0_idle.txt": {
			Running: Some(0), Waiting: Some(0), KVUsage: Some(0), Preemptions: Some(0),
			PromptTokens: Some(0), GenerationTokens: Some(0), Emitted: Some(0), PrefixHits: Some(0), PrefixQueries: Some(0), Progress: Some(0),
		},
		"vllm_0.32.0_busy.txt": {
			Running: Some(2), Waiting: Some(4), KVUsage: Some(0.8717948717948718), Preemptions: Some(2),
			PromptTokens: Some(56), GenerationTokens: Some(8213), Emitted: Some(8213), PrefixHits: Some(0), PrefixQueries: Some(56), Progress: Some(56 + 8213),
		},
		"vllm_0.32.0_after.txt": {
			Running: Some(0), Waiting: Some(0), KVUsage: Some(0), Preemptions: Some(2),
			PromptTokens: Some(56), GenerationTokens: Some(8215), Emitted: Some(8215), PrefixHits: Some(0), PrefixQueries: Some(56), Progress: Some(56 + 8215),
		},
	} {
		want.KVTokens = Some(40 * 128)
		for _, kind := range []string{"vllm", "auto"} {
			r, err := read(t, kind, pages{"/metrics": golden(t, name)})
			require.NoError(t, err, name)
			require.Equal(t, Reading{Start: "1795994348.38", Ranks: 1, Values: want}, r, name)
		}
	}
}

func TestVLLMRanks(t *testing.T) {
	r, err := read(t, "vllm", pages{"/metrics": golden(t, "vllm_dp2.txt")})
	require.NoError(t, err)
	require.Equal(t, Values{
		Running: Some(10), Waiting: Some(5), KVUsage: Some(0.4375), KVTokens: Some(2 * 27895 * 16),
		PromptTokens: Some(2e6), GenerationTokens: Some(330000), Emitted: Some(330000), Preemptions: Some(2),
		PrefixHits: Some(700000), PrefixQueries: Some(2e6), Progress: Some(2.33e6),
	}, r.Values)
}

func TestVLLMOldNamesAndProcesses(t *testing.T) {
	r, err := read(t, "vllm", pages{"/metrics": golden(t, "vllm_old.txt")})
	require.NoError(t, err)
	require.Equal(t, Values{
		Running: Some(5), Waiting: Some(0), KVUsage: Some(0.62),
		PromptTokens: Some(1000), GenerationTokens: Some(77), Emitted: Some(77),
		PrefixHits: Some(250), PrefixQueries: Some(1000), Progress: Some(1077),
	}, r.Values, "the queue is empty, the preemptions are absent")
	require.Empty(t, r.Start)

	underRay := strings.ReplaceAll(string(golden(t, "vllm_old.txt").Body), "vllm:", "vllm_")
	ray, err := read(t, "vllm", pages{"/metrics": text(underRay)})
	require.NoError(t, err)
	require.Equal(t, r, ray)
}

func TestVLLMWithoutStatistics(t *testing.T) {
	for _, page := range []string{"", "process_start_time_seconds 1.7e9\n", "<html><body>502</body></html>", `{"a":1}`} {
		_, err := read(t, "vllm", pages{"/metrics": text(page)})
		require.ErrorIs(t, err, errNothing, page)
	}
	_, err := read(t, "vllm", pages{})
	var status *StatusError
	require.True(t, errors.As(err, &status))
	require.EqualError(t, err, "/metrics: 404 Not Found")
}

// The pages are those of a llama-server with two slots: before its first
// request, with four requests in it, and after.
func TestLlamaCPP(t *testing.T) {
	props := text(`{"total_slots":2,"model_path":"m.gguf"}`)
	for name, want := range map[string]Values{
		"llamacpp_idle.txt": {
			Running: Some(0), Waiting: Some(0), Slots: Some(2), PromptTokens: Some(0), GenerationTokens: Some(0),
			PrefixHits: Some(0), PrefixQueries: Some(0), Progress: Some(0),
		},
		"llamacpp_busy.txt": {
			Running: Some(2), Waiting: Some(2), Slots: Some(2), PromptTokens: Some(181), GenerationTokens: Some(87),
			PrefixHits: Some(108), PrefixQueries: Some(181), Progress: Some(113),
		},
	} {
		page := golden(t, name)
		page.Header.Set(llamaStart, "1271544203")
		r, err := read(t, "llamacpp", pages{"/metrics": page, "/props": props})
		require.NoError(t, err)
		require.Equal(t, Reading{Values: want, Start: "1271544203"}, r, name)
	}
	after, err := read(t, "llamacpp", pages{"/metrics": golden(t, "llamacpp_after.txt")})
	require.NoError(t, err)
	require.Equal(t, Some(0), after.Running)
	require.False(t, after.Slots.Known, "they are optional")
	require.Greater(t, after.Progress.Value, 113.0)
}

func TestLlamaCPPOldIdlePage(t *testing.T) {
	page := "llamacpp:predicted_tokens_seconds -nan\nllamacpp:kv_cache_usage_ratio -nan\nllamacpp:requests_processing 0\n"
	r, err := read(t, "llamacpp", pages{"/metrics": text(page)})
	require.NoError(t, err)
	require.Equal(t, Values{Running: Some(0)}, r.Values)
}

func TestLlamaCPPAsksForItsSlotsOnceARun(t *testing.T) {
	a, err := NewAdapter(Target{Kind: "llamacpp"})
	require.NoError(t, err)
	asked := 0
	page := golden(t, "llamacpp_idle.txt")
	slots := `{"total_slots":4}`
	get := func(_ context.Context, path string) (Answer, error) {
		if path == "/metrics" {
			return page, nil
		}
		asked++
		if slots == "" {
			return Answer{}, errors.New("refused")
		}
		return text(slots), nil
	}
	for range 5 {
		r, err := a.Read(t.Context(), get)
		require.NoError(t, err)
		require.Equal(t, Some(4), r.Slots)
	}
	require.Equal(t, 1, asked)

	page.Header.Set(llamaStart, "2")
	slots, asked = "", 0
	for range 5 {
		r, err := a.Read(t.Context(), get)
		require.NoError(t, err)
		require.False(t, r.Slots.Known, "the new run has not said")
	}
	require.Equal(t, maxLearn, asked)
}

func TestKinds(t *testing.T) {
	require.Equal(t, []string{"auto", "generic", "llamacpp", "lmdeploy", "nim", "none", "ollama", "orca", "sglang", "tgi", "triton", "trtllm", "vllm"}, Kinds())
	a, err := NewAdapter(Target{Kind: KindNone})
	require.NoError(t, err)
	require.Nil(t, a)
	_, err = NewAdapter(Target{Kind: "vlm"})
	require.EqualError(t, err, `unknown engine kind "vlm": want one of auto, generic, llamacpp, lmdeploy, nim, none, ollama, orca, sglang, tgi, triton, trtllm, vllm`)
}
