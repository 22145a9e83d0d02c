package optimal_test

import (
	"fmt"
	"math"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy"
	"github.com/wardrop-lb/wardrop/policy/certify"
	"github.com/wardrop-lb/wardrop/policy/optimal"
)

// When time is up Plan says so, whatever iteration that is in, and the next call
// is as good as ever.
func TestExpired(t *testing.T) {
	v := talk()
	want := solve(t, policy.DefaultProblem(), v, nil)
	var left atomic.Int64
	p := optimal.New(optimal.Options{Expired: func() bool { return left.Add(-1) < 0 }})
	for n := range int64(5) {
		left.Store(n)
		_, err := p.Plan(v, nil)
		require.ErrorContains(t, err, "no time left")
	}
	left.Store(1000)
	got, err := p.Plan(v, nil)
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

func TestTrace(t *testing.T) {
	var seen []optimal.Iteration
	var stages []optimal.Stage
	p := optimal.New(optimal.Options{
		Trace: func(i optimal.Iteration) { seen = append(seen, i) },
		Stage: func(s optimal.Stage) { stages = append(stages, s) },
	})
	plan, err := p.Plan(talk(), nil)
	require.NoError(t, err)
	require.NotEmpty(t, seen)
	for i, x := range seen {
		assert.Equal(t, i, x.Number)
	}
	final := seen[len(seen)-1]
	assert.Less(t, final.Products, 1e-6)
	assert.Less(t, final.PrimalRes, 1e-8)
	assert.InEpsilon(t, plan.Objective, final.Objective, 1e-5)
	assert.Equal(t, []optimal.Stage{optimal.Read, optimal.Solved, optimal.Written, optimal.Certified}, stages)
}

// A warm start gives the plan of a cold one, as far as the certificate can tell.
func TestWarm(t *testing.T) {
	p := tight()
	p.Lambda = 0
	for seed := range uint64(30) {
		v := randomShape(seed).view()
		iterations := map[bool]int{}
		trace := func(i optimal.Iteration) { iterations[i.Warm]++ }
		warm := optimal.New(optimal.Options{Problem: &p, Warm: true, Trace: trace})
		for tick := range uint64(5) {
			w := shifted(v, 0.01, tick)
			got, err := warm.Plan(w, nil)
			require.NoError(t, err)
			want := solve(t, p, w, nil)
			assert.InEpsilon(t, 1+want.Objective, 1+got.Objective, 2e-6)
		}
		assert.Positive(t, iterations[true], "seed %d", seed)
		w := drifted(v, 0.9, 99)
		clear(iterations)
		_, err := warm.Plan(w, nil)
		require.NoError(t, err)
		assert.Positive(t, iterations[false], "demand that moved a lot is solved cold")
	}
}

// A cold engine gets no more than its ramp, and all it can take where the others
// cannot do without.
func TestRamp(t *testing.T) {
	p := policy.DefaultProblem()
	v := talk()
	v.Engines[0].Ramp = 0.1
	v.Demands = []fleet.Demand{rate("A", fleet.Standard, 40), rate("C", fleet.Standard, 20)}
	plan := solve(t, p, v, nil)
	near := plan.Engines[1]
	require.Equal(t, "near", near.Name)
	assert.InEpsilon(t, 10, near.Capacity, 1e-9)
	assert.InEpsilon(t, 10, near.Load, 1e-4)
	assert.Positive(t, near.Cap)
	v.Engines[0].Ramp = 0
	assert.Greater(t, solve(t, p, v, plan).Engines[1].Load, 20.0)

	v.Engines[0].Ramp = 0.1
	v.Demands[0].Rate = 120
	plan = solve(t, p, v, nil)
	assert.InEpsilon(t, 100, plan.Engines[1].Capacity, 1e-9)
	for _, row := range plan.Rows {
		assert.Zero(t, row.Shed)
	}
}

// An engine with a distance of its own is a place of its own; one that is as far
// as its region is not.
func TestOwnDistance(t *testing.T) {
	p := tight()
	for seed := range uint64(40) {
		s := randomShape(seed)
		v := s.view()
		plain := solve(t, p, v, nil)
		region := map[[2]string]float64{}
		for _, d := range v.Distances {
			region[[2]string{d.Cluster, d.Region}] = d.Seconds
		}
		same, noisy := *v, *v
		for i, e := range v.Engines {
			for j, c := range v.Clusters {
				seconds := region[[2]string{c.Name, e.Region}]
				d := fleet.Distance{Cluster: c.Name, Region: e.Region, Engine: e.Name, Seconds: seconds}
				same.Distances = append(same.Distances[:len(same.Distances):len(same.Distances)], d)
				if (i+j)%3 == 0 {
					d.Seconds *= 1 + 0.3*math.Sin(float64(7*i+3*j))
					noisy.Distances = append(noisy.Distances[:len(noisy.Distances):len(noisy.Distances)], d)
				}
			}
		}
		require.NoError(t, same.Validate())
		again := solve(t, p, &same, nil)
		assert.InDelta(t, 0, again.Objective-plain.Objective, 1e-9*plain.Objective)
		other := solve(t, p, &noisy, nil)
		solve(t, policy.DefaultProblem(), &noisy, other)
		for _, row := range other.Rows {
			for _, a := range row.Arcs {
				d := region[[2]string{row.Cluster, regionOf(v, other.Engines[a.Engine].Name)}]
				assert.LessOrEqual(t, a.Network, d*1.31)
			}
		}
	}
}

func regionOf(v *fleet.View, engine string) string {
	for _, e := range v.Engines {
		if e.Name == engine {
			return e.Region
		}
	}
	return ""
}

// The pricer's pass is what the certificate's bound has for the rows: at the
// prices of a plan without shedding, no demand can do better.
func TestPricer(t *testing.T) {
	v := talk()
	plan := solve(t, policy.DefaultProblem(), v, nil)
	price := make([]float64, len(plan.Engines))
	paid := 0.0
	for i, e := range plan.Engines {
		price[i] = e.Price()
	}
	for i := range plan.Rows {
		row := &plan.Rows[i]
		for _, a := range row.Arcs {
			paid += row.Rate * a.Weight * plan.Terms(row, a).Total
		}
	}
	pricer := optimal.NewPricer(v)
	assert.Equal(t, 4, pricer.Arcs())
	assert.InEpsilon(t, paid, pricer.Pass(price), 1e-3)
}

// Recycled plans are overwritten, whatever view they were of.
func TestRecycle(t *testing.T) {
	p := optimal.New(optimal.Options{})
	for seed := range uint64(60) {
		v := randomShape(seed).view()
		want := solve(t, policy.DefaultProblem(), v, nil)
		got, err := p.Plan(v, nil)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(want, got), "seed %d", seed)
		p.Recycle(got)
		w := perturbed(v, seed)
		second, err := p.Plan(w, want)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(solve(t, policy.DefaultProblem(), w, want), second), "seed %d", seed)
		p.Recycle(second)
	}
}

