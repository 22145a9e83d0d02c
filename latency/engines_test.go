package latency_test

import (
	"flag"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/enginemodel"
	"github.com/wardrop-lb/wardrop/latency"
)

var measure = flag.Bool("measure", false, "measure the step-level engines at length and log what stands in their table")

// measured are the loads, as parts of saturation, at which engines were measured.
var measured = [...]float64{0.1, 0.3, 0.5, 0.8, 0.9}

// steady is a step-level engine and what it does in the long run, over 300,000
// requests at each load: TestEnginesAreMeasured.
type steady struct {
	name           string
	params         enginemodel.Params
	prompt, output int
	spread         [2]float64             // sigma of their log-normal sizes
	saturation     float64                // requests/s
	latency        [len(measured)]float64 // seconds, mean end to end, at the measured loads
	first          [len(measured)]float64 // seconds, mean until the first token
}

// engines: an 8B model on one H100, bound by compute; one bound by 64 slots, one by its
// KV cache under long prompts; an 8B model whose prompts are mostly cached and fill
// its KV cache; a 70B model on eight H100 by tensor parallelism, with sizes that vary as
// much as their mean; and on four, bound by its KV cache.
var engines = []*steady{
	{
		name: "8B chat", params: params(6.9e-3, 20e-6, 7.6e-8, 5e-6, 256, 28000), prompt: 256, output: 128, spread: [2]float64{0.5, 0.5},
		saturation: 80.4811, latency: [...]float64{0.9624, 1.1413, 1.4019, 2.1289, 2.5730}, first: [...]float64{0.0164, 0.0189, 0.0224, 0.0318, 0.0379},
	},
	{
		name: "slot-limited", params: params(10.6e-3, 70e-6, 1.25e-7, 5e-6, 64, 28000), prompt: 128, output: 128, spread: [2]float64{0.5, 0.5},
		saturation: 29.4178, latency: [...]float64{1.4242, 1.5467, 1.6921, 1.9730, 2.1346}, first: [...]float64{0.0255, 0.0274, 0.0295, 0.0375, 0.0916},
	},
	{
		name: "KV-limited", params: params(10.6e-3, 70e-6, 1.25e-7, 5e-6, 256, 4000), prompt: 1500, output: 200, spread: [2]float64{0.5, 0.5},
		saturation: 4.9481, latency: [...]float64{2.4480, 2.9207, 3.6126, 5.5962, 7.0471}, first: [...]float64{0.1243, 0.1395, 0.1591, 0.2688, 0.7059},
	},
	{
		name: "8B long", params: params(7.5e-3, 12e-6, 4.5e-8, 2e-5, 256, 18750), prompt: 8000, output: 400, spread: [2]float64{0.555, 0.703},
		saturation: 2.9462, latency: [...]float64{3.5238, 4.2209, 5.2540, 8.3061, 10.7807}, first: [...]float64{0.1134, 0.1239, 0.1356, 0.2666, 1.0921},
	},
	{
		name: "70B TP8", params: params(16e-3, 42e-6, 2e-8, 6e-5, 256, 56250), prompt: 1200, output: 300, spread: [2]float64{0.833, 0.703},
		saturation: 10.4445, latency: [...]float64{5.3082, 6.4467, 8.2044, 13.8389, 17.9213}, first: [...]float64{0.0797, 0.0932, 0.1129, 0.1667, 0.2026},
	},
	{
		name: "70B TP4", params: params(16.7e-3, 56e-6, 4.8e-8, 5e-6, 256, 9500), prompt: 512, output: 256, spread: [2]float64{0.5, 0.5},
		saturation: 17.3654, latency: [...]float64{4.6230, 5.3937, 6.4727, 9.2381, 10.7767}, first: [...]float64{0.0565, 0.0637, 0.0735, 0.0979, 0.1213},
	},
}

func params(base, prefill, context, request float64, batch, blocks int) enginemodel.Params {
	return enginemodel.Params{Base: base, PerPrefillToken: prefill, PerContextToken: context, PerRequest: request,
		MaxBatch: batch, MaxStepTokens: 8192, Blocks: blocks, BlockSize: 16}
}

// driven is an engine under Poisson arrivals in virtual time.
type driven struct {
	*steady
	engine  *enginemodel.Engine
	rng     *rand.Rand
	rate    float64
	now     time.Duration
	arrival time.Duration
	id      uint64
	inside  map[uint64]*request
	events  []enginemodel.Event

	finished int
	latency  float64 // seconds, sum over finished
	first    float64 // the same, until the first token
}

type request struct{ arrived, first time.Duration }

