package optimal_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy"
	"github.com/wardrop-lb/wardrop/policy/optimal"
)

// wild draws a fleet in which every figure spans orders of magnitude.
func wild(seed uint64) *fleet.View {
	r := rand.New(rand.NewPCG(seed, 7))
	spread := func(low, high float64) float64 { return low * math.Pow(high/low, r.Float64()) }
	sometimes := func(x float64) float64 {
		if r.IntN(3) > 0 {
			return 0
		}
		return x
	}
	v := &fleet.View{}
	regions, models := 1+r.IntN(4), 1+r.IntN(4)
	for c := range 1 + r.IntN(6) {
		name := fmt.Sprint("c", c)
		v.Clusters = append(v.Clusters, fleet.Cluster{Name: name})
		for i := range regions {
			v.Distances = append(v.Distances, fleet.Distance{Cluster: name, Region: fmt.Sprint("r", i), Seconds: sometimes(spread(1e-4, 1))})
		}
		for m := range models + 1 {
			for k := range fleet.NumPriorities {
				if r.IntN(2) == 0 {
					v.Demands = append(v.Demands, fleet.Demand{
						Cluster: name, Model: model(m), Priority: fleet.Priority(k), Rate: sometimes(spread(1e-6, 1e3)),
					})
				}
			}
		}
	}
	for e := range 1 + r.IntN(20) {
		var names []string
		for m := range models {
			if r.IntN(2) == 0 {
				names = append(names, model(m))
			}
		}
		if names == nil {
			names = []string{model(0)}
		}
		v.Engines = append(v.Engines, fleet.Engine{
			Name: fmt.Sprint("e", e), Region: fmt.Sprint("r", r.IntN(regions)), Models: names,
			Profile: fleet.Profile{
				T0: spread(1e-3, 100), UMax: spread(1e-3, 1e3), Batch: spread(1, 1e4), Kappa: 0.05 + 0.9*r.Float64(),
			},
			Offset: sometimes(spread(1e-4, 1)), Penalty: sometimes(spread(1e-3, 100)),
		})
	}
	return v
}

func TestWildFleets(t *testing.T) {
	p := policy.DefaultProblem()
	for seed := range instances(t, 500) {
		v := wild(seed)
		first := solve(t, p, v, nil)
		second := solve(t, p, perturbed(v, seed), first)
		solve(t, p, perturbed(v, seed+1), second)
	}
}

// An hour of drift with engines that fail and come back: no tick fails, and
// little moves.
func TestManyTicks(t *testing.T) {
	base := shape{clusters: 10, engines: 60, models: 2, regions: 4, seed: 5, util: 0.75}.view()
	for i := range base.Engines {
		base.Engines[i].Profile.T0 *= 0.1
	}
	r := rand.New(rand.NewPCG(8, 8))
	level := make([]float64, len(base.Demands))
	policy := optimal.New(optimal.Options{})
	var last *fleet.Plan
	moved, total := 0.0, 0.0
	for tick := range 200 {
		v := *base
		v.Demands = append([]fleet.Demand(nil), base.Demands...)
		for i := range level {
			level[i] = 0.95*level[i] + 0.02*r.NormFloat64()
			v.Demands[i].Rate *= math.Exp(level[i])
		}
		if tick%40 > 30 {
			v.Engines = v.Engines[3:]
		}
		plan, err := policy.Plan(&v, last)
		require.NoError(t, err, "tick %d", tick)
		if last != nil && len(last.Engines) == len(plan.Engines) {
			for i, row := range plan.Rows {
				for j, a := range row.Arcs {
					moved += row.Rate * math.Abs(a.Weight-last.Rows[i].Arcs[j].Weight) / 2
				}
				total += row.Rate
			}
		}
		last = plan
	}
	require.Less(t, moved/total, 0.005)
	t.Logf("%.4f %% of the traffic moves in a tick", 100*moved/total)
}
