package optimal_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy"
	"github.com/wardrop-lb/wardrop/policy/optimal"
)

// demands replaces the talk's demand.
func demands(ds ...fleet.Demand) *fleet.View {
	v := talk()
	v.Demands = ds
	return v
}

func rate(cluster string, k fleet.Priority, r float64) fleet.Demand {
	return fleet.Demand{Cluster: cluster, Model: "m", Priority: k, Rate: r}
}

// Demand over capacity is shed lowest priority first, across clusters, exactly,
// and everything the caps let through is served.
func TestShedsLowestFirst(t *testing.T) {
	p := policy.DefaultProblem()
	for name, c := range map[string]struct {
		demand [2][fleet.NumPriorities]float64 // of A and C
		shed   [fleet.NumPriorities]float64    // requests/s of both
	}{
		"some batch":                {[2][3]float64{{10, 90, 50}, {10, 20, 20}}, [3]float64{0, 0, 20}},
		"all batch, some standard":  {[2][3]float64{{50, 90, 50}, {10, 60, 20}}, [3]float64{0, 30, 70}},
		"some critical":             {[2][3]float64{{150, 90, 50}, {50, 60, 20}}, [3]float64{20, 150, 70}},
		"critical far, batch near":  {[2][3]float64{{0, 0, 300}, {90, 0, 0}}, [3]float64{0, 0, 210}},
		"standard only, one place":  {[2][3]float64{{0, 0, 0}, {0, 200, 0}}, [3]float64{0, 20, 0}},
		"hundredfold":               {[2][3]float64{{100, 9000, 9000}, {0, 0, 0}}, [3]float64{0, 8920, 9000}},
		"exactly what there is":     {[2][3]float64{{0, 120, 0}, {0, 60, 0}}, [3]float64{0, 0, 0}},
		"a trifle more than enough": {[2][3]float64{{0, 120, 0}, {0, 60, 0.001}}, [3]float64{0, 0, 0.001}},
	} {
		t.Run(name, func(t *testing.T) {
			v := demands()
			for i, cluster := range []string{"A", "C"} {
				for k, r := range c.demand[i] {
					v.Demands = append(v.Demands, rate(cluster, fleet.Priority(k), r))
				}
			}
			plan := solve(t, p, v, nil)
			var shed [fleet.NumPriorities]float64
			for i, cluster := range []string{"A", "C"} {
				for k, f := range plan.Row(cluster, "m").Shed {
					shed[k] += f * c.demand[i][k]
				}
			}
			for k := range shed {
				assert.InDelta(t, c.shed[k], shed[k], 1e-4, fleet.Priority(k).String())
			}
			served := 0.0
			for _, e := range plan.Engines {
				served += e.Load
			}
			if name != "exactly what there is" {
				assert.InEpsilon(t, 180, served, 1e-6)
			}
		})
	}
}

func TestPriorityAcrossModels(t *testing.T) {
	// x serves both models: batch of m1 gives way to standard of m2.
	v := demands(
		fleet.Demand{Cluster: "A", Model: "m1", Priority: fleet.Batch, Rate: 80},
		fleet.Demand{Cluster: "A", Model: "m2", Priority: fleet.Standard, Rate: 90},
	)
	v.Engines = v.Engines[:1]
	v.Engines[0].Models = []string{"m1", "m2"}
	plan := solve(t, policy.DefaultProblem(), v, nil)
	assert.InDelta(t, 70.0/80, plan.Row("A", "m1").Shed[fleet.Batch], 1e-6)
	assert.Zero(t, plan.Row("A", "m2").Shed)
}

func TestNobodyServes(t *testing.T) {
	v := talk()
	v.Demands = append(v.Demands, fleet.Demand{Cluster: "C", Model: "ghost", Priority: fleet.Batch, Rate: 3})
	plan := solve(t, policy.DefaultProblem(), v, nil)
	row := plan.Row("C", "ghost")
	require.NotNil(t, row)
	assert.Empty(t, row.Arcs)
	assert.Equal(t, [fleet.NumPriorities]float64{0, 0, 1}, row.Shed)
	assert.Nil(t, plan.Row("A", "ghost"))
	assert.Zero(t, plan.Row("A", "m").Shed)
}

func TestNoEngine(t *testing.T) {
	v := talk()
	v.Engines = nil
	v.Distances = nil
	plan := solve(t, policy.DefaultProblem(), v, nil)
	assert.Len(t, plan.Rows, 2)
	assert.Equal(t, 1.0, plan.Rows[0].Shed[fleet.Standard])
	assert.Zero(t, plan.Gap)
}

