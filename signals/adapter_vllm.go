package signals

import (
	"context"
	"strconv"
)

// vllm reads vLLM. Its series carry the rank in the label engine; counts add up
// over the ranks and the fullest KV cache speaks for all.
type vllm struct{}

// The names, newest first. A vLLM under Ray writes _ for the colon.
var (
	vllmRunning     = vllmNames("num_requests_running")
	vllmWaiting     = vllmNames("num_requests_waiting") // those deferred for other reasons than room included
	vllmKVUsage     = vllmNames("kv_cache_usage_perc", "gpu_cache_usage_perc")
	vllmPrompt      = vllmNames("prompt_tokens_total", "prompt_tokens")
	vllmGeneration  = vllmNames("generation_tokens_total", "generation_tokens")
	vllmPreemptions = vllmNames("num_preemptions_total", "num_preemptions")
	vllmHits        = vllmNames("prefix_cache_hits_total", "prefix_cache_hits", "gpu_prefix_cache_hits_total", "gpu_prefix_cache_hits")
	vllmQueries     = vllmNames("prefix_cache_queries_total", "prefix_cache_queries", "gpu_prefix_cache_queries_total", "gpu_prefix_cache_queries")
	vllmCache       = vllmNames("cache_config_info")
	vllmStart       = []string{"process_start_time_seconds", "vllm:generation_tokens_created"}
)

func vllmNames(names ...string) []string {
	var out []string
	for _, n := range names {
		out = append(out, "vllm:"+n, "vllm_"+n)
	}
	return out
}

var vllmWanted = nameSet(vllmRunning, vllmWaiting, vllmKVUsage, vllmPrompt, vllmGeneration,
	vllmPreemptions, vllmHits, vllmQueries, vllmCache, vllmStart)

func nameSet(lists ...[]string) map[string]bool {
	set := map[string]bool{}
	for _, l := range lists {
		for _, n := range l {
			set[n] = true
		}
	}
	return set
}

// Read implements Adapter.
func (vllm) Read(ctx context.Context, get Get) (Reading, error) {
	answer, err := get(ctx, "/metrics")
	if err != nil {
		return Reading{}, err
	}
	f := parse(answer.Page, vllmWanted)
	r := Reading{Start: start(f, vllmStart)}
	r.Running = f.sum(vllmRunning...)
	r.Waiting = f.sum(vllmWaiting...)
	r.KVUsage = fraction(f.greatest(vllmKVUsage...))
	r.KVTokens = vllmCacheTokens(f.first(vllmCache))
	r.PromptTokens = f.sum(vllmPrompt...)
	r.GenerationTokens = f.sum(vllmGeneration...)
	r.Preemptions = f.sum(vllmPreemptions...)
	r.PrefixHits = f.sum(vllmHits...)
	r.PrefixQueries = f.sum(vllmQueries...)
	if r.PromptTokens.Known && r.GenerationTokens.Known {
		r.Progress = Some(r.PromptTokens.Value + r.GenerationTokens.Value)
	}
	// A server without log statistics answers with a page that has none of them.
	if r.Values == (Values{}) {
		return Reading{}, errNothing
	}
	return r, nil
}

// vllmCacheTokens adds up the KV caches of the ranks. What vLLM says of them
// stands in labels.
func vllmCacheTokens(info []sample) Opt {
	total, ranks := 0.0, map[string]bool{}
	for _, s := range info {
		rank := s.label("engine")
		if ranks[rank] {
			continue
		}
		ranks[rank] = true
		blocks, err := strconv.ParseUint(s.label("num_gpu_blocks"), 10, 32)
		if err != nil {
			return Opt{} // "None" until the cache is there
		}
		size, err := strconv.ParseUint(s.label("block_size"), 10, 32)
		if err != nil {
			return Opt{}
		}
		total += float64(blocks) * float64(size)
	}
	if total == 0 {
		return Opt{}
	}
	return Some(total)
}

// fraction bounds to 1 what rounding may bring above it, and makes absent what
// is no fraction.
func fraction(o Opt) Opt {
	if o.Value > 1.01 {
		return Opt{}
	}
	o.Value = min(o.Value, 1)
	return o
}

// start names the run by the first of the series that the page has.
func start(f families, names []string) string {
	for _, s := range f.first(names) {
		if !s.spoilt {
			return strconv.FormatFloat(s.value, 'f', -1, 64)
		}
	}
	return ""
}
