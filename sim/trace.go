package sim

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/enginemodel"
)

// Trace replays requests that were recorded, in place of a model's synthetic ones. They
// arrive at the clusters in the parts that the fleet's demand has.
type Trace struct {
	// File holds the trace, beside the scenario's own. Required.
	File string `yaml:"file"`
	// Format is mooncake, bailian, azure, burstgpt or servegen. Required.
	Format string `yaml:"format"`
	// Lengths is servegen's second file, of the sizes.
	Lengths string `yaml:"lengths"`
	// Model is whose requests they are. Default: the only one there is.
	Model string `yaml:"model"`
	// Speed is how many times as fast they come as they were recorded. Default: so that
	// they come at the demand's rate.
	Speed float64 `yaml:"speed"`

	requests []traced
	span     time.Duration
}

// traced is one request of a trace.
type traced struct {
	at             time.Duration
	prompt, output int
	prefix         []enginemodel.Block
}

// formats read traces. Errors name the line.
var formats = map[string]func(data []byte) ([]traced, error){
	"mooncake": func(b []byte) ([]traced, error) { return readBlocks(b, 512, time.Millisecond, 3*time.Second) },
	"bailian":  func(b []byte) ([]traced, error) { return readBlocks(b, 16, time.Second, 0) },
	"azure":    readAzure,
	"burstgpt": readBurstGPT,
}

// read takes the trace in.
func (t *Trace) read(open func(name string) ([]byte, error)) error {
	data, err := open(t.File)
	if err != nil {
		return err
	}
	if t.Format == "servegen" {
		lengths, err := open(t.Lengths)
		if err != nil {
			return err
		}
		t.requests, err = readServeGen(data, lengths)
		if err != nil {
			return err
		}
	} else if t.requests, err = formats[t.Format](data); err != nil {
		return fmt.Errorf("%s:%w", t.File, err)
	}
	if len(t.requests) < 2 {
		return fmt.Errorf("%s: fewer than two requests", t.File)
	}
	slices.SortStableFunc(t.requests, func(a, b traced) int { return int(a.at - b.at) })
	first := t.requests[0].at
	for i := range t.requests {
		t.requests[i].at -= first
	}
	n := time.Duration(len(t.requests))
	t.span = t.requests[n-1].at * n / (n - 1)
	if t.span <= 0 {
		return fmt.Errorf("%s: all requests come at once", t.File)
	}
	return nil
}

// readBlocks reads Mooncake's and Qwen-Bailian's form: one JSON object a line, with
// block hashes that cover all before them. Arrivals that were rounded to ticks are
// spread over them.
func readBlocks(data []byte, size int, unit, tick time.Duration) ([]traced, error) {
	var out []traced
	random := rand.New(rand.NewPCG(1, 2)) // the same at every reading
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<24)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var x struct {
			Timestamp float64  `json:"timestamp"`
			Input     int      `json:"input_length"`
			Output    int      `json:"output_length"`
			Hashes    []uint64 `json:"hash_ids"`
		}
		if err := json.Unmarshal(lines.Bytes(), &x); err != nil {
			return nil, fmt.Errorf("%d: %w", n, err)
		}
		if x.Input < 1 || x.Output < 0 || !(x.Timestamp >= 0) {
			return nil, fmt.Errorf("%d: want timestamp, input_length and output_length", n)
		}
		r := traced{at: time.Duration(x.Timestamp * float64(unit)), prompt: x.Input, output: max(1, x.Output)}
		if tick > 0 {
			r.at += time.Duration(random.Int64N(int64(tick)))
		}
		for i, h := range x.Hashes {
			if end := min((i+1)*size, x.Input); i*size < x.Input {
				r.prefix = append(r.prefix, enginemodel.Block{Hash: mix(h + 1), End: end})
			}
		}
		out = append(out, r)
	}
	return out, lines.Err()
}

// table reads a CSV file with the columns that are named first.
func table(data []byte, columns []string, row func(line int, cell []string) error) error {
	r := csv.NewReader(bytes.NewReader(data))
	head, err := r.Read()
	if err != nil {
		return fmt.Errorf("1: %w", err)
	}
	at := make([]int, len(columns))
	for i, c := range columns {
		at[i] = slices.IndexFunc(head, func(h string) bool { return strings.TrimSpace(h) == c })
		if at[i] < 0 {
			return fmt.Errorf("1: no column %q", c)
		}
	}
	cell := make([]string, len(columns))
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		line, _ := r.FieldPos(0)
		for i, k := range at {
			cell[i] = record[k]
		}
		if err := row(line, cell); err != nil {
			return fmt.Errorf("%d: %w", line, err)
		}
	}
}