func TestNoDemand(t *testing.T) {
	p := policy.DefaultProblem()
	plan := solve(t, p, demands(), nil)
	assert.Zero(t, plan.Objective)
	// Without a last plan a row goes where a request costs least.
	assert.Equal(t, 1.0, plan.Row("A", "m").Arcs[1].Weight)
	assert.Equal(t, 1.0, plan.Row("C", "m").Arcs[0].Weight)
	// With one it stays where it was.
	before := solve(t, p, talk(), nil)
	after := solve(t, p, demands(), before)
	assert.Zero(t, changed(before, after))
}

func TestEmptyView(t *testing.T) {
	plan := solve(t, policy.DefaultProblem(), &fleet.View{}, nil)
	assert.Empty(t, plan.Rows)
}

func TestOneEngine(t *testing.T) {
	v := talk()
	v.Engines = v.Engines[1:]
	plan := solve(t, policy.DefaultProblem(), v, nil)
	for _, row := range plan.Rows {
		assert.Equal(t, 1.0, row.Arcs[0].Weight)
	}
	assert.InDelta(t, 80, plan.Engines[0].Load, 1e-5)
	assert.Positive(t, plan.Engines[0].Cap)
}

// Engines that can do next to nothing get next to nothing.
func TestZeroCapacity(t *testing.T) {
	p := policy.DefaultProblem()
	for _, umax := range []float64{1e-3, 1e-9, 1e-15} {
		v := talk()
		v.Engines[0].Profile.UMax = umax
		plan := solve(t, p, v, nil)
		assert.Less(t, plan.Engines[1].Load, 1e-3)
		assert.InEpsilon(t, 80, plan.Engines[0].Load, 1e-4)
		v.Engines[1].Profile.UMax = umax
		plan = solve(t, p, v, plan)
		for _, row := range plan.Rows {
			assert.InDelta(t, 1, row.Shed[fleet.Standard], 1e-4)
		}
	}
	v := talk()
	v.Engines[0].Profile.UMax = 0
	_, err := optimal.New(optimal.Options{}).Plan(v, nil)
	assert.ErrorContains(t, err, "profile.u_max")
}

func TestTwinsShareEqually(t *testing.T) {
	p := policy.DefaultProblem()
	v := talk()
	for _, name := range []string{"near2", "near3"} {
		e := v.Engines[0]
		e.Name = name
		v.Engines = append(v.Engines, e)
	}
	var last *fleet.Plan
	for range 2 {
		last = solve(t, p, v, last)
		arcs := last.Row("A", "m").Arcs // far, near, near2, near3
		assert.Equal(t, arcs[1].Weight, arcs[2].Weight)
		assert.Equal(t, arcs[1].Weight, arcs[3].Weight)
	}
	// A newcomer is alike in everything but its past, so it breaks the tie.
	e := v.Engines[0]
	e.Name = "near4"
	v.Engines = append(v.Engines, e)
	solve(t, p, v, last)
}

func TestAllDistancesEqual(t *testing.T) {
	v := talk()
	for i := range v.Distances {
		v.Distances[i].Seconds = 0.02
	}
	plan := solve(t, policy.DefaultProblem(), v, nil)
	a, b := plan.Engines[0], plan.Engines[1]
	assert.InEpsilon(t, a.Price(), b.Price(), 1e-3)
	for i := range v.Distances {
		v.Distances[i].Seconds = 0
	}
	solve(t, policy.DefaultProblem(), v, nil)
}

// Requests per year on slow engines, and a hundred million a second.
func TestUnits(t *testing.T) {
	want := solve(t, policy.DefaultProblem(), talk(), nil)
	for _, scale := range []float64{1e-8, 1e-4, 1e4, 1e8} {
		v := talk()
		for i := range v.Engines {
			v.Engines[i].Profile.UMax *= scale
			v.Engines[i].Profile.T0 /= scale
		}
		for i := range v.Demands {
			v.Demands[i].Rate *= scale
		}
		for i := range v.Distances {
			v.Distances[i].Seconds /= scale
		}
		p := policy.DefaultProblem()
		p.Lambda = 0
		for k := range p.Refuse {
			p.Refuse[k] = min(1e6, max(1e-6, p.Refuse[k]/scale))
		}
		p.Refuse[1], p.Refuse[2] = p.Refuse[0], p.Refuse[0]
		plan := solve(t, p, v, nil)
		assert.InDelta(t, want.Row("A", "m").Arcs[0].Weight, plan.Row("A", "m").Arcs[0].Weight, 1e-5, "%v", scale)
	}
}

