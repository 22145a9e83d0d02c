package enginemodel_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/enginemodel"
	"github.com/wardrop-lb/wardrop/fleet"
)

type reference struct {
	name           string
	profile        fleet.Profile
	prompt, output int
}

func references() []reference {
	return []reference{
		{"8B chat", fleet.Profile{T0: 1.9, UMax: 60, Batch: 256, Kappa: 0.9}, 512, 256},
		{"slots bind", fleet.Profile{T0: 2, UMax: 20, Batch: 32, Kappa: 0.9}, 512, 128},
		{"compute binds", fleet.Profile{T0: 1, UMax: 10, Batch: 64, Kappa: 0.9}, 256, 64},
		{"long prompts", fleet.Profile{T0: 3, UMax: 8, Batch: 48, Kappa: 0.9}, 4000, 100},
		{"short and quick", fleet.Profile{T0: 0.05, UMax: 400, Batch: 16, Kappa: 0.9}, 32, 16},
	}
}

func saturation(p fleet.Profile) float64 { return p.Batch / (p.T0 + p.Batch/p.UMax) }

// processorSharing is the latency of the profile before the batch is full.
func processorSharing(p fleet.Profile, u float64) float64 { return p.T0 / (1 - u/p.UMax) }

func newEngine(t testing.TB, r reference) *enginemodel.Engine {
	t.Helper()
	e, err := enginemodel.New(enginemodel.FromProfile(r.profile, r.prompt, r.output))
	require.NoError(t, err)
	return e
}

func TestFromProfileAlone(t *testing.T) {
	for _, r := range references() {
		t.Run(r.name, func(t *testing.T) {
			e := newEngine(t, r)
			require.NoError(t, e.Add(enginemodel.Request{ID: 1, Prompt: r.prompt, Output: r.output}, 0))
			took := runDry(e)
			require.InEpsilon(t, r.profile.T0, took.Seconds(), 1e-3)
		})
	}
}

func TestFromProfileFollowsTheLatencyCurve(t *testing.T) {
	for _, r := range references() {
		for _, rho := range []float64{0.2, 0.5, 0.85} {
			t.Run(fmt.Sprintf("%s at %v", r.name, rho), func(t *testing.T) {
				t.Parallel()
				u := rho * saturation(r.profile)
				want := processorSharing(r.profile, u)
				got := drive(newEngine(t, r), u, 20000/u, 7, fixed(r.prompt, r.output))
				t.Logf("L(%.3g) = %.4g s, want %.4g s", u, got.mean, want)
				require.InEpsilon(t, want, got.mean, 0.1)
			})
		}
	}
}

func TestFromProfileSaturates(t *testing.T) {
	for _, r := range references() {
		t.Run(r.name, func(t *testing.T) {
			sat := saturation(r.profile)
			got := drive(newEngine(t, r), 1.2*sat, 10000/sat, 7, fixed(r.prompt, r.output))
			t.Logf("throughput %.4g requests/s, saturation %.4g requests/s", got.throughput, sat)
			require.InEpsilon(t, sat, got.throughput, 0.05)
			require.Positive(t, got.gauges.Waiting)
		})
	}
}

func TestFromProfileHoldsForMixedSizes(t *testing.T) {
	// Processor sharing does not care how sizes are spread, only for the mean.
	r := references()[2]
	size := func(rng *rand.Rand) (int, int) {
		return 1 + int(rng.ExpFloat64()*float64(r.prompt)), 1 + int(rng.ExpFloat64()*float64(r.output))
	}
	u := 0.5 * saturation(r.profile)
	got := drive(newEngine(t, r), u, 40000/u, 3, size)
	require.InEpsilon(t, processorSharing(r.profile, u), got.mean, 0.1)
}

func TestFromProfileIsAlwaysValid(t *testing.T) {
	for _, p := range []fleet.Profile{
		{T0: 1, UMax: 0.1, Batch: 0.4}, {T0: 1e-3, UMax: 1e6, Batch: 1000}, {T0: 100, UMax: 1, Batch: 1},
	} {
		for _, size := range [][2]int{{0, 0}, {1, 1}, {100000, 1}, {1, 100000}} {
			params := enginemodel.FromProfile(p, size[0], size[1])
			require.NoError(t, params.Validate())
			require.GreaterOrEqual(t, params.MaxTokens(), size[0]+size[1])
		}
	}
}
