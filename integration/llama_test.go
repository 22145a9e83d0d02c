package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/internal/testaddr"
)

// client is the official one; it does not retry, so that what fails is seen.
func client(base string) *openai.Client {
	c := openai.NewClient(option.WithBaseURL(base), option.WithAPIKey("none"), option.WithMaxRetries(0),
		option.WithRequestTimeout(time.Minute))
	return &c
}

func question(text string, tokens int64) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:     model,
		MaxTokens: openai.Int(tokens),
		Messages:  []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)},
	}
}

// toTheEnd has the model go on to the maximum. It is llama.cpp's own option.
var toTheEnd = option.WithJSONSet("ignore_eos", true)

// two gives two engines with wardrop in front of them.
func two(t *testing.T) (base string, engines []*llama) {
	t.Helper()
	engines = []*llama{startLlama(t, testaddr.Own(t)), startLlama(t, testaddr.Own(t))}
	return startWardrop(t, engines...), engines
}

// ask sends short requests one after the other, each of its own session, and
// gives the errors.
func ask(t *testing.T, base string, from, n int) (failed []error) {
	t.Helper()
	c := client(base)
	for i := from; i < from+n; i++ {
		got, err := c.Chat.Completions.New(t.Context(), question(fmt.Sprintf("Say the number %d.", i), 4),
			option.WithHeader("x-session-id", fmt.Sprint("session ", i)))
		if err != nil {
			var refused *openai.Error
			if errors.As(err, &refused) {
				err = fmt.Errorf("%w: %s", err, refused.RawJSON())
			}
			failed = append(failed, fmt.Errorf("request %d: %w", i, err))
			continue
		}
		require.Len(t, got.Choices, 1)
		require.NotEmpty(t, got.Choices[0].Message.Content)
		require.Positive(t, got.Usage.CompletionTokens)
	}
	return failed
}

func TestLlamaBothEnginesServe(t *testing.T) {
	base, engines := two(t)
	require.Empty(t, ask(t, base, 0, 16))
	for _, e := range engines {
		require.Positive(t, e.metric("llamacpp:tokens_predicted_total"), e.addr)
	}
	_, err := client(base).Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{
		Model: "other", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hello.")},
	})
	var refused *openai.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, 404, refused.StatusCode)
}

func TestLlamaStreamIsComplete(t *testing.T) {
	base, _ := two(t)
	params := question("Count from one to a hundred.", 40)
	params.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	stream := client(base).Chat.Completions.NewStreaming(t.Context(), params, toTheEnd)
	defer func() { _ = stream.Close() }()
	var whole openai.ChatCompletionAccumulator
	pieces := 0
	for stream.Next() {
		chunk := stream.Current()
		require.True(t, whole.AddChunk(chunk))
		if len(chunk.Choices) > 0 && chunk.Choices[0].Delta.Content != "" {
			pieces++
		}
	}
	require.NoError(t, stream.Err())
	require.Equal(t, int64(40), whole.Usage.CompletionTokens)
	require.Equal(t, "length", whole.Choices[0].FinishReason)
	require.NotEmpty(t, whole.Choices[0].Message.Content)
	require.Greater(t, pieces, 20, "it came in pieces")
}

func TestLlamaCancelledStreamFreesTheSlot(t *testing.T) {
	base, engines := two(t)
	working := func() bool { return engines[0].working() || engines[1].working() }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream := client(base).Chat.Completions.NewStreaming(ctx, question("Write a very long story about a ship.", 1800), toTheEnd)
	for range 5 {
		require.True(t, stream.Next(), "%v", stream.Err())
	}
	require.True(t, working())
	cancel()
	_ = stream.Close()
	// The rest of the story would take far longer than this.
	require.Eventually(t, func() bool { return !working() }, 3*time.Second, 20*time.Millisecond)
}

func TestLlamaAnEngineThatDiesCostsNoRequest(t *testing.T) {
	base, engines := two(t)
	require.Empty(t, ask(t, base, 0, 16), "the budget for retries fills with what is admitted")
	engines[0].stop(syscall.SIGKILL)
	require.Empty(t, ask(t, base, 100, 24))
	require.Positive(t, engines[1].metric("llamacpp:tokens_predicted_total"))

	back := startLlama(t, engines[0].addr)
	deadline := time.Now().Add(time.Minute)
	for n := 200; back.metric("llamacpp:tokens_predicted_total") == 0; n++ {
		require.True(t, time.Now().Before(deadline), "the engine that came back gets no request")
		require.Empty(t, ask(t, base, n, 1))
	}
}

// script executes a client's script and reads the JSON that it prints.
func script(t *testing.T, into any, name string, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).Output()
	if exit := (&exec.ExitError{}); err != nil {
		require.ErrorAs(t, err, &exit)
		t.Fatalf("%v: %s", err, exit.Stderr)
	}
	require.NoError(t, json.Unmarshal(out, into), string(out))
}

func TestLlamaPythonClient(t *testing.T) {
	python := real(t, "WARDROP_PYTHON")
	base, _ := two(t)
	var got struct {
		Models                []string
		Chat, Stream, Refused string
		StreamTokens          int `json:"stream_tokens"`
		CancelledAfter        int `json:"cancelled_after"`
	}
	script(t, &got, python, "testdata/client.py", base, model)
	require.Contains(t, got.Models, model)
	require.NotEmpty(t, got.Chat)
	require.NotEmpty(t, got.Stream)
	require.Equal(t, 24, got.StreamTokens)
	require.Equal(t, 3, got.CancelledAfter)
	require.Equal(t, "NotFoundError", got.Refused)
}

func TestLlamaAnthropicClient(t *testing.T) {
	python := real(t, "WARDROP_PYTHON")
	base, _ := two(t)
	var got struct {
		Text, Stream, Refused string
		OutputTokens          int    `json:"output_tokens"`
		StopReason            string `json:"stop_reason"`
		Counted               int
	}
	script(t, &got, python, "testdata/anthropic_client.py", strings.TrimSuffix(base, "/v1"), model)
	require.NotEmpty(t, got.Text)
	require.NotEmpty(t, got.Stream)
	require.Positive(t, got.OutputTokens)
	require.Positive(t, got.Counted)
	require.NotEmpty(t, got.StopReason)
	require.Equal(t, "NotFoundError", got.Refused)
}

func TestLlamaNodeClient(t *testing.T) {
	module := real(t, "WARDROP_NODE_OPENAI")
	base, _ := two(t)
	var got struct {
		Models                []string
		Chat, Stream, Refused string
		CancelledAfter        int `json:"cancelled_after"`
	}
	script(t, &got, "node", "testdata/client.mjs", module, base, model)
	require.Contains(t, got.Models, model)
	require.NotEmpty(t, got.Chat)
	require.NotEmpty(t, got.Stream)
	require.Equal(t, 3, got.CancelledAfter)
	require.Equal(t, "NotFoundError", got.Refused)
}
