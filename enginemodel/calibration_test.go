package enginemodel_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/enginemodel"
)

// calibration compares presets with what others measured, a line for each figure.
type calibration struct {
	worst map[string]float64 // by source and kind of figure: the largest error
	off   map[string][]float64
	table strings.Builder
}

func (c *calibration) line(source, what, preset, at string, measured, model float64) {
	off := model/measured - 1
	key := source + " " + what
	c.worst[key] = max(c.worst[key], math.Abs(off))
	c.off[key] = append(c.off[key], off)
	fmt.Fprintf(&c.table, "%-10s %-12s %-11s %-22s %10.2f %10.2f %+7.0f %%\n", source, what, preset, at, measured, model, 100*off)
}

// published opens a file of public measurements, which are not part of this
// repository.
func published(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Open(filepath.Join("../../shared/profiles", name))
	if err != nil {
		t.Skipf("no public measurements to compare with: %v", err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func rows(t *testing.T, name string) []map[string]string {
	t.Helper()
	all, err := csv.NewReader(published(t, name)).ReadAll()
	require.NoError(t, err)
	var out []map[string]string
	for _, r := range all[1:] {
		m := map[string]string{}
		for i, column := range all[0] {
			m[column] = r[i]
		}
		out = append(out, m)
	}
	return out
}

func number(t *testing.T, s string) float64 {
	t.Helper()
	x, err := strconv.ParseFloat(s, 64)
	require.NoError(t, err)
	return x
}

// together gives, in milliseconds, when the last of n equal requests has its first
// token, and how long a token then takes in the mean; nothing else is in the engine.
func together(t *testing.T, p enginemodel.Params, n, prompt, output int) (first, token float64) {
	t.Helper()
	p.Frontend = 0
	x := &plan{requests: make([]enginemodel.Request, n), at: make([]time.Duration, n)}
	for i := range n {
		x.requests[i] = enginemodel.Request{ID: uint64(i), Prompt: prompt, Output: output}
	}
	r := x.run(t, fast(t, p))
	first = slices.Max(r.first)
	if output > 1 {
		token = (slices.Max(r.last) - first) / float64(output-1)
	}
	return 1000 * first, 1000 * token
}

// closed gives what clients meet of whom each sends a request when it has the answer
// to its last: the mean time to the first token and between tokens, in milliseconds,
// and requests a second.
func closed(t *testing.T, p enginemodel.Params, clients, prompt, output int) (first, token, rate float64) {
	t.Helper()
	e := fast(t, p)
	began := map[uint64]time.Duration{}
	var now time.Duration
	var id uint64
	send := func() {
		id++
		began[id] = now
		require.NoError(t, e.Add(enginemodel.Request{ID: id, Prompt: prompt, Output: output}, now))
	}
	for range clients {
		send()
	}
	firsts, done := map[uint64]float64{}, 0
	for total := 8*clients + 20; done < total; {
		now = e.Next()
		for _, ev := range e.Run(now, nil) {
			if ev.First() {
				firsts[ev.ID] = (now - began[ev.ID]).Seconds()
				first += firsts[ev.ID]
			}
			if ev.Last {
				token += ((now - began[ev.ID]).Seconds() - firsts[ev.ID]) / float64(output-1)
				done++
				send()
			}
		}
	}
	return 1000 * first / float64(len(firsts)), 1000 * token / float64(done), float64(done) / now.Seconds()
}

func TestPresetsAgainstPublicMeasurements(t *testing.T) {
	published(t, "blis_curves.txt")
	c := &calibration{worst: map[string]float64{}, off: map[string][]float64{}}
	blis(t, c)
	splitwise(t, c)
	vidur(t, c)
	distserve(t, c)
	t.Logf("\n%-10s %-12s %-11s %-22s %10s %10s %9s\n%s", "source", "what", "preset", "at", "published", "preset", "error", c.table.String())
	for _, key := range slices.Sorted(maps.Keys(c.worst)) {
		off := slices.Sorted(slices.Values(c.off[key]))
		t.Logf("%-24s median %+4.0f %%, worst %3.0f %%, of %d", key, 100*off[len(off)/2], 100*c.worst[key], len(off))
	}
	// What was found, rounded up: a preset that is changed may not move away unseen.
	for key, bound := range map[string]float64{
		"blis first ms": 5.3, "blis token ms": 0.7, "blis decode ms": 0.09, "blis requests/s": 0.5,
		"vidur step ms": 0.3, "splitwise first ms": 0.9, "splitwise token ms": 0.8,
		"distserve first ms": 0.65, "distserve token ms": 0.6,
	} {
		require.LessOrEqual(t, c.worst[key], bound, key)
	}
}

var blisLine = regexp.MustCompile(`llama-3.1-(\d+)b-instruct ([AH]100)\S* TP(\d) conc=(\d+) .*'ttft_mean_ms': ([\d.]+),.*'itl_mean_ms': ([\d.]+),.*'responses_per_sec': ([\d.]+),`)

// blis holds presets to closed loops of 512 prompt and 256 output tokens in BLIS's
// model of vLLM, which its authors fitted to real runs.
func blis(t *testing.T, c *calibration) {
	text, err := os.ReadFile(published(t, "blis_curves.txt").Name())
	require.NoError(t, err)
	for _, m := range blisLine.FindAllStringSubmatch(string(text), -1) {
		name := strings.ToLower(m[1] + "b-" + m[3] + "x" + m[2])
		name = strings.Replace(name, "-1x", "-", 1)
		clients := int(number(t, m[4]))
		first, token, rate := closed(t, preset(t, name), clients, 512, 256)
		at := fmt.Sprintf("clients: %d", clients)
		c.line("blis", "first ms", name, at, number(t, m[5]), first)
		c.line("blis", "token ms", name, at, number(t, m[6]), token)
		// The same without the prompts of others in between, which BLIS computes faster
		// than the GPU could.
		_, alone := together(t, preset(t, name), clients, 512, 256)
		c.line("blis", "decode ms", name, at, number(t, m[6]), alone)
		c.line("blis", "requests/s", name, at, number(t, m[7]), rate)
	}
}

// splitwise holds presets to measured Llama-2-70B: batches of equal prompts, computed
// at once, then decoded together.
func splitwise(t *testing.T, c *calibration) {
	presets := map[string]string{"h100-80gb 4": "70b-4xh100", "h100-80gb 8": "70b-8xh100", "a100-80gb 4": "70b-4xa100"}
	type point struct {
		preset        string
		prompt, batch int
	}
	first, token := map[point][]float64{}, map[point][]float64{}
	var order []point
	for _, r := range rows(t, "splitwise_perf_model.csv") {
		name := presets[r["hardware"]+" "+r["tensor_parallel"]]
		if r["model"] != "llama2-70b" || name == "" || r["token_size"] != "128" {
			continue
		}
		k := point{name, int(number(t, r["prompt_size"])), int(number(t, r["batch_size"]))}
		if len(first[k]) == 0 {
			order = append(order, k)
		}
		first[k] = append(first[k], number(t, r["prompt_time"]))
		token[k] = append(token[k], number(t, r["token_time"]))
	}
	for _, k := range order {
		f, d := together(t, preset(t, k.preset), k.batch, k.prompt, 128)
		at := fmt.Sprintf("%d x %d tokens", k.batch, k.prompt)
		c.line("splitwise", "first ms", k.preset, at, quantile(first[k], 0.5), f)
		c.line("splitwise", "token ms", k.preset, at, quantile(token[k], 0.5), d)
	}
}

// vidur holds presets to measured kernels, attention left out: what a step takes at
// least.
func vidur(t *testing.T, c *calibration) {
	presets := map[string]string{
		"a100/meta-llama/Meta-Llama-3-8B 1": "8b-a100", "h100/meta-llama/Llama-2-7b-hf 1": "8b-h100",
		"a100/meta-llama/Meta-Llama-3-70B 4": "70b-4xa100",
		"h100/meta-llama/Llama-2-70b-hf 4":   "70b-4xh100", "h100/meta-llama/Llama-2-70b-hf 8": "70b-8xh100",
	}
	for _, r := range rows(t, "vidur_linear_ms.csv") {
		name := presets[r["gpu_model"]+" "+r["tp"]]
		tokens := int(number(t, r["tokens_in_batch"]))
		if name == "" || tokens > preset(t, name).MaxStepTokens {
			continue
		}
		first, _ := together(t, preset(t, name), 1, tokens, 1)
		c.line("vidur", "step ms", name, fmt.Sprintf("tokens: %d", tokens), number(t, r["linear_ms_all_layers"]), first)
	}
}

// distserve holds presets to fits of OPT on A100, scaled by the models' sizes: the
// time of a token is that of reading or multiplying the weights.
func distserve(t *testing.T, c *calibration) {
	var fits map[string]map[string]struct {
		Prefill []float64 `json:"prefill"`
		Decode  []float64 `json:"decoding_smallbs"`
	}
	require.NoError(t, json.NewDecoder(published(t, "distserve_profiler-a100-80g.vllm.json")).Decode(&fits))
	for _, x := range []struct {
		preset, model, gpus string
		scale               float64
	}{{"8b-a100", "facebook/opt-13b", "1", 8.03 / 13}, {"70b-4xa100", "facebook/opt-66b", "4", 70.6 / 66}} {
		fit := fits[x.model][x.gpus]
		for _, n := range []float64{128, 512, 2048} {
			first, _ := together(t, preset(t, x.preset), 1, int(n), 1)
			c.line("distserve", "first ms", x.preset, fmt.Sprintf("tokens: %v", n), x.scale*(fit.Prefill[0]+fit.Prefill[1]*n+fit.Prefill[2]*n*n), first)
		}
		for _, n := range []float64{1, 32, 64} {
			_, token := together(t, preset(t, x.preset), int(n), 64, 64)
			c.line("distserve", "token ms", x.preset, fmt.Sprintf("requests: %v", n), x.scale*(fit.Decode[0]+fit.Decode[1]*n*96+fit.Decode[2]*n), token)
		}
	}
}
