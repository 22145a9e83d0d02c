package optimal_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy"
	"github.com/wardrop-lb/wardrop/policy/certify"
)

// randomShape draws small fleets of every sort, overloaded ones too.
func randomShape(seed uint64) shape {
	r := rand.New(rand.NewPCG(seed, 4))
	pick := func(xs ...float64) float64 { return xs[r.IntN(len(xs))] }
	return shape{
		clusters: 1 + r.IntN(12), engines: 1 + r.IntN(50), models: 1 + r.IntN(4), regions: 1 + r.IntN(6),
		seed: seed, util: pick(0.05, 0.3, 0.7, 0.9, 0.95, 1, 1.02, 1.3, 4), multi: pick(0, 0, 0.3, 1),
		kinds: r.IntN(2) == 0, mixed: r.IntN(2) == 0, kappa: pick(0.95, 0.9, 0.85, 0.5), asks: r.IntN(3) == 0,
	}
}

// perturbed is a view some ticks later: demand has moved, engines have left,
// come, or got a penalty, and demand at some clusters has ceased.
func perturbed(v *fleet.View, seed uint64) *fleet.View {
	r := rand.New(rand.NewPCG(seed, 5))
	w := drifted(v, []float64{0.01, 0.1, 0.9}[r.IntN(3)], seed)
	w.Engines = nil
	for _, e := range v.Engines {
		switch r.IntN(20) {
		case 0:
			continue
		case 1:
			e.Penalty = r.Float64()
		case 2:
			e.Offset = 0.01 * r.Float64()
		case 3:
			w.Engines = append(w.Engines, e)
			e.Name += "new"
		}
		w.Engines = append(w.Engines, e)
	}
	for i := range w.Demands {
		if r.IntN(20) == 0 {
			w.Demands[i].Rate = 0
		}
	}
	return w
}

// requireExplained checks that the used arcs of each row cost the same; arcs
// with less than a ten-thousandth of the demand do not count as used.
func requireExplained(t require.TestingT, v *fleet.View, plan *fleet.Plan) {
	admitted := map[[2]string]float64{}
	for _, d := range v.Demands {
		if d.Rate == 0 {
			continue
		}
		admitted[[2]string{d.Cluster, d.Model}] += d.Rate * (1 - plan.Row(d.Cluster, d.Model).Shed[d.Priority])
	}
	for i := range plan.Rows {
		row := &plan.Rows[i]
		low, high := math.Inf(1), math.Inf(-1)
		for _, a := range row.Arcs {
			if a.Weight*admitted[[2]string{row.Cluster, row.Model}] > 1e-4*row.Rate {
				total := plan.Terms(row, a).Total
				low, high = min(low, total), max(high, total)
			}
		}
		require.False(t, high-low > 1e-3*high, "row (%s, %s): totals from %v to %v", row.Cluster, row.Model, low, high)
	}
}

// requireServed checks that every row's weights add up, to the last digits.
func requireServed(t require.TestingT, plan *fleet.Plan) {
	for i := range plan.Rows {
		sum := 0.0
		for _, a := range plan.Rows[i].Arcs {
			sum += a.Weight
		}
		if len(plan.Rows[i].Arcs) > 0 {
			require.InDelta(t, 1, sum, 1e-12)
		}
	}
}

// instances is how many fleets to draw: more by environment.
func instances(t *testing.T, usual uint64) uint64 {
	if s := os.Getenv("WARDROP_INSTANCES"); s != "" {
		n, err := strconv.ParseUint(s, 10, 32)
		require.NoError(t, err)
		return n
	}
	if testing.Short() {
		return usual / 6
	}
	return usual
}

// Small fleets, each solved twice: at the start and after changes. Set
// WARDROP_INSTANCES=10000 for as many.
func TestRandomFleets(t *testing.T) {
	n := instances(t, 600)
	exact := policy.DefaultProblem()
	exact.Floor, exact.Keep, exact.MaxGap = 0, 0, 1e-6
	usual := policy.DefaultProblem()
	for seed := range n {
		v := randomShape(seed).view()
		w := perturbed(v, seed)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			for _, p := range []policy.Problem{exact, usual} {
				first := solve(t, p, v, nil)
				second := solve(t, p, w, first)
				for _, x := range []struct {
					view *fleet.View
					last *fleet.Plan
					plan *fleet.Plan
				}{{v, nil, first}, {w, first, second}} {
					cert, err := certify.Measure(x.view, x.last, x.plan, p)
					require.NoError(t, err)
					require.LessOrEqual(t, cert.CapExcess, 1e-9)
					requireServed(t, x.plan)
					requireExplained(t, x.view, x.plan)
				}
			}
		})
	}
}
