package tick

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
)

const tickSeconds = 2

// poisson is how many arrivals a tick has; bursty ones come eight at a time.
func poisson(random *rand.Rand, rate float64, together int) float64 {
	n := 0
	for t := random.ExpFloat64(); t < rate*tickSeconds/float64(together); t += random.ExpFloat64() {
		n += together
	}
	return float64(n)
}

// TestRateFollowsSteps: a step up to three times or down to a third is followed within two
// ticks to ten percent, and not passed by more.
func TestRateFollowsSteps(t *testing.T) {
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 1))
		for _, factor := range []float64{3, 1.0 / 3} {
			var r Rate
			rate := 3000.0
			for range 50 {
				r.Observe(poisson(random, rate, 1), tickSeconds)
			}
			// The step comes in the middle of a tick.
			r.Observe((poisson(random, rate, 1)+poisson(random, factor*rate, 1))/2, tickSeconds)
			for range 30 {
				r.Observe(poisson(random, factor*rate, 1), tickSeconds)
				require.InEpsilon(t, factor*rate, r.Mean(), 0.1, "seed %d", seed)
			}
		}
	}
}

// TestRateIsCalm: what is chance moves the estimate by what a minute's chance is, whether
// arrivals come one by one or in bursts.
func TestRateIsCalm(t *testing.T) {
	for _, together := range []int{1, 8} {
		random := rand.New(rand.NewPCG(7, uint64(together)))
		var r Rate
		sum, n, missed := 0.0, 0.0, 0.0
		for i := range 5000 {
			r.Observe(poisson(random, 40, together), tickSeconds)
			if i > 500 {
				sum, n, missed = sum+(r.Mean()-40)*(r.Mean()-40), n+1, missed+r.Missed()
			}
		}
		least := math.Sqrt(40 * float64(together) / demandMemory)
		assert.Less(t, math.Sqrt(sum/n), 1.35*least, "together %d", together)
		assert.InEpsilon(t, float64(together), r.Dispersion(), 0.25)
		assert.InEpsilon(t, 0.8*math.Sqrt(float64(together)/(40*tickSeconds)), missed/n, 0.1)
	}
}

// TestRateTakesAnything: no counts make it negative, infinite or grow without end.
func TestRateTakesAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Rate
		most := 0.0
		for range rapid.IntRange(1, 100).Draw(t, "ticks") {
			count, seconds := rapid.Float64Range(0, 1e6).Draw(t, "count"), rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0.01, 100)).Draw(t, "seconds")
			if seconds > 0 {
				most = max(most, count/seconds)
			}
			r.Observe(count, seconds)
			require.True(t, r.Mean() >= 0 && r.Mean() <= most*(1+1e-9))
			require.True(t, r.Dispersion() >= 1 && r.Dispersion() <= dispersionMost)
			require.True(t, r.Missed() >= 0 && !math.IsInf(r.Missed(), 0))
		}
	})
}

// reported is a data plane's report of one model's demand.
func reported(instance string, at time.Time, count uint64, rate, window float64) Report {
	return Report{&pb.ReportRequest{Cluster: "c", Instance: instance, Time: timestamppb.New(at), Demands: []*pb.Demand{
		{Model: "m", Priority: 1, Rate: rate, Count: count, Window: window},
	}}, at}
}

// TestRatesAddUp: of several data planes what each has counted since its last report adds
// up; one that is gone, starts anew or says nothing new makes no step.
func TestRatesAddUp(t *testing.T) {
	var r rates
	at := time.Unix(1_700_000_000, 0)
	apply := func(planes ...Report) float64 {
		sum := 0.0
		for _, p := range planes {
			sum += p.Demands[0].Rate
		}
		view := &fleet.View{Demands: []fleet.Demand{{Cluster: "c", Model: "m", Priority: 1, Rate: sum}}}
		r.apply(view, planes, 2)
		return view.Demands[0].Rate
	}
	second := func(s int) time.Time { return at.Add(time.Duration(s) * time.Second) }
	require.InDelta(t, 30, apply(reported("a", second(0), 100, 10, 10), reported("b", second(0), 1000, 20, 10)), 1e-9)
	require.InDelta(t, 30, apply(reported("a", second(2), 120, 0, 10), reported("b", second(2), 1040, 0, 10)), 1e-9, "the counts are what counts")
	require.InDelta(t, 30, apply(reported("a", second(2), 120, 0, 10), reported("b", second(4), 1080, 0, 10)), 1e-9, "a has said nothing new")
	require.InDelta(t, 30, apply(reported("a2", second(6), 5, 10, 3), reported("b", second(6), 1120, 20, 10)), 1e-9, "a has started anew")
	for s := 8; s < 20; s += 2 {
		apply(reported("b", second(s), uint64(1120+20*(s-6)), 20, 10))
	}
	require.InDelta(t, 20, apply(reported("b", second(20), 1400, 20, 10)), 1e-9, "a is gone, which is a step")
}

// TestExpectedDemandStands until a cluster has measured for some seconds.
func TestExpectedDemandStands(t *testing.T) {
	c, err := config.Parse("test.yaml", []byte(`
clusters: [{name: c, region: r, distances: {r: 1ms}}]
engines: [{name: e, region: r, models: [m], kind: none}]
demand: [{cluster: c, model: m, rate: 50}]
`))
	require.NoError(t, err)
	var m Memory
	now := time.Unix(1_700_000_000, 0)
	planes := []Report{reported("a", now, 10, 5, 1)}
	view := View(c, planes, now)
	m.Apply(view, planes, "optimal", now)
	require.Equal(t, 50.0, view.Demands[0].Rate)
	now = now.Add(5 * time.Second)
	planes = []Report{reported("a", now, 30, 5, 6)}
	view = View(c, planes, now)
	m.Apply(view, planes, "optimal", now)
	require.InDelta(t, 5, view.Demands[0].Rate, 1e-9)
}