// The same policy, table and all, follows a view that the caller changes in
// place.
func TestViewChangedInPlace(t *testing.T) {
	p := optimal.New(optimal.Options{})
	v := talk()
	_, err := p.Plan(v, nil)
	require.NoError(t, err)
	for i, change := range []func(){
		func() { v.Demands[0].Rate = 50 },
		func() { v.Engines[0].Profile.T0 = 0.5 },
		func() { v.Distances[0].Seconds = 0.1 },
		func() { v.Engines[0].Name = "zzz" },
		func() { v.Engines[1].Models[0] = "x" },
		func() { v.Clusters[0].Name, v.Clusters[1].Name = "C", "A" },
		func() { v.Engines[0].Penalty, v.Engines[0].Offset = 0.1, 0.1 },
		func() { v.Demands[1].Priority = fleet.Batch },
	} {
		change()
		got, err := p.Plan(v, nil)
		require.NoError(t, err, "change %d", i)
		require.Empty(t, cmp.Diff(solve(t, policy.DefaultProblem(), v, nil), got), "change %d", i)
		_, err = certify.Check(v, nil, got, policy.DefaultProblem())
		require.NoError(t, err)
	}
	v.Demands[0].Rate = math.Inf(1)
	_, err = p.Plan(v, nil)
	require.ErrorContains(t, err, "demand[0]: rate")
}

// Tokens and slots limit an engine as its fraction of saturation does, and the
// tightest of the three counts.
func TestTokensAndSlots(t *testing.T) {
	p := policy.DefaultProblem()
	v := talk()
	v.Models = []fleet.Model{{Name: "m", TokenSeconds: 2000, SlotSeconds: 0.5}, {Name: "n", TokenSeconds: 4000}}
	v.Engines[0].Profile.Tokens = 100e3 // 50 requests/s of m
	v.Engines[1].Profile.Slots = 15     // 30 requests/s
	v.Demands = []fleet.Demand{rate("A", fleet.Standard, 45), rate("C", fleet.Standard, 40)}
	plan := solve(t, p, v, nil)
	assert.InEpsilon(t, 30, plan.Engines[0].Capacity, 1e-12)
	assert.InEpsilon(t, 50, plan.Engines[1].Capacity, 1e-12)
	assert.InDelta(t, 80, plan.Engines[0].Load+plan.Engines[1].Load, 1e-4)
	assert.InDelta(t, 5.0, 45*plan.Row("A", "m").Shed[1]+40*plan.Row("C", "m").Shed[1], 1e-3)

	// n holds twice as much: where both are served, the mixture counts.
	v.Engines[0].Models = []string{"m", "n"}
	v.Engines[1].Profile.Slots = 0
	v.Demands = []fleet.Demand{rate("A", fleet.Standard, 120), {Cluster: "C", Model: "n", Priority: fleet.Critical, Rate: 10}}
	plan = solve(t, p, v, plan)
	near := plan.Engines[1]
	assert.Equal(t, "near", near.Name)
	used := 2000*120*(1-plan.Row("A", "m").Shed[1])*plan.Row("A", "m").Arcs[1].Weight + 4000*10
	assert.InEpsilon(t, 100e3, used, 1e-6, "its tokens are all held")
	assert.Greater(t, near.TokenPrice, 0.0)
	assert.Zero(t, near.Cap)
	a, c := plan.Row("A", "m"), plan.Row("C", "n")
	assert.InEpsilon(t, 2*plan.Terms(a, a.Arcs[1]).Cap, plan.Terms(c, c.Arcs[0]).Cap, 1e-9)
}

