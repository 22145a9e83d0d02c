package testengine

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wardrop-lb/wardrop/enginemodel"
)

// Page is what is wrong with an engine's page of metrics.
type Page struct {
	// Body is what is there instead of metrics: one of bodies.
	Body string `json:"body,omitempty"`
	// Omit leaves out the series whose names begin so; "vllm:" is all of vLLM's, as
	// with an engine that is told to keep no statistics.
	Omit []string `json:"omit,omitempty"`
	// Value stands for the numbers of the gauges of requests and KV cache: one of values.
	Value string `json:"value,omitempty"`
	// Show is what those gauges say, whatever is in the engine.
	Show *Show `json:"show,omitempty"`
	// Reset has the counters begin at 0 anew, once, when the faults are set. They stay
	// so when the faults end.
	Reset bool `json:"reset,omitempty"`
	// OldNames calls the series as vLLM did before 0.12.
	OldNames bool `json:"old_names,omitempty"`
	// DuplicateTypes says the type of every series twice, which parsers refuse.
	DuplicateTypes bool `json:"duplicate_types,omitempty"`
	// Ranks has so many label sets engine="0", "1", ...: all but the first idle.
	Ranks int `json:"ranks,omitempty"`
	// Processes has every gauge once a process, by the label pid: 0 in all but one.
	Processes int `json:"processes,omitempty"`
	// Truncate ends the page after so many bytes, but cleanly.
	Truncate int `json:"truncate,omitempty"`
	// Bytes puts comments in front, until the page has so many bytes at least.
	Bytes int `json:"bytes,omitempty"`
	// Wait is how long the page takes, in seconds.
	Wait float64 `json:"wait,omitempty"`
	// Status is the page's, an error's.
	Status int `json:"status,omitempty"`
}

// Show is what gauges say; what is nil says what is true.
type Show struct {
	Running *int     `json:"running,omitempty"`
	Waiting *int     `json:"waiting,omitempty"`
	KVUsage *float64 `json:"kv_usage,omitempty"`
}

var (
	bodies = []string{"", "html", "json", "empty"}
	values = []string{"", "NaN", "-nan", "+Inf"}
)

// The bounds of a page.
const (
	maxCopies    = 1024
	maxPageBytes = 1 << 30
)

func (p *Page) validate() error {
	if p == nil {
		return nil
	}
	for _, n := range []struct {
		name       string
		value, max int
	}{
		{"ranks", p.Ranks, maxCopies}, {"processes", p.Processes, maxCopies},
		{"truncate", p.Truncate, maxPageBytes}, {"bytes", p.Bytes, maxPageBytes},
	} {
		if n.value < 0 || n.value > n.max {
			return fmt.Errorf("page: %s: %d is not in [0, %d]", n.name, n.value, n.max)
		}
	}
	if !(p.Wait >= 0 && p.Wait <= 1e6) {
		return fmt.Errorf("page: wait: %v is not in [0, 1e6]", p.Wait)
	}
	if err := oneOf("page: body", p.Body, bodies); err != nil {
		return err
	}
	if err := oneOf("page: value", p.Value, values); err != nil {
		return err
	}
	return errorStatus("page: status", p.Status)
}

// gauges is what the page shows now.
func (s *Server) gauges() enginemodel.Gauges {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, from := s.shown, s.countFrom
	g.Preemptions += s.storm.preemptions(time.Now())
	g.Preemptions -= from.Preemptions
	g.PromptTokens -= from.PromptTokens
	g.GenerationTokens -= from.GenerationTokens
	g.PrefixQueries -= from.PrefixQueries
	g.PrefixHits -= from.PrefixHits
	p := s.faults.Load().Page
	if p == nil || p.Show == nil {
		return g
	}
	if n := p.Show.Running; n != nil {
		g.Running = *n
	}
	if n := p.Show.Waiting; n != nil {
		g.Waiting = *n
	}
	if u := p.Show.KVUsage; u != nil {
		g.KVUsage = *u
	}
	return g
}

// countAnew has the page's counters begin at what they are now. The lock is held.
func (s *Server) countAnew() {
	s.countFrom = s.shown
	s.countFrom.Preemptions += s.storm.preemptions(time.Now())
}

