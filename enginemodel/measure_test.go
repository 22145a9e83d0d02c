package enginemodel_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/enginemodel"
	"github.com/wardrop-lb/wardrop/fleet"
)

func preset(t testing.TB, name string) enginemodel.Params {
	t.Helper()
	p, ok := enginemodel.Hardware(name)
	require.True(t, ok)
	return p
}

func TestHardware(t *testing.T) {
	require.Equal(t, []string{"70b-4xa100", "70b-4xh100", "70b-8xh100", "8b-a100", "8b-h100"}, enginemodel.HardwareNames())
	for _, name := range enginemodel.HardwareNames() {
		require.NoError(t, preset(t, name).Validate())
	}
	require.Equal(t, 28181, preset(t, "8b-h100").Blocks)
	require.Equal(t, 30412, preset(t, "70b-4xa100").Blocks)
	require.Equal(t, 87756, preset(t, "70b-8xh100").Blocks)
	_, ok := enginemodel.Hardware("abacus")
	require.False(t, ok)
}

func TestProfileIsWhatStepsGive(t *testing.T) {
	for _, size := range [][2]int{{512, 256}, {100, 20}, {6000, 300}, {200, 800}} {
		for _, name := range enginemodel.HardwareNames() {
			t.Run(fmt.Sprintf("%s %d/%d", name, size[0], size[1]), func(t *testing.T) {
				t.Parallel()
				p := preset(t, name)
				profile := enginemodel.Profile(p, float64(size[0]), float64(size[1]), 0)
				require.Equal(t, 0.9, profile.Kappa)

				e := engine(t, p)
				require.NoError(t, e.Add(enginemodel.Request{ID: 1, Prompt: size[0], Output: size[1]}, 0))
				now, got := firsts(e, 0)
				require.InEpsilon(t, now.Seconds(), profile.T0, 0.001)
				require.InEpsilon(t, got[1].At.Seconds(), profile.FirstToken, 0.001)

				sat := saturation(profile)
				n := int(15 * profile.Batch)
				full := newPlan(n, 1.2*sat, size[0], size[1], 0, 50, 1).run(t, fast(t, p))
				t.Logf("saturation %.3f, want %.3f requests/s (%.1f %%); batch %.0f", sat, full.throughput, 100*(sat/full.throughput-1), profile.Batch)
				require.InEpsilon(t, full.throughput, sat, 0.05)
			})
		}
	}
}

func TestProfileCountsWhatIsCached(t *testing.T) {
	p := preset(t, "8b-a100")
	e := engine(t, p)
	ask := func(id uint64) (first, last float64) {
		require.NoError(t, e.Add(prefixed(id, 2000, 100, block(1, 1600)), 0))
		at, got := firsts(e, 0)
		return got[id].At.Seconds(), at.Seconds()
	}
	ask(1)
	first, last := ask(2)
	profile := enginemodel.Profile(p, 2000, 100, 1600)
	require.InEpsilon(t, first, profile.FirstToken, 0.001)
	require.InEpsilon(t, last, profile.T0, 0.001)
	require.Greater(t, saturation(profile), 1.5*saturation(enginemodel.Profile(p, 2000, 100, 0)))

	sat := saturation(enginemodel.Profile(p, 1024+300, 200, 1024))
	full := newPlan(4000, 1.2*sat, 300, 200, 1024, 50, 1).run(t, fast(t, p))
	require.InEpsilon(t, full.throughput, sat, 0.05)
}

func TestProfileOfExtremesIsValid(t *testing.T) {
	valid := func(p fleet.Profile) {
		t.Helper()
		for _, x := range []float64{p.T0, p.UMax, p.Batch} {
			require.Greater(t, x, 0.0)
			require.Less(t, x, 1e12)
		}
		require.GreaterOrEqual(t, p.T0, p.FirstToken)
	}
	one := small()
	one.MaxBatch, one.Frontend = 1, 0.1
	for _, p := range []enginemodel.Params{small(), one, preset(t, "8b-h100")} {
		for _, size := range [][3]float64{{0, 0, 0}, {1, 1, 1}, {1e5, 1, 0}, {1, 1e5, 0}, {300, 50, 1e9}} {
			valid(enginemodel.Profile(p, size[0], size[1], size[2]))
		}
	}
}
