package signals

import (
	"context"
	"encoding/json"
)

// llamacpp reads llama.cpp's server, started with --metrics. Its tokens are
// counted when a request ends; the calls of its decoder are counted as they
// happen and tell whether it works.
type llamacpp struct {
	start    string
	slots    Opt
	attempts int // to learn the slots, in this run of the engine
}

// maxSlotAttempts is how often the slots are asked for. They are optional, and
// a server may be told not to say.
const maxSlotAttempts = 3

const (
	llamaRunning  = "llamacpp:requests_processing"
	llamaWaiting  = "llamacpp:requests_deferred"
	llamaPrompt   = "llamacpp:prompt_tokens_total" // those found in the cache not counted
	llamaCached   = "llamacpp:prompt_tokens_cached_total"
	llamaPredict  = "llamacpp:tokens_predicted_total"
	llamaDecode   = "llamacpp:n_decode_total"
	llamaKVUsage  = "llamacpp:kv_cache_usage_ratio" // in old versions
	llamaStart    = "Process-Start-Time-Unix"
	llamaSlotPath = "/props"
)

var llamaWanted = nameSet([]string{llamaRunning, llamaWaiting, llamaPrompt, llamaCached, llamaPredict, llamaDecode, llamaKVUsage})

// Read implements Adapter.
func (l *llamacpp) Read(ctx context.Context, get Get) (Reading, error) {
	answer, err := get(ctx, "/metrics")
	if err != nil {
		return Reading{}, err
	}
	f := parse(answer.Page, llamaWanted)
	r := Reading{Start: answer.Header.Get(llamaStart)}
	r.Running = f.sum(llamaRunning)
	r.Waiting = f.sum(llamaWaiting)
	r.KVUsage = fraction(f.sum(llamaKVUsage))
	r.PromptTokens = f.sum(llamaPrompt)
	r.GenerationTokens = f.sum(llamaPredict)
	r.Progress = f.sum(llamaDecode)
	if hits := f.sum(llamaCached); hits.Known && r.PromptTokens.Known {
		r.PrefixHits = hits
		r.PrefixQueries = Some(hits.Value + r.PromptTokens.Value)
		r.PromptTokens = r.PrefixQueries
	}
	if r.Values == (Values{}) {
		return Reading{}, errNothing
	}
	r.Slots = l.learnSlots(ctx, get, r.Start)
	return r, nil
}

// learnSlots asks for the slots, once a run of the engine.
func (l *llamacpp) learnSlots(ctx context.Context, get Get, start string) Opt {
	if start != l.start {
		l.start, l.slots, l.attempts = start, Opt{}, 0
	}
	if l.slots.Known || l.attempts >= maxSlotAttempts {
		return l.slots
	}
	l.attempts++
	answer, err := get(ctx, llamaSlotPath)
	if err != nil {
		return Opt{}
	}
	var props struct {
		TotalSlots int `json:"total_slots"`
	}
	if json.Unmarshal(answer.Body, &props) == nil && props.TotalSlots > 0 {
		l.slots = Some(float64(props.TotalSlots))
	}
	return l.slots
}
