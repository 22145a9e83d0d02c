package latency_test

import (
	"flag"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/latency"
)

// learn shows a fitter, whose prior is wrong by a factor, what an engine's gauges and
// counters say every second while its load goes through 0.1 to 0.5 of saturation every
// 25 minutes, over about 20,000 requests.
func learn(t *testing.T, e *steady, seed uint64, see func(latency.Observation) latency.Observation) *latency.Fitter {
	fit := latency.NewFitter(fleet.Profile{T0: 4, UMax: 10 * e.saturation, Batch: 1000, Kappa: 0.9})
	d := drive(t, e, 0.1*e.saturation, seed)
	for d.id < 20000 {
		for load := 0.1; load < 0.55; load += 0.1 {
			d.rate = load * e.saturation
			d.run(300, func(o latency.Observation) { fit.Observe(see(o)) })
		}
	}
	return fit
}

// TestFitFromLightLoad: from loads up to half of saturation the fitter finds saturation
// within 5 %; its curve is within 2 % of the measured latency on average over the loads
// of the fit, and within 10 % at 0.8 and 0.9 of saturation. It logs the least and the
// greatest error over the seeds.
func TestFitFromLightLoad(t *testing.T) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			var saturation, inside extent
			var latencies, firsts [len(measured)]extent
			for seed := range *seeds {
				fit := learn(t, e, seed+1, func(o latency.Observation) latency.Observation { return o })
				p := fit.Profile()
				require.NoError(t, p.Validate())
				got := latency.New(p)
				saturation.add(got.Saturation()/e.saturation - 1)
				sum := 0.0
				for i, load := range measured {
					u := load * e.saturation
					err := got.Latency(u)/e.latency[i] - 1
					latencies[i].add(err)
					firsts[i].add(got.FirstToken(u)/e.first[i] - 1)
					if load <= 0.5 {
						sum += math.Abs(err) / 3
					} else {
						assert.LessOrEqual(t, math.Abs(err), 0.1, "at %v, seed %v", load, seed)
					}
				}
				inside.add(sum)
				assert.LessOrEqual(t, sum, 0.02, "seed %v", seed)
				assert.InEpsilon(t, e.saturation, got.Saturation(), 0.05, "seed %v", seed)
			}
			t.Logf("saturation %v | inside %v | at %.1f: %v | first token: %v", saturation, inside, measured, latencies, firsts)
		})
	}
}

var seeds = flag.Uint64("seeds", 2, "how many times every engine is learned")

// extent is the least and the greatest of some numbers, in percent.
type extent []float64

func (x *extent) add(v float64) { *x = append(*x, 100*v) }

func (x extent) String() string {
	return fmt.Sprintf("%+.1f to %+.1f %%", slices.Min(x), slices.Max(x))
}

// TestFitWithoutTokens: an engine that counts no tokens is learned by Little's law, to
// within what the chance in sizes and arrivals allows.
func TestFitWithoutTokens(t *testing.T) {
	t.Parallel()
	e := engines[0]
	fit := learn(t, e, 1, func(o latency.Observation) latency.Observation {
		o.Prompt, o.Output = 0, 0
		return o
	})
	got := latency.New(fit.Profile())
	require.InEpsilon(t, e.saturation, got.Saturation(), 0.05)
	require.InEpsilon(t, e.latency[2], got.Latency(0.5*e.saturation), 0.03)
	require.InEpsilon(t, e.latency[4], got.Latency(0.9*e.saturation), 0.2)
}

func TestFitWithoutDataIsThePrior(t *testing.T) {
	prior := fleet.Profile{T0: 2, UMax: 30, Batch: 64, Kappa: 0.9}
	f := latency.NewFitter(prior)
	p := f.Profile()
	require.InEpsilon(t, 2, p.T0, 1e-9)
	require.InEpsilon(t, 30, p.UMax, 1e-9)
	require.Equal(t, 64.0, p.Batch)
	require.Equal(t, 1.0, f.Doubt())
}

// TestIdleEngineIsNotItsLimit: an engine that was only ever asked for little keeps
// the prior's u_max, whatever its rate was.
func TestIdleEngineIsNotItsLimit(t *testing.T) {
	f := latency.NewFitter(fleet.Profile{T0: 1, UMax: 100, Batch: 64, Kappa: 0.9})
	for range 3600 {
		f.Observe(latency.Observation{Seconds: 1, Rate: 0.5, InEngine: 0.5})
	}
	require.Greater(t, f.Profile().UMax, 50.0)
	require.InEpsilon(t, 1, f.Profile().T0, 0.05)
	require.Less(t, f.Doubt(), 0.1)
}

func TestFitForgets(t *testing.T) {
	f := latency.NewFitter(fleet.Profile{T0: 1, UMax: 100, Batch: 64, Kappa: 0.9})
	for _, t0 := range []float64{0.5, 2} {
		for range 7200 {
			f.Observe(latency.Observation{Seconds: 1, Rate: 10, InEngine: 10 * t0 / (1 - 10.0/100)})
		}
		require.InEpsilon(t, t0, f.Profile().T0, 0.1)
	}
}

// TestFitFollowsASlowEngine: what is learned from tokens does so too, within hours, and
// whatever the prior is.
func TestFitFollowsASlowEngine(t *testing.T) {
	for _, prior := range []fleet.Profile{
		{T0: 3, UMax: 100, Batch: 64, Kappa: 0.9}, {T0: 0.01, UMax: 1, Batch: 64, Kappa: 0.9}, {T0: 100, UMax: 1e4, Batch: 64, Kappa: 0.9},
	} {
		f := latency.NewFitter(prior)
		for _, slow := range []float64{1, 3} {
			for second := range 3 * 3600 {
				n := 5 + float64(second/60%20)
				output := n / (slow * (0.01 + 0.0002*n))
				f.Observe(latency.Observation{Seconds: 1, Rate: output / 100, InEngine: n, Running: n, Output: output})
			}
			p := f.Profile()
			require.InEpsilon(t, slow*100*0.0102, p.T0, 0.1)
			require.InEpsilon(t, 1/(slow*100*0.0002), p.UMax, 0.1)
		}
	}
}

// TestFitIsAlwaysValid: whatever the gauges say, the profile is one.
func TestFitIsAlwaysValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := latency.NewFitter(fleet.Profile{T0: 1, UMax: 10, Batch: 8, Kappa: 0.9})
		number := rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 100), rapid.SampledFrom([]float64{0, math.NaN(), math.Inf(1), -1, 1e300}))
		for range rapid.IntRange(0, 100).Draw(t, "observations") {
			f.Observe(latency.Observation{
				Seconds: number.Draw(t, "seconds"), Rate: number.Draw(t, "rate"), InEngine: number.Draw(t, "in"),
				Running: number.Draw(t, "running"), KVUsage: number.Draw(t, "kv"), Slots: number.Draw(t, "slots"),
				Prompt: number.Draw(t, "prompt"), Output: number.Draw(t, "output"),
			})
		}
		if err := f.Profile().Validate(); err != nil {
			t.Fatal(err)
		}
		if d := f.Doubt(); !(d >= 0 && d <= 1) {
			t.Fatalf("doubt %v", d)
		}
	})
}