func TestPenaltyMovesTraffic(t *testing.T) {
	p := policy.DefaultProblem()
	v := talk()
	v.Demands = []fleet.Demand{rate("A", fleet.Standard, 60)}
	before := solve(t, p, v, nil)
	v.Engines[0].Penalty = 0.5
	after := solve(t, p, v, before)
	assert.Less(t, after.Row("A", "m").Arcs[1].Weight, before.Row("A", "m").Arcs[1].Weight-0.2)
	v.Engines[0].Penalty = 100
	assert.Zero(t, solve(t, p, v, after).Row("A", "m").Arcs[1].Weight)
}

// When an engine goes, its traffic moves at once and the others keep theirs.
func TestEngineGone(t *testing.T) {
	p := policy.DefaultProblem()
	v := talk()
	v.Demands = []fleet.Demand{rate("A", fleet.Standard, 60), rate("C", fleet.Standard, 40)}
	twin := v.Engines[0]
	twin.Name = "near2"
	v.Engines = append(v.Engines, twin)
	before := solve(t, p, v, nil)
	require.InDelta(t, 0.5, before.Row("A", "m").Arcs[1].Weight, 1e-9)
	v.Engines = v.Engines[:2]
	after := solve(t, p, v, before)
	assert.Greater(t, after.Row("A", "m").Arcs[1].Weight, 0.9)
	assert.Equal(t, 1.0, after.Row("C", "m").Arcs[0].Weight)
}

// The churn terms say where traffic moved.
func TestChurnTerms(t *testing.T) {
	p := policy.DefaultProblem()
	before := solve(t, p, talk(), nil)
	v := talk()
	v.Demands[1].Rate = 10 // C leaves room on far
	after := solve(t, p, v, before)
	arcs := after.Row("A", "m").Arcs
	require.Greater(t, arcs[0].Weight, before.Row("A", "m").Arcs[0].Weight)
	assert.InDelta(t, p.RowChurn()+p.EngineChurn(), arcs[0].Churn, 1e-6)
	assert.InDelta(t, -p.RowChurn()-p.EngineChurn(), arcs[1].Churn, 1e-6)
	// C's requests did not use near, and do not now: to move there costs C the
	// price between groups, and near, which others leave, gains that of an engine.
	assert.InDelta(t, p.RowChurn()-p.EngineChurn(), after.Row("C", "m").Arcs[1].Churn, 1e-6)
	for _, row := range before.Rows {
		for _, a := range row.Arcs {
			assert.Zero(t, a.Churn)
		}
	}
	free := p
	free.Lambda = 0
	assert.Less(t, arcs[0].Weight, solve(t, free, v, before).Row("A", "m").Arcs[0].Weight)
}

// The plan is the same to the bit for any order of the view, any number of
// workers in any order, and whatever the policy has solved before.
func TestSameForAnyOrderAndAnyRunner(t *testing.T) {
	backwards := func(n int, job func(int)) {
		for i := n - 1; i >= 0; i-- {
			job(i)
		}
	}
	used := optimal.New(optimal.Options{Run: workers(2)})
	for seed := range uint64(40) {
		v := randomShape(seed).view()
		w := perturbed(v, seed)
		first := solve(t, policy.DefaultProblem(), v, nil)
		second := solve(t, policy.DefaultProblem(), w, first)
		for _, p := range []*optimal.Policy{
			used, optimal.New(optimal.Options{Run: backwards}),
			optimal.New(optimal.Options{Run: workers(1)}), optimal.New(optimal.Options{Run: workers(4)}),
		} {
			again, err := p.Plan(shuffled(w, seed), first)
			require.NoError(t, err)
			if diff := cmp.Diff(second, again); diff != "" {
				t.Fatalf("seed %d: %s", seed, diff)
			}
		}
	}
}

func TestRefusesBadInput(t *testing.T) {
	v := talk()
	v.Demands[0].Rate = math.NaN()
	_, err := optimal.New(optimal.Options{}).Plan(v, nil)
	assert.ErrorContains(t, err, "demand[0]")
	p := policy.DefaultProblem()
	p.Lambda = -1
	_, err = optimal.New(optimal.Options{Problem: &p}).Plan(talk(), nil)
	assert.ErrorContains(t, err, "lambda")
}