// sendPage answers with a page of metrics, or with what the faults make of it.
func (s *Server) sendPage(w http.ResponseWriter, r *http.Request, page []byte) {
	const kind = "text/plain; version=0.0.4; charset=utf-8"
	p := s.faults.Load().Page
	if p == nil {
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write(page)
		return
	}
	if !s.pause(r, time.Duration(p.Wait*float64(time.Second))) {
		return
	}
	body, kinds := p.body(page), map[string]string{"html": "text/html", "json": "application/json"}
	w.Header().Set("Content-Type", kind)
	if k, ok := kinds[p.Body]; ok {
		w.Header().Set("Content-Type", k)
	}
	if p.Status != 0 {
		w.WriteHeader(p.Status)
	}
	p.send(w, body)
}

// pause waits, and says whether anybody still does.
func (s *Server) pause(r *http.Request, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return false
	case <-s.stop:
		panic(http.ErrAbortHandler)
	}
}

// send writes the page behind its padding, both within the truncation. The padding
// is not made at once: it may be large.
func (p *Page) send(w http.ResponseWriter, body []byte) {
	left := maxPageBytes
	if p.Truncate > 0 {
		left = p.Truncate
	}
	line := bytes.Repeat([]byte("# A page may be long.\n"), 1000)
	for pad := p.Bytes - len(body); pad > 0 && left > 0; {
		n := min(len(line), left)
		if _, err := w.Write(line[:n]); err != nil {
			return
		}
		pad -= n
		left -= n
	}
	_, _ = w.Write(body[:min(len(body), left)])
}

func (p *Page) body(page []byte) []byte {
	switch p.Body {
	case "html":
		return []byte("<!DOCTYPE html>\n<html><body><h1>502 Bad Gateway</h1></body></html>\n")
	case "json":
		return []byte(`[{"iter":1,"numActiveRequests":0}]` + "\n")
	case "empty":
		return nil
	}
	var out bytes.Buffer
	for line := range bytes.Lines(page) {
		p.line(&out, string(line))
	}
	return out.Bytes()
}

// oldNames are vLLM's before 0.12.
var oldNames = strings.NewReplacer(
	"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc",
	"vllm:prefix_cache_", "vllm:gpu_prefix_cache_",
)

// loadGauges are those that routers look at.
var loadGauges = []string{"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:num_requests_waiting_by_reason", "vllm:kv_cache_usage_perc"}

// line appends what the faults make of one line.
func (p *Page) line(out *bytes.Buffer, line string) {
	fields := strings.Fields(line)
	name, comment := fields[0], fields[0] == "#"
	if comment {
		name = fields[2]
	}
	name, _, labelled := strings.Cut(name, "{")
	if slices.ContainsFunc(p.Omit, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
		return
	}
	gauge := slices.Contains(loadGauges, name)
	if p.Value != "" && gauge && !comment {
		line = line[:strings.LastIndexByte(line, ' ')+1] + p.Value + "\n"
	}
	if p.OldNames {
		line = oldNames.Replace(line)
	}
	switch {
	case comment && fields[1] == "TYPE" && p.DuplicateTypes:
		out.WriteString(line)
	case gauge && p.Processes > 1:
		p.processes(out, line, comment)
		return
	case labelled && p.Ranks > 1:
		p.ranks(out, line)
		return
	}
	out.WriteString(line)
}

// processes appends one series for every process; the last has the value.
func (p *Page) processes(out *bytes.Buffer, line string, comment bool) {
	if comment {
		out.WriteString(line)
		return
	}
	labels, value := line[:strings.LastIndexByte(line, ' ')], line[strings.LastIndexByte(line, ' '):]
	for i := range p.Processes {
		v := " 0.0\n"
		if i == p.Processes-1 {
			v = value
		}
		out.WriteString(strings.TrimSuffix(labels, "}") + `,pid="` + strconv.Itoa(100+i) + `"}` + v)
	}
}

// ranks appends one series for every rank; the first has the value, and all have the
// same cache.
func (p *Page) ranks(out *bytes.Buffer, line string) {
	out.WriteString(line)
	for i := 1; i < p.Ranks; i++ {
		other := strings.Replace(line, `engine="0"`, `engine="`+strconv.Itoa(i)+`"`, 1)
		if other == line {
			return
		}
		if !strings.HasPrefix(line, "vllm:cache_config_info") && !strings.Contains(line, "_created{") {
			other = other[:strings.LastIndexByte(other, ' ')] + " 0.0\n"
		}
		out.WriteString(other)
	}
}
