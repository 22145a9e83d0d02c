package signals

import (
	"context"
	"hash/maphash"
	"strconv"
)

// vllm reads vLLM. Its series carry the rank in the label engine; counts add up
// over the ranks and the fullest KV cache speaks for all.
type vllm struct{ page string }

// The names, newest first. Of the reasons to wait, all count: a request that
// waits for its adapter or its KV transfer is in the engine just as well.
var vllmTable = mustTable(Names{
	Running:          vllmNames("num_requests_running"),
	Waiting:          vllmNames("num_requests_waiting", "num_requests_waiting_by_reason"),
	KVUsage:          vllmNames("kv_cache_usage_perc", "gpu_cache_usage_perc"),
	PromptTokens:     vllmNames("prompt_tokens_total", "prompt_tokens"),
	GenerationTokens: vllmNames("generation_tokens_total", "generation_tokens"),
	Preemptions:      vllmNames("num_preemptions_total", "num_preemptions"),
	PrefixHits:       vllmNames("prefix_cache_hits_total", "prefix_cache_hits", "gpu_prefix_cache_hits_total", "gpu_prefix_cache_hits"),
	PrefixQueries:    vllmNames("prefix_cache_queries_total", "prefix_cache_queries", "gpu_prefix_cache_queries_total", "gpu_prefix_cache_queries"),
	Start:            append([]string{"process_start_time_seconds"}, vllmNames("generation_tokens_created")...),
}, perProcess, vllmNames("cache_config_info"))

// perProcess is the rule for engines of which several processes may write the
// same series.
var perProcess = rule{copies: []string{"pid"}}

// vllmNames gives the names with the prefix; a vLLM under Ray writes _ for the
// colon.
func vllmNames(names ...string) []string {
	var out []string
	for _, n := range names {
		out = append(out, "vllm:"+n, "vllm_"+n)
	}
	return out
}

// Read implements Adapter.
func (v vllm) Read(ctx context.Context, get Get) (Reading, error) {
	f, r, err := vllmTable.read(ctx, get, v.page)
	if err != nil {
		return Reading{}, err
	}
	r.KVTokens = f.vllmCacheTokens(f.extra[0])
	r.Emitted = r.GenerationTokens
	running, _ := f.collect(f.terms[nRunning])
	r.Ranks = len(running)
	return checked(r)
}

// vllmCacheTokens adds up the KV caches of the ranks. What vLLM says of them
// stands in labels.
func (f *found) vllmCacheTokens(terms []term) Opt {
	t, ok := f.first(terms)
	if !ok {
		return Opt{}
	}
	total := 0.0
	ranks := f.scratch[:0]
	for i := range f.samples {
		s := &f.samples[i]
		if !s.of(t) {
			continue
		}
		rank := maphash.Bytes(hashSeed, s.raw("engine"))
		if _, there := position(ranks, rank, nil); there {
			continue
		}
		if ranks = append(ranks, series{key: rank}); len(ranks) > maxRanks {
			return Opt{}
		}
		size, ok := s.cacheTokens()
		if !ok {
			return Opt{} // "None" until the cache is there
		}
		total += size
	}
	if total == 0 {
		return Opt{}
	}
	return Some(total)
}

// maxRanks bounds the ranks of one engine whose sizes are looked at.
const maxRanks = 1024

// cacheTokens is the size of one rank's cache. Newer versions give it: where
// layers differ it is not blocks times their size.
func (s *sample) cacheTokens() (float64, bool) {
	if n, err := strconv.ParseUint(string(s.raw("kv_cache_size_tokens")), 10, 48); err == nil && n > 0 {
		return float64(n), true
	}
	blocks, err := strconv.ParseUint(string(s.raw("num_gpu_blocks")), 10, 32)
	if err != nil {
		return 0, false
	}
	size, err := strconv.ParseUint(string(s.raw("block_size")), 10, 32)
	return float64(blocks) * float64(size), err == nil
}
