package signals

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
)

// trtllm reads trtllm-serve at /prometheus/metrics, which needs
// return_perf_metrics, and enable_iter_perf_stats for the gauges. Its /metrics
// is never read: that hands out iteration statistics and forgets them, so that
// reading takes them from whoever they are for.
type trtllm struct {
	page   string
	motion motion
}

// trtllmNames gives the names with the prefix, and without, as early builds
// write them.
func trtllmNames(name string) []string { return []string{"trtllm_" + name, name} }

var trtllmTable = mustTable(Names{
	Running:          trtllmNames("num_requests_running"),
	Waiting:          trtllmNames("num_requests_waiting"),
	KVUsage:          trtllmNames("kv_cache_utilization"),
	Slots:            trtllmNames("max_num_active_requests"),
	PromptTokens:     trtllmNames("prompt_tokens_total"),
	GenerationTokens: trtllmNames("generation_tokens_total"),
}, perProcess,
	trtllmNames("kv_cache_max_blocks"), trtllmNames("kv_cache_tokens_per_block"),
	trtllmNames("kv_cache_reused_blocks_total"), trtllmNames("kv_cache_missed_blocks_total"),
	trtllmNames("iteration_latency_seconds"), trtllmNames("kv_cache_used_blocks"), trtllmNames("num_scheduled_requests"),
	trtllmNames("e2e_request_latency_seconds_count"))

// Read implements Adapter.
func (a *trtllm) Read(ctx context.Context, get Get) (Reading, error) {
	answer, err := get(ctx, a.page)
	if err != nil {
		return Reading{}, err
	}
	f := trtllmTable.find(answer.Page)
	r := f.reading()
	size := f.greatest(f.extra[1])
	r.KVTokens = times(f.sum(f.extra[0]), size)
	reused, missed := f.sum(f.extra[2]), f.sum(f.extra[3])
	r.PrefixHits, r.PrefixQueries = times(reused, size), times(plus(reused, missed), size)
	// Tokens are counted when a request ends. The iterations are not counted, but
	// no two take the same time.
	moved := a.motion.note([4]Opt{f.sum(f.extra[4]), f.sum(f.extra[5]), f.sum(f.extra[6])})
	r.Progress = together(r.PromptTokens, r.GenerationTokens, moved)
	if r.Values == (Values{}) && f.sum(f.extra[7]).Known {
		return Reading{}, errors.New("the page has requests' latencies only: trtllm-serve needs enable_iter_perf_stats")
	}
	return checked(r)
}

// triton reads Triton with the TensorRT-LLM backend. Its metrics have a port of
// their own.
type triton struct{ page string }

const tritonPort = "8002"

// tritonPage is where Triton's metrics are unless told otherwise.
func tritonPage(engine string) (string, error) {
	u, err := url.Parse(engine)
	if err != nil {
		return "", err
	}
	if u.Hostname() == "" {
		return "", fmt.Errorf("metrics of %q: say where they are", engine)
	}
	return "http://" + net.JoinHostPort(u.Hostname(), tritonPort) + "/metrics", nil
}

const (
	tritonRequests = "nv_trt_llm_request_metrics"
	tritonBlocks   = "nv_trt_llm_kv_cache_block_metrics"
)

var tritonTable = mustTable(Names{
	Running:  []string{tritonRequests + `{request_type="scheduled"}`},
	Waiting:  []string{tritonRequests + `{request_type="waiting"}`},
	Slots:    []string{tritonRequests + `{request_type="max"}`},
	KVUsage:  []string{tritonBlocks + `{kv_cache_block_type="fraction"}`},
	Progress: []string{`nv_trt_llm_general_metrics{general_type="iteration_counter"}`},
}, rule{}, []string{tritonBlocks + `{kv_cache_block_type="max"}`}, []string{tritonBlocks + `{kv_cache_block_type="tokens_per"}`})

// Read implements Adapter.
func (t triton) Read(ctx context.Context, get Get) (Reading, error) {
	f, r, err := tritonTable.read(ctx, get, t.page)
	if err != nil {
		return Reading{}, err
	}
	r.KVTokens = f.product(f.extra[0], f.extra[1], "kv_cache_block_type")
	return checked(r)
}

// product adds up, over the series that differ in more than the label, the
// numbers of one term times those of another: blocks times their size, by model.
// It is absent when one of them has no other.
func (f *found) product(terms, factors []term, label string) Opt {
	t, ok := f.first(terms)
	by, also := f.first(factors)
	if !ok || !also {
		return Opt{}
	}
	aside := []string{label}
	factor := map[uint64]float64{}
	total := 0.0
	for i := range f.samples {
		if s := &f.samples[i]; s.of(by) && !s.spoilt {
			factor[s.key(aside)] = s.value
		}
	}
	for i := range f.samples {
		s := &f.samples[i]
		if !s.of(t) {
			continue
		}
		size, there := factor[s.key(aside)]
		if !there || s.spoilt || size*s.value <= 0 {
			return Opt{}
		}
		total += size * s.value
	}
	return Some(total)
}

// nim reads NVIDIA NIM at /v1/metrics, or at /metrics as older ones have it. Its
// names have no prefix; newer ones pass on those of the engine within.
type nim struct {
	page string // "" until one of nimPages has answered
}

var nimPages = []string{"/v1/metrics", "/metrics"}

func nimNames(names ...string) []string {
	return append(append([]string{}, names...), vllmNames(names...)...)
}

var nimTable = mustTable(Names{
	Running:          nimNames("num_requests_running"),
	Waiting:          nimNames("num_requests_waiting"),
	KVUsage:          nimNames("gpu_cache_usage_perc", "kv_cache_usage_perc"),
	Slots:            nimNames("num_request_max"),
	PromptTokens:     nimNames("prompt_tokens_total"),
	GenerationTokens: nimNames("generation_tokens_total"),
	Preemptions:      nimNames("num_preemptions_total"),
	PrefixHits:       nimNames("prefix_cache_hits_total"),
	PrefixQueries:    nimNames("prefix_cache_queries_total"),
	Start:            []string{"process_start_time_seconds"},
}, perProcess)

// Read implements Adapter.
func (n *nim) Read(ctx context.Context, get Get) (Reading, error) {
	if n.page != "" {
		return plain{nimTable, n.page}.Read(ctx, get)
	}
	var first error
	for _, page := range nimPages {
		r, err := plain{nimTable, page}.Read(ctx, get)
		if err == nil {
			n.page = page
			return r, nil
		}
		if first == nil {
			first = err
		}
		var status *StatusError
		if !errors.As(err, &status) || status.Code != http.StatusNotFound {
			break
		}
	}
	return Reading{}, first
}
