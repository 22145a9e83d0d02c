package testengine

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// metrics is what the engine counts beyond the model's own gauges.
type metrics struct {
	mu       sync.Mutex
	buckets  [len(ttftBounds) + 1]uint64 // not cumulative
	sum      float64
	finished map[string]uint64
}

// ttftBounds are vLLM's, in seconds.
var ttftBounds = [...]float64{
	0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1,
	2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
}

var finishReasons = []string{"stop", "length", "abort", "error"}

func (m *metrics) firstToken(d time.Duration) {
	i, _ := slices.BinarySearch(ttftBounds[:], d.Seconds())
	m.mu.Lock()
	m.buckets[i]++
	m.sum += d.Seconds()
	m.mu.Unlock()
}

func (m *metrics) finish(reason string) {
	m.mu.Lock()
	if m.finished == nil {
		m.finished = map[string]uint64{}
	}
	m.finished[reason]++
	m.mu.Unlock()
}

// page writes metrics as Python's prometheus_client does, which is what vLLM
// exports with: sorted labels, floats everywhere, a _created gauge after every
// counter and histogram.
type page struct {
	bytes.Buffer
	labels  string
	created float64
}

func (p *page) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(&p.Buffer, format, args...) // a buffer takes everything
}

func (p *page) header(name, kind, help string) {
	p.printf("# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// sample writes one line; extra labels sort after engine and before model_name.
func (p *page) sample(name, extra string, value float64) {
	p.printf("%s{engine=\"0\",%s%s} %s\n", name, extra, p.labels, python(value))
}

func (p *page) gauge(name, help string, value float64) {
	p.header(name, "gauge", help)
	p.sample(name, "", value)
}

func (p *page) counter(name, help string, value uint64) {
	p.header(name+"_total", "counter", help)
	p.sample(name+"_total", "", float64(value))
	p.gauge(name+"_created", help, p.created)
}

// python formats a float as Python's repr does in the range that occurs here.
func python(x float64) string {
	s := strconv.FormatFloat(x, 'g', -1, 64)
	if x == float64(int64(x)) && x < 1e15 {
		s = strconv.FormatFloat(x, 'f', 1, 64)
	}
	return s
}

func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	g := s.gauges()
	p := &page{
		labels:  "model_name=" + strconv.Quote(s.config.Models[0]),
		created: float64(s.epoch.UnixMicro()) / 1e6,
	}
	p.header("process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.")
	p.printf("process_start_time_seconds %s\n", python(p.created))
	p.gauge("vllm:num_requests_running", "Number of requests in model execution batches.", float64(g.Running))
	p.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", float64(g.Waiting))
	p.header("vllm:num_requests_waiting_by_reason", "gauge", "Number of requests waiting to be processed, by reason.")
	p.printf("vllm:num_requests_waiting_by_reason{engine=\"0\",%s,reason=\"capacity\"} %s\n", p.labels, python(float64(g.Waiting)))
	p.printf("vllm:num_requests_waiting_by_reason{engine=\"0\",%s,reason=\"deferred\"} 0.0\n", p.labels)
	s.sleepState(p)
	p.gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", g.KVUsage)
	p.counter("vllm:num_preemptions", "Cumulative number of preemption from the engine.", g.Preemptions)
	p.counter("vllm:prompt_tokens", "Number of prefill tokens processed.", g.PromptTokens)
	p.counter("vllm:generation_tokens", "Number of generation tokens processed.", g.GenerationTokens)
	p.counter("vllm:prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.", g.PrefixQueries)
	p.counter("vllm:prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", g.PrefixHits)
	s.cacheConfig(p)
	s.metrics.write(p)
	s.sendPage(w, r, p.Bytes())
}

// sleepState has the states that vLLM tells of.
func (s *Server) sleepState(p *page) {
	const name = "vllm:engine_sleep_state"
	p.header(name, "gauge", "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake.")
	asleep := 0.0
	if s.faults.Load().State == Asleep {
		asleep = 1
	}
	for _, state := range []struct {
		name  string
		value float64
	}{{"awake", 1 - asleep}, {"weights_offloaded", asleep}, {"discard_all", 0}} {
		p.printf("%s{engine=\"0\",%s,sleep_state=%q} %s\n", name, p.labels, state.name, python(state.value))
	}
}

func (s *Server) cacheConfig(p *page) {
	c, caching := s.config.Params, "True"
	if c.NoPrefixCache || s.config.PromptTokens > 0 {
		caching = "False"
	}
	p.header("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig")
	p.printf("vllm:cache_config_info{block_size=\"%d\",cache_dtype=\"auto\",enable_prefix_caching=\"%s\",engine=\"0\","+
		"kv_cache_size_tokens=\"%d\",num_gpu_blocks=\"%d\"} 1.0\n", c.BlockSize, caching, c.MaxTokens(), c.Blocks)
}

func (m *metrics) write(p *page) {
	m.mu.Lock()
	defer m.mu.Unlock()
	const success = "vllm:request_success"
	const successHelp = "Count of successfully processed requests."
	p.header(success+"_total", "counter", successHelp)
	for _, r := range finishReasons {
		p.sample(success+"_total", `finished_reason="`+r+`",`, float64(m.finished[r]))
	}
	p.header(success+"_created", "gauge", successHelp)
	for _, r := range finishReasons {
		p.sample(success+"_created", `finished_reason="`+r+`",`, p.created)
	}
	const ttft = "vllm:time_to_first_token_seconds"
	const ttftHelp = "Histogram of time to first token in seconds."
	p.header(ttft, "histogram", ttftHelp)
	total := uint64(0)
	for i, n := range m.buckets {
		total += n
		bound := "+Inf"
		if i < len(ttftBounds) {
			bound = python(ttftBounds[i])
		}
		p.sample(ttft+"_bucket", `le="`+bound+`",`, float64(total))
	}
	p.sample(ttft+"_count", "", float64(total))
	p.sample(ttft+"_sum", "", m.sum)
	p.gauge(ttft+"_created", ttftHelp, p.created)
}
