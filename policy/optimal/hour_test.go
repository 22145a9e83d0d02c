package optimal_test

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/latency"
	"github.com/wardrop-lb/wardrop/policy"
	"github.com/wardrop-lb/wardrop/policy/optimal"
)

// hour is a simulated hour of 5 s ticks: demand that drifts with the time of day
// and by itself, a flash crowd at one cluster for five minutes, half a region
// lost for another five. The policy sees counted, smoothed demand, late by some
// ticks; what its plans cost is worked out at the true demand.
type hour struct {
	base   *fleet.View
	rates  []float64 // by demand: true, now
	past   [][]float64
	seen   []float64 // what the policy is told
	drift  []float64
	random *rand.Rand
	late   int // ticks
	ticks  int
}

const tickSeconds = 5.0

// hourTicks is 720, or a third of that with all events in a third of the time:
// set WARDROP_HOUR for the whole of it.
func hourTicks() int {
	if os.Getenv("WARDROP_HOUR") != "" {
		return 720
	}
	return 240
}

func newHour(late int) *hour {
	s := shape{clusters: 20, engines: 400, models: 4, regions: 10, seed: 5, util: 0.8, kappa: 0.9}
	h := &hour{base: s.view(), late: late, ticks: hourTicks(), random: rand.New(rand.NewPCG(11, 11))}
	before := capacities(h.base)
	for i := range h.base.Engines {
		// A first token's latency: a fraction of a second, flat up to a knee.
		p, r := &h.base.Engines[i].Profile, h.random
		p.T0, p.Batch = 0.08+0.32*r.Float64(), 40+110*r.Float64()
		p.UMax = p.Batch / p.T0
	}
	after := capacities(h.base)
	for i := range h.base.Demands {
		d := &h.base.Demands[i]
		d.Rate *= after[d.Model] / before[d.Model]
	}
	h.rates = make([]float64, len(h.base.Demands))
	h.seen = make([]float64, len(h.rates))
	h.drift = make([]float64, len(h.rates))
	return h
}

// capacities adds up the caps of each model's engines.
func capacities(v *fleet.View) map[string]float64 {
	sum := map[string]float64{}
	for _, e := range v.Engines {
		sum[e.Models[0]] += latency.New(e.Profile).Capacity()
	}
	return sum
}

// view moves on to a tick and gives what the policy is told.
func (h *hour) view(tick int) *fleet.View {
	at := float64(tick) * tickSeconds
	event := 3600 * float64(tick) / float64(h.ticks)
	fade := math.Exp(-tickSeconds / 60)
	for i, d := range h.base.Demands {
		h.drift[i] = h.drift[i]*fade + 0.08*math.Sqrt(1-fade*fade)*h.random.NormFloat64()
		cluster := float64(slices.IndexFunc(h.base.Clusters, func(c fleet.Cluster) bool { return c.Name == d.Cluster }))
		phase := 2 * math.Pi * (at/3600 + cluster/float64(len(h.base.Clusters)))
		h.rates[i] = d.Rate * (1 + 0.25*math.Sin(phase)) * math.Exp(h.drift[i])
		if cluster == 3 && event >= 1200 && event < 1500 {
			h.rates[i] *= 2.5
		}
	}
	h.past = append(h.past, slices.Clone(h.rates))
	v := *h.base
	v.Demands = slices.Clone(h.base.Demands)
	for i := range h.seen {
		mean := h.past[max(0, len(h.past)-2-h.late)][i] * tickSeconds
		count := max(0, mean+math.Sqrt(mean)*h.random.NormFloat64()) / tickSeconds
		if tick == 0 {
			count = h.rates[i]
			h.seen[i] = count
		}
		h.seen[i] = 0.5*h.seen[i] + 0.5*count
		v.Demands[i].Rate = h.seen[i]
	}
	if event >= 2400 && event < 2700 {
		v.Engines = nil
		for i, e := range h.base.Engines {
			if e.Region != "r02" || i%2 == 1 {
				v.Engines = append(v.Engines, e)
			}
		}
	}
	return &v
}