func drive(t *testing.T, e *steady, rate float64, seed uint64) *driven {
	t.Helper()
	engine, err := enginemodel.New(e.params)
	require.NoError(t, err)
	d := &driven{steady: e, engine: engine, rate: rate, rng: rand.New(rand.NewPCG(seed, 7)), inside: map[uint64]*request{}}
	d.arrival = d.gap()
	return d
}

func (d *driven) gap() time.Duration {
	return time.Duration(d.rng.ExpFloat64() / d.rate * float64(time.Second))
}

func (d *driven) size(mean int, sigma float64) int {
	return max(1, int(float64(mean)*math.Exp(sigma*d.rng.NormFloat64()-sigma*sigma/2)))
}

func (d *driven) add(at time.Duration) {
	d.id++
	r := enginemodel.Request{ID: d.id, Prompt: d.size(d.prompt, d.spread[0]), Output: d.size(d.output, d.spread[1])}
	if d.engine.Add(r, at) == nil {
		d.inside[d.id] = &request{arrived: at}
	}
}

// run goes on for some seconds, showing every second to observe, which may be nil.
func (d *driven) run(seconds int, observe func(latency.Observation)) {
	start := d.now
	for second := 1; second <= seconds; second++ {
		var o latency.Observation
		from, id, before := d.now, d.id, d.engine.Gauges()
		for end := start + time.Duration(second)*time.Second; d.now < end; {
			last := d.now
			d.step()
			g, dt := d.engine.Gauges(), (d.now - last).Seconds()
			o.InEngine += dt * float64(len(d.inside))
			o.Running += dt * float64(g.Running)
			o.KVUsage += dt * g.KVUsage
		}
		if observe == nil {
			continue
		}
		g := d.engine.Gauges()
		o.Seconds, o.Slots = (d.now - from).Seconds(), float64(d.params.MaxBatch)
		o.InEngine, o.Running, o.KVUsage = o.InEngine/o.Seconds, o.Running/o.Seconds, o.KVUsage/o.Seconds
		o.Rate = float64(d.id-id) / o.Seconds
		o.Prompt = float64(g.PromptTokens-before.PromptTokens) / o.Seconds
		o.Output = float64(g.GenerationTokens-before.GenerationTokens) / o.Seconds
		observe(o)
	}
}

// step goes to the engine's next change, at most ten milliseconds ahead, so that
// the gauges' means are over time.
func (d *driven) step() {
	for d.arrival <= d.now {
		d.add(d.arrival)
		d.arrival += d.gap()
	}
	until, working := d.engine.Begin(d.now)
	if !working {
		d.now = min(d.arrival, until, d.now+10*time.Millisecond)
		return
	}
	d.now = until
	d.events = d.engine.End(d.events[:0])
	for _, e := range d.events {
		r := d.inside[e.ID]
		if e.First() {
			r.first = d.now
		}
		if e.Last {
			d.finished++
			d.latency += (d.now - r.arrived).Seconds()
			d.first += (r.first - r.arrived).Seconds()
			delete(d.inside, e.ID)
		}
	}
}

// at gives the mean latency and time to the first token at a load, over requests.
func (e *steady) at(t *testing.T, rate, requests float64, seed uint64) (mean, first float64) {
	d := drive(t, e, rate, seed)
	d.run(int(20*float64(e.params.MaxBatch)/e.saturation), nil)
	d.finished, d.latency, d.first = 0, 0, 0
	d.run(int(requests/rate), nil)
	return d.latency / float64(d.finished), d.first / float64(d.finished)
}

// overloaded gives what comes out of an engine whose queue never ends.
func (e *steady) overloaded(t *testing.T, requests int) float64 {
	d := drive(t, e, 1e-9, 99)
	var warm time.Duration
	for d.finished < requests {
		for d.engine.Gauges().Waiting < 50 {
			d.add(d.now)
		}
		d.step()
		if d.finished <= 2000 {
			warm = d.now
		}
	}
	return float64(d.finished-2000) / (d.now - warm).Seconds()
}

// TestEnginesAreMeasured holds the figures that the fit is compared with to what the
// engines do, over fewer requests than they are from. With -measure it logs them.
func TestEnginesAreMeasured(t *testing.T) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			if *measure {
				e.saturation = e.overloaded(t, 300000)
				for i, load := range measured {
					e.latency[i], e.first[i] = e.at(t, load*e.saturation, 300000, 5)
				}
				t.Logf("saturation: %.4f, latency: %.4f, first: %.4f", e.saturation, e.latency, e.first)
				return
			}
			require.InEpsilon(t, e.saturation, e.overloaded(t, 8000), 0.04)
			mean, first := e.at(t, 0.5*e.saturation, 4000, 5)
			require.InEpsilon(t, e.latency[2], mean, 0.05)
			require.InEpsilon(t, e.first[2], first, 0.05)
		})
	}
}