// A request that asks twice the work counts twice, in load and in latency.
func TestWork(t *testing.T) {
	p := policy.DefaultProblem()
	plain := solve(t, p, talk(), nil)
	v := talk()
	v.Models = []fleet.Model{{Name: "m", Work: 2}}
	for i := range v.Demands {
		v.Demands[i].Rate /= 2
	}
	for i := range v.Distances {
		v.Distances[i].Seconds *= 2
	}
	double := solve(t, p, v, nil)
	assert.InEpsilon(t, plain.Objective, double.Objective, 1e-6)
	for i := range plain.Rows {
		for j := range plain.Rows[i].Arcs {
			assert.InDelta(t, plain.Rows[i].Arcs[j].Weight, double.Rows[i].Arcs[j].Weight, 1e-3)
			one, two := plain.Terms(&plain.Rows[i], plain.Rows[i].Arcs[j]), double.Terms(&double.Rows[i], double.Rows[i].Arcs[j])
			assert.InEpsilon(t, 2*one.Total, two.Total, 1e-3)
		}
	}
	for i := range plain.Engines {
		assert.InEpsilon(t, plain.Engines[i].Load, double.Engines[i].Load, 1e-3)
	}
}

// Where only the time to the first token is worth something, distance is worth a
// detour that end-to-end time, in which it drowns, is not; and a shared engine charges
// each model its own.
func TestWorth(t *testing.T) {
	p := policy.DefaultProblem()
	v := talk()
	for i := range v.Engines {
		v.Engines[i].Profile.FirstToken = v.Engines[i].Profile.T0 / 10
	}
	before := solve(t, p, v, nil)
	v.Models = []fleet.Model{{Name: "m", FirstToken: 1}}
	first := solve(t, p, v, nil)
	far := func(plan *fleet.Plan) float64 { return plan.Row("A", "m").Arcs[0].Weight }
	assert.Less(t, far(first), far(before)-0.01, "who waits for the first token alone stays near")
	assert.Greater(t, first.Engines[1].Seconds, 2*first.Engines[1].Latency, "seconds are what they are")

	v.Models = append(v.Models, fleet.Model{Name: "n", FirstToken: 3, Decode: 1})
	for i := range v.Engines {
		v.Engines[i].Models = []string{"m", "n"}
	}
	v.Demands = append(v.Demands, fleet.Demand{Cluster: "A", Model: "n", Rate: 5})
	shared := solve(t, p, v, nil)
	m, n := shared.Row("A", "m"), shared.Row("A", "n")
	profile := v.Engines[0].Profile
	// At no load m's time is worth F, n's 3 F + (T0-F).
	assert.InDelta(t, 2*profile.FirstToken+profile.T0-profile.FirstToken,
		shared.Terms(n, n.Arcs[1]).Latency-shared.Terms(m, m.Arcs[1]).Latency, 1e-9)
}

// Where time is worth nothing until the knee (decode counts nothing, and nobody knows
// the first token's part), curves are flat at 0 and costs next to nothing. There is a
// plan all the same, whoever is asked for, and the next one moves nothing.
func TestWorthNothingBelowTheKnee(t *testing.T) {
	p := policy.DefaultProblem()
	for name, serve := range map[string][2][]string{"apart": {{"m"}, {"n"}}, "shared": {{"m", "n"}, {"m", "n"}}} {
		for _, batch := range []float64{4, 256, 1e5} {
			for _, distance := range []float64{0, 1} {
				for _, load := range [][2]float64{{0, 0}, {1e-6, 0}, {1, 1}, {20, 0}, {20, 20}, {30, 60}} {
					v := talk()
					v.Models = []fleet.Model{{Name: "m", TokenSeconds: 10, FirstToken: 1}, {Name: "n", TokenSeconds: 30, Work: 2, FirstToken: 1}}
					for i := range v.Engines {
						v.Engines[i].Models = serve[i]
						v.Engines[i].Profile.Batch, v.Engines[i].Profile.Tokens = batch, 700
					}
					for i := range v.Distances {
						v.Distances[i].Seconds *= distance
					}
					v.Demands = []fleet.Demand{{Cluster: "A", Model: "m", Rate: load[0]}, {Cluster: "C", Model: "n", Rate: load[1]}}
					says := fmt.Sprint(name, batch, distance, load)
					solver := optimal.New(optimal.Options{Warm: true})
					plan, err := solver.Plan(v, nil)
					require.NoError(t, err, says)
					_, err = certify.Check(v, nil, plan, p)
					require.NoError(t, err, says)
					for _, e := range plan.Engines {
						require.False(t, e.Full() && e.Load < e.Capacity/4, "%s: what is left of no price fills no engine: %v", says, e)
					}
					again, err := solver.Plan(v, plan)
					require.NoError(t, err, says)
					require.Zero(t, changed(plan, again), says)
				}
			}
		}
	}
}