// cost is the mean latency in seconds of the plan's requests at the true demand.
func (h *hour) cost(plan *fleet.Plan, v *fleet.View) float64 {
	load := make([]float64, len(plan.Engines))
	rate := map[[2]string]float64{}
	for i, d := range v.Demands {
		rate[[2]string{d.Cluster, d.Model}] += h.rates[i]
	}
	sum, all := 0.0, 0.0
	for i := range plan.Rows {
		row := &plan.Rows[i]
		d := rate[[2]string{row.Cluster, row.Model}]
		for _, a := range row.Arcs {
			load[a.Engine] += d * a.Weight
			sum += d * a.Weight * a.Network
		}
		all += d
	}
	curve := map[string]latency.Model{}
	for _, e := range v.Engines {
		curve[e.Name] = latency.New(e.Profile)
	}
	for i, e := range plan.Engines {
		m := curve[e.Name]
		sum += m.Phi(min(load[i], 0.985*m.Saturation()))
	}
	return sum / all
}

// moved is the fraction of the traffic that goes elsewhere than by the last plan:
// to another region, and to another engine at all. Engines that are gone do not
// count.
func moved(v *fleet.View, last, plan *fleet.Plan) (region, engine float64) {
	regions := map[string]string{}
	for _, e := range v.Engines {
		regions[e.Name] = e.Region
	}
	all := 0.0
	for i := range plan.Rows {
		byRegion, byEngine := map[string]float64{}, map[string]float64{}
		for _, a := range plan.Rows[i].Arcs {
			name := plan.Engines[a.Engine].Name
			byRegion[regions[name]] += a.Weight
			byEngine[name] += a.Weight
		}
		for _, a := range last.Rows[i].Arcs {
			name := last.Engines[a.Engine].Name
			byRegion[regions[name]] -= a.Weight
			byEngine[name] -= a.Weight
		}
		for _, x := range byRegion {
			region += plan.Rows[i].Rate * math.Abs(x) / 2
		}
		for _, x := range byEngine {
			engine += plan.Rows[i].Rate * math.Abs(x) / 2
		}
		all += plan.Rows[i].Rate
	}
	return region / all, engine / all
}

type outcome struct {
	latency float64   // seconds, mean
	regions []float64 // churn by tick
	engines []float64
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, x := range x {
		sum += x
	}
	return sum / float64(len(x))
}

func p99(x []float64) float64 { return slices.Sorted(slices.Values(x))[len(x)*99/100] }

func live(t *testing.T, lambda float64, late int) outcome {
	p := policy.DefaultProblem()
	p.Lambda = lambda
	h, solver := newHour(late), optimal.New(optimal.Options{Problem: &p, Warm: true})
	var last *fleet.Plan
	var o outcome
	for tick := range h.ticks {
		v := h.view(tick)
		plan, err := solver.Plan(v, last)
		require.NoError(t, err, "tick %d", tick)
		o.latency += h.cost(plan, v) / float64(h.ticks)
		if last != nil {
			region, engine := moved(h.base, last, plan)
			o.regions, o.engines = append(o.regions, region), append(o.engines, engine)
			solver.Recycle(last)
		}
		last = plan
	}
	return o
}

// An hour of drift: little moves, at hardly any cost in latency.
func TestHour(t *testing.T) {
	lambda := policy.DefaultProblem().Lambda
	free, calm, late := live(t, 0, 0), live(t, lambda, 0), live(t, lambda, 12)
	for _, x := range []struct {
		name string
		outcome
	}{{"re-optimising each tick", free}, {"optimal", calm}, {"optimal, a minute late", late}} {
		t.Logf("%s: latency %.1f ms; churn between regions %.3f %% a tick, p99 %.3f %%; between engines %.3f %%, p99 %.3f %%", x.name,
			1e3*x.latency, 100*mean(x.regions), 100*p99(x.regions), 100*mean(x.engines), 100*p99(x.engines))
	}
	if hourTicks() == 720 {
		assert.LessOrEqual(t, mean(calm.engines), 0.003)
		assert.LessOrEqual(t, p99(calm.engines), 0.01)
	} else { // the two events weigh three times as much
		assert.LessOrEqual(t, mean(calm.engines), 0.0045)
	}
	assert.LessOrEqual(t, calm.latency, 1.005*free.latency)
	assert.LessOrEqual(t, mean(late.regions), 1.1*mean(calm.regions))
	assert.LessOrEqual(t, mean(late.engines), 1.1*mean(calm.engines))
	// No oscillation that grows: after all events it is as calm as before them.
	n := len(late.engines)
	assert.LessOrEqual(t, mean(late.engines[n*10/12:]), 2*mean(late.engines[n/12:n*4/12]))
}
