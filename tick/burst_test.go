package tick

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wardrop-lb/wardrop/fleet"
)

// crowdedView is two models of which the second shares its engine with the first, and a
// third by itself. Every engine has a capacity of 36 requests/s.
func crowdedView(engines int, rates ...float64) *fleet.View {
	v := &fleet.View{}
	for i := range engines {
		models := [][]string{{"a"}, {"b", "a"}, {"c"}}[i%3]
		v.Engines = append(v.Engines, fleet.Engine{Name: string(rune('0' + i)), Models: models, Profile: paceProfile})
	}
	for i, r := range rates {
		v.Demands = append(v.Demands, fleet.Demand{Cluster: "c", Model: string(rune('a' + i)), Rate: r})
	}
	return v
}

func planned(v *fleet.View) (rates []float64) {
	for _, d := range v.Demands {
		rates = append(rates, d.Rate)
	}
	return rates
}

// TestBurstMayWait: a minute of more than the engines can serve is planned for as what
// they can, for the model and for the one that it shares them with; after that it is overload.
func TestBurstMayWait(t *testing.T) {
	var b bursts
	apply := func(engines int, rates ...float64) []float64 {
		v := crowdedView(engines, rates...)
		b.apply(v, demandByModel(v), 2)
		return planned(v)
	}
	require.Equal(t, []float64{30, 10, 30}, apply(3, 30, 10, 30))
	during := apply(3, 130, 10, 30)
	require.InDeltaSlice(t, []float64{0.99 * 72 * 13 / 14, 0.99 * 72 / 14, 30}, during, 1e-9)
	ticks := 1
	for apply(3, 130, 10, 30)[0] < 130 {
		ticks++
	}
	require.InDelta(t, 10, ticks, 2, "40 of 72, then 140: the mean reaches what can be served in about 20 s")
	require.Equal(t, []float64{30, 10, 30}, apply(3, 30, 10, 30))
}

// TestLossIsNoBurst: engines that go leave less than what is usual: that is overload at once,
// as it is for a leader that has not seen anything before.
func TestLossIsNoBurst(t *testing.T) {
	var b bursts
	v := crowdedView(6, 100, 20, 30)
	b.apply(v, demandByModel(v), 2)
	require.Equal(t, []float64{100, 20, 30}, planned(v))
	v = crowdedView(3, 100, 20, 30)
	b.apply(v, demandByModel(v), 2)
	require.Equal(t, []float64{100, 20, 30}, planned(v))
	v = crowdedView(3, 200, 20, 30)
	(&bursts{}).apply(v, demandByModel(v), 0)
	require.Equal(t, []float64{200, 20, 30}, planned(v))
}

// TestBurstsOnlyLower: no demand is ever raised, and none that can be served is lowered.
func TestBurstsOnlyLower(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b bursts
		rate := rapid.Float64Range(0, 100)
		for range rapid.IntRange(1, 20).Draw(t, "ticks") {
			rates := []float64{rate.Draw(t, "a"), rate.Draw(t, "b"), rate.Draw(t, "c")}
			v := crowdedView(3, rates...)
			b.apply(v, demandByModel(v), rapid.Float64Range(0, 10).Draw(t, "seconds"))
			for i, r := range planned(v) {
				require.LessOrEqual(t, r, rates[i])
			}
			if rates[0]+rates[1] < 71 && rates[2] < 35 {
				require.Equal(t, rates, planned(v))
			}
		}
	})
}
