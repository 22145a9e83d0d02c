package optimal_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/latency"
	"github.com/wardrop-lb/wardrop/policy"
)

// tight is the usual problem without snapping.
func tight() policy.Problem {
	p := policy.DefaultProblem()
	p.Floor, p.Keep, p.MaxGap = 0, 0, 1e-6
	return p
}

// drawFeasible draws a fleet that its caps do not bind.
func drawFeasible(t *rapid.T) *fleet.View {
	s := randomShape(rapid.Uint64().Draw(t, "seed"))
	s.multi, s.util = 0, rapid.Float64Range(0.05, 0.9).Draw(t, "util")
	return s.view()
}

// More capacity never makes it worse.
func TestMoreCapacity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawFeasible(t)
		before := solve(t, tight(), v, nil).Objective
		i := rapid.IntRange(0, len(v.Engines)-1).Draw(t, "engine")
		v.Engines[i].Profile.UMax *= rapid.Float64Range(1, 2).Draw(t, "times")
		after := solve(t, tight(), v, nil).Objective
		require.LessOrEqual(t, after, before*(1+2e-6))
	})
}

// More distance never makes it better.
func TestMoreDistance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawFeasible(t)
		before := solve(t, tight(), v, nil).Objective
		i := rapid.IntRange(0, len(v.Distances)-1).Draw(t, "distance")
		v.Distances[i].Seconds += rapid.Float64Range(0, 1).Draw(t, "more")
		after := solve(t, tight(), v, nil).Objective
		require.GreaterOrEqual(t, after, before*(1-2e-6))
	})
}

// Twice the demand on twice the engines is twice the cost and the same weights.
func TestScaling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawFeasible(t)
		before := solve(t, tight(), v, nil)
		w := *v
		w.Engines, w.Demands = nil, nil
		for _, e := range v.Engines {
			w.Engines = append(w.Engines, e)
			e.Name += "twin"
			w.Engines = append(w.Engines, e)
		}
		for _, d := range v.Demands {
			d.Rate *= 2
			w.Demands = append(w.Demands, d)
		}
		after := solve(t, tight(), &w, nil)
		require.InEpsilon(t, 2*before.Objective, after.Objective, 2e-6)
		for i, e := range before.Engines {
			require.InDelta(t, e.Load, after.Engines[2*i].Load, 1e-3*e.Capacity)
			require.InDelta(t, e.Load, after.Engines[2*i+1].Load, 1e-3*e.Capacity)
		}
	})
}

// Used arcs cost what the row pays and unused ones cost no less.
func TestUnusedArcsAreDearer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawFeasible(t)
		plan := solve(t, tight(), v, nil)
		requireExplained(t, v, plan)
		for i := range plan.Rows {
			used, least := math.Inf(1), math.Inf(1)
			for _, a := range plan.Rows[i].Arcs {
				total := plan.Terms(&plan.Rows[i], a).Total
				least = min(least, total)
				if a.Weight > 0 {
					used = min(used, total)
				}
			}
			require.LessOrEqual(t, used, least*(1+1e-3))
		}
	})
}

// The optimum of one row and two engines, by golden section.
func TestAgainstGoldenSection(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string, low, high float64) float64 { return rapid.Float64Range(low, high).Draw(t, name) }
		var m [2]latency.Model
		v := talk()
		for i := range v.Engines {
			v.Engines[i].Profile = fleet.Profile{
				T0: draw("t0", 0.05, 10), UMax: draw("u_max", 1, 200), Batch: draw("batch", 1, 500), Kappa: draw("kappa", 0.5, 0.95),
			}
			v.Engines[i].Penalty = draw("penalty", 0, 1)
			m[i] = latency.New(v.Engines[i].Profile)
		}
		d := draw("util", 0.01, 0.99) * (m[0].Capacity() + m[1].Capacity())
		near, far := draw("near", 0, 0.2), draw("far", 0, 5)
		v.Clusters = v.Clusters[:1]
		v.Demands = []fleet.Demand{rate("A", fleet.Standard, d)}
		v.Distances = []fleet.Distance{{Cluster: "A", Region: "a", Seconds: near}, {Cluster: "A", Region: "c", Seconds: far}}

		cost := func(x float64) float64 {
			return x*(near+v.Engines[0].Penalty) + m[0].Phi(x) + (d-x)*(far+v.Engines[1].Penalty) + m[1].Phi(d-x)
		}
		low, high := max(0, d-m[1].Capacity()), min(d, m[0].Capacity())
		const golden = 0.6180339887498949
		for range 100 {
			a, b := high-golden*(high-low), low+golden*(high-low)
			if cost(a) < cost(b) {
				high = b
			} else {
				low = a
			}
		}
		plan := solve(t, tight(), v, nil)
		require.InEpsilon(t, cost((low+high)/2), plan.Objective, 1e-6)
	})
}

// An unrelated method on small fleets: coordinate steps between pairs of arcs,
// which need no prices. Slow, and only good where caps are slack.
func TestAgainstPairwiseDescent(t *testing.T) {
	for seed := range uint64(25) {
		s := randomShape(seed)
		s.asks = false
		s.clusters, s.engines, s.models, s.util, s.multi = 1+s.clusters%3, 2+s.engines%6, 1+s.models%2, 0.3, 1
		v := s.view()
		plan := solve(t, tight(), v, nil)
		if found := pairwise(v); math.Abs(found-plan.Objective) > 1e-4*found || found < plan.Bound*(1-1e-9) {
			t.Errorf("seed %d: descent finds %v, the plan costs %v", seed, found, plan.Objective)
		}
	}
}

// pairwise spreads every demand and then shifts flow between any two of its
// engines for as long as that helps.
func pairwise(v *fleet.View) float64 {
	far := map[[2]string]float64{}
	for _, d := range v.Distances {
		far[[2]string{d.Cluster, d.Region}] = d.Seconds
	}
	curve := make([]latency.Model, len(v.Engines))
	load := make([]float64, len(v.Engines))
	for i, e := range v.Engines {
		curve[i] = latency.New(e.Profile)
	}
	type arc struct {
		engine     int
		cost, flow float64
	}
	var rows [][]arc
	for _, d := range v.Demands {
		var row []arc
		room := 0.0
		for i, e := range v.Engines {
			for _, m := range e.Models {
				if m == d.Model {
					row = append(row, arc{engine: i, cost: far[[2]string{d.Cluster, e.Region}] + e.Offset + e.Penalty})
					room += curve[i].Capacity()
				}
			}
		}
		for j := range row {
			row[j].flow = d.Rate * curve[row[j].engine].Capacity() / room
			load[row[j].engine] += row[j].flow
		}
		rows = append(rows, row)
	}
	for range 3000 {
		for _, row := range rows {
			for j := range row {
				for k := range row {
					a, b := &row[j], &row[k]
					if a == b || a.flow == 0 {
						continue
					}
					ca, cb := curve[a.engine].At(load[a.engine]), curve[b.engine].At(load[b.engine])
					gain := a.cost + ca.Slope - b.cost - cb.Slope
					if gain <= 0 {
						continue
					}
					x := min(a.flow, gain/(ca.Bend+cb.Bend))
					a.flow, b.flow = a.flow-x, b.flow+x
					load[a.engine] -= x
					load[b.engine] += x
				}
			}
		}
	}
	total := 0.0
	for _, row := range rows {
		for _, a := range row {
			total += a.flow * a.cost
		}
	}
	for i, u := range load {
		total += curve[i].Phi(u)
	}
	return total
}
