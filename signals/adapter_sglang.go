package signals

import (
	"context"
	"encoding/json"
)

// sglang reads SGLang, started with --enable-metrics. Every rank of its tensor,
// pipeline and expert parallelism may write the same series, so these are copies;
// those of data parallelism add up.
type sglang struct {
	page   string
	slots  once
	motion motion
}

var sglangTable = mustTable(Names{
	Running:          []string{"sglang:num_running_reqs"},
	KVUsage:          []string{"sglang:token_usage", "sglang:full_token_usage"}, // the first is that of the fullest pool
	KVTokens:         []string{"sglang:max_total_num_tokens"},
	PromptTokens:     []string{"sglang:prompt_tokens_total"}, // those found in the cache counted
	GenerationTokens: []string{"sglang:generation_tokens_total"},
	Preemptions:      []string{"sglang:num_retracted_requests_total"},
	PrefixHits:       []string{"sglang:cached_tokens_total"},
	PrefixQueries:    []string{"sglang:prompt_tokens_total"},
	// How long the start took: it tells no time, but one run from the next.
	Start: []string{"sglang:engine_startup_time"},
}, rule{copies: []string{"pid", "tp_rank", "pp_rank", "moe_ep_rank"}, parts: "priority"},
	sglangQueue, sglangGrammar, sglangBootstrap, sglangPrealloc,
	sglangRealtime, sglangITL, sglangTTFT,
	[]string{"sglang:gen_throughput"}, []string{"sglang:num_used_tokens"}, sglangDecoded)

var (
	sglangQueue     = []string{"sglang:num_queue_reqs"}
	sglangGrammar   = []string{"sglang:num_grammar_queue_reqs"}
	sglangBootstrap = []string{"sglang:num_prefill_bootstrap_queue_reqs"}
	sglangPrealloc  = []string{"sglang:num_decode_prealloc_queue_reqs"}
	sglangRealtime  = []string{"sglang:realtime_tokens_total"}
	sglangDecoded   = []string{`sglang:realtime_tokens_total{mode="decode"}`}
	sglangITL       = []string{"sglang:inter_token_latency_seconds_count", "sglang:time_per_output_token_seconds_count"}
	sglangTTFT      = []string{"sglang:time_to_first_token_seconds_count"}
)

// Read implements Adapter.
func (g *sglang) Read(ctx context.Context, get Get) (Reading, error) {
	f, r, err := sglangTable.read(ctx, get, g.page)
	if err != nil {
		return Reading{}, err
	}
	if queued := f.sum(f.extra[0]); queued.Known {
		r.Waiting = together(queued, f.sum(f.extra[1]), f.sum(f.extra[2]), f.sum(f.extra[3]))
	}
	if r.PrefixHits.Known {
		// A request's sources are counted apart or as one, never both, so that they add up.
		r.PrefixHits.Value = min(r.PrefixHits.Value, r.PrefixQueries.Or(r.PrefixHits.Value))
	}
	r.Progress = g.progress(f, r)
	r.Emitted = f.sum(f.extra[9])
	running, _ := f.collect(f.terms[nRunning])
	r.Ranks = len(running)
	if r, err = checked(r); err != nil {
		return Reading{}, err
	}
	r.Slots = g.slots.learn(r.Start, func() Opt { return sglangSlots(ctx, get) })
	return r, nil
}

// progress counts what moves with the steps. SGLang adds a request's tokens at
// its end, which says nothing while a long one runs. What newer versions count
// at each step, the latencies that are observed as tokens come, and changes of
// the gauges that a step sets (alone during a long prefill) are evidence
// together; each may be missing.
func (g *sglang) progress(f *found, r Reading) Opt {
	moved := g.motion.note([4]Opt{f.sum(f.extra[7]), f.sum(f.extra[8]), r.KVUsage})
	return together(f.sum(f.extra[4]), f.sum(f.extra[5]), f.sum(f.extra[6]), moved)
}

// sglangSlots asks for the largest batch, which is no metric.
func sglangSlots(ctx context.Context, get Get) Opt {
	answer, err := get(ctx, "/get_server_info")
	if err != nil {
		return Opt{}
	}
	var info struct {
		DPSize      float64 `json:"dp_size"`
		MaxRunning  float64 `json:"max_running_requests"`
		PerInternal []struct {
			PerRank float64 `json:"effective_max_running_requests_per_dp"`
		} `json:"internal_states"`
	}
	if json.Unmarshal(answer.Body, &info) != nil {
		return Opt{}
	}
	if len(info.PerInternal) > 0 && info.PerInternal[0].PerRank > 0 {
		return Some(info.PerInternal[0].PerRank * max(1, info.DPSize))
	}
	if info.MaxRunning > 0 {
		return Some(info.MaxRunning)
	}
	return Opt{}
}