func readAzure(data []byte) ([]traced, error) {
	var out []traced
	err := table(data, []string{"TIMESTAMP", "ContextTokens", "GeneratedTokens"}, func(_ int, cell []string) error {
		at, err := time.Parse("2006-01-02 15:04:05.9999999", cell[0])
		if err != nil {
			return err
		}
		return add(&out, time.Duration(at.UnixNano()), cell[1], cell[2])
	})
	return out, err
}

func readBurstGPT(data []byte) ([]traced, error) {
	var out []traced
	err := table(data, []string{"Timestamp", "Request tokens", "Response tokens"}, func(_ int, cell []string) error {
		at, err := strconv.ParseFloat(cell[0], 64)
		if err != nil {
			return err
		}
		if cell[2] == "0" {
			return nil // it failed where it was recorded
		}
		return add(&out, time.Duration(at*1e9), cell[1], cell[2])
	})
	return out, err
}

func add(out *[]traced, at time.Duration, prompt, output string) error {
	p, err1 := strconv.Atoi(prompt)
	o, err2 := strconv.Atoi(output)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	*out = append(*out, traced{at: at, prompt: max(1, p), output: max(1, o)})
	return nil
}

// usual are the means of a trace's sizes, and how much of a prompt was in one before.
func (t *Trace) usual() (prompt, output, repeated float64) {
	seen := map[uint64]bool{}
	n := float64(len(t.requests))
	for i := range t.requests {
		r := &t.requests[i]
		prompt += float64(r.prompt) / n
		output += float64(r.output) / n
		known, leading := 0, true
		for _, b := range r.prefix {
			leading = leading && seen[b.Hash]
			if leading {
				known = b.End
			}
			seen[b.Hash] = true
		}
		repeated += float64(known) / n
	}
	return prompt, output, repeated
}

// replay sends the trace's requests, again and again until the run ends; what comes
// again is not taken for what was there before.
type replay struct {
	w      *world
	trace  *Trace
	model  int
	speed  float64
	next   int
	round  uint64
	random *rand.Rand
	part   []float64 // by source: sums of their rates
	from   []int     // sources of the model
}

func newReplay(w *world, t *Trace, model int, seed uint64) *replay {
	r := &replay{w: w, trace: t, model: model, speed: t.Speed, random: rand.New(rand.NewPCG(seed, 1<<59))}
	sum := 0.0
	for i, s := range w.sources {
		if s.model == model {
			sum += s.rate
			r.part, r.from = append(r.part, sum), append(r.from, i)
			s.replaced = true
		}
	}
	if r.speed == 0 && sum > 0 {
		r.speed = sum * t.span.Seconds() / float64(len(t.requests))
	}
	return r
}

// start schedules the next request.
func (r *replay) start() {
	if len(r.from) == 0 || !(r.speed > 0) {
		return
	}
	x := &r.trace.requests[r.next]
	at := time.Duration((float64(r.round)*float64(r.trace.span) + float64(x.at)) / r.speed)
	r.w.After(max(0, at-r.w.now), func() {
		r.send(x)
		if r.next++; r.next == len(r.trace.requests) {
			r.next = 0
			r.round++
		}
		r.start()
	})
}

func (r *replay) send(x *traced) {
	draw := r.random.Float64() * r.part[len(r.part)-1]
	i, _ := slices.BinarySearch(r.part, draw)
	s := r.w.sources[r.from[min(i, len(r.from)-1)]]
	q := r.w.newRequest()
	prefix := q.Prefix[:0]
	for _, b := range x.prefix {
		prefix = append(prefix, enginemodel.Block{Hash: mix(b.Hash + r.round*0x9e3779b97f4a7c15), End: b.End})
	}
	*q = Request{Prefix: prefix, source: -1, Cluster: s.cluster, Model: s.model, Priority: s.priority, Prompt: x.prompt, Output: x.output}
	r.w.admit(q)
}

// validate checks what can be checked without the file.
func (t *Trace) validate(p *config.Places, at string, models []string) {
	if t.File == "" {
		p.Fail(at+".file", "missing")
	}
	if t.Format != "servegen" && formats[t.Format] == nil {
		p.Fail(at+".format", "unknown format %q: want azure, bailian, burstgpt, mooncake or servegen", t.Format)
	}
	if (t.Format == "servegen") != (t.Lengths != "") {
		p.Fail(at+".lengths", "goes with servegen, and only with it")
	}
	if t.Model == "" && len(models) == 1 {
		t.Model = models[0]
	}
	if !slices.Contains(models, t.Model) {
		p.Fail(at+".model", "no engine serves %q", t.Model)
	}
	if !(t.Speed >= 0) || math.IsInf(t.Speed, 1) {
		p.Fail(at+".speed", "%v is not a number of at least 0", t.Speed)
	}
}
