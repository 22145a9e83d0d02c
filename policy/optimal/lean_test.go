package optimal_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/policy"
	"github.com/wardrop-lb/wardrop/policy/optimal"
)

// leanShape is a fleet of many engines with distances of their own, so that it is
// solved on some of its arcs.
func leanShape(seed uint64) shape {
	r := rand.New(rand.NewPCG(seed, 4))
	return shape{
		clusters: 2 + r.IntN(8), engines: 160 + r.IntN(240), models: 1 + r.IntN(2), regions: 1 + r.IntN(6), seed: seed,
		util: []float64{0.3, 0.8, 0.95, 1.2}[r.IntN(4)], multi: []float64{0, 0, 0.2}[r.IntN(3)], mixed: seed%2 == 0,
		kappa: 0.9, noise: []float64{0.03, 0.3, 3}[r.IntN(3)], asks: r.IntN(3) == 0,
	}
}

// What is solved on some of the arcs is the optimum over all of them: so says the
// certificate, which prices them all.
func TestColumns(t *testing.T) {
	for seed := range instances(t, 12) {
		v, p := leanShape(seed).view(), tight()
		solver := optimal.New(optimal.Options{Problem: &p, Warm: true})
		last, err := solver.Plan(v, nil)
		require.NoError(t, err, "seed %d", seed)
		r := rand.New(rand.NewPCG(seed, 5))
		for range 3 { // demand drifts, an engine is penalised, a cluster falls silent
			for i := range v.Demands {
				v.Demands[i].Rate *= 0.98 + 0.04*r.Float64()
			}
			v.Engines[r.IntN(len(v.Engines))].Penalty += 3
			if silent := v.Clusters[r.IntN(len(v.Clusters))].Name; r.IntN(3) == 0 {
				for i := range v.Demands {
					if v.Demands[i].Cluster == silent {
						v.Demands[i].Rate = 0
					}
				}
			}
			plan, err := solver.Plan(v, last)
			require.NoError(t, err, "seed %d", seed)
			cold, err := optimal.New(optimal.Options{Problem: &p}).Plan(v, last)
			require.NoError(t, err, "seed %d", seed)
			assert.InDelta(t, cold.Objective, plan.Objective, 2*p.MaxGap*cold.Objective)
			last = plan
		}
	}
}

// A fleet that all fall silent has a plan too, though its columns are still there.
func TestColumnsWithoutDemand(t *testing.T) {
	v, p := leanShape(1).view(), policy.DefaultProblem()
	p.Lambda = 0 // else the last weights stay, and nothing is solved
	solver := optimal.New(optimal.Options{Problem: &p, Warm: true})
	for _, rate := range []float64{1, 0, 1} {
		w := *v
		w.Demands = slices.Clone(v.Demands)
		for i := range w.Demands {
			w.Demands[i].Rate *= rate
		}
		_, err := solver.Plan(&w, nil)
		require.NoError(t, err, "at %v of the demand", rate)
	}
}

// The columns depend on the view alone, not on its order.
func TestColumnsInAnyOrder(t *testing.T) {
	for seed := range uint64(4) {
		v, p := leanShape(seed).view(), policy.DefaultProblem()
		require.Equal(t, solve(t, p, v, nil), solve(t, p, shuffled(v, seed), nil))
	}
}

// The plan is the same to the bit for any number of threads and any order of the
// view, of fleets with everything in them.
func TestSameToTheBit(t *testing.T) {
	for _, s := range []shape{
		{clusters: 20, engines: 400, models: 6, regions: 8, seed: 1, util: 0.95, kappa: 0.9, mixed: true},
		{clusters: 20, engines: 400, models: 6, regions: 8, seed: 2, util: 1.1, multi: 0.2, kappa: 0.9, mixed: true, asks: true},
		{clusters: 12, engines: 400, models: 3, regions: 8, seed: 3, util: 0.9, kappa: 0.9, noise: 0.05},
	} {
		v := s.view()
		first := solve(t, policy.DefaultProblem(), v, nil)
		w := drifted(v, 0.3, 1)
		second := solve(t, policy.DefaultProblem(), w, first)
		for threads := 1; threads <= 4; threads *= 2 {
			p := optimal.New(optimal.Options{Run: workers(threads)})
			again, err := p.Plan(shuffled(v, uint64(threads)), nil)
			require.NoError(t, err)
			require.Equal(t, first, again)
			again, err = p.Plan(shuffled(w, uint64(threads)), again)
			require.NoError(t, err)
			require.Equal(t, second, again)
		}
	}
}
