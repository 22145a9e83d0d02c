package static_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy"
	"github.com/wardrop-lb/wardrop/policy/static"
)

var _ policy.Policy = static.New()

func view(weights ...float64) *fleet.View {
	v := &fleet.View{
		Clusters: []fleet.Cluster{{Name: "A"}, {Name: "B"}},
		Distances: []fleet.Distance{
			{Cluster: "A", Region: "r", Seconds: 0.1}, {Cluster: "B", Region: "r", Seconds: 0.2},
		},
		Demands: []fleet.Demand{{Cluster: "A", Model: "m", Priority: fleet.Batch, Rate: 1000}},
	}
	for i, w := range weights {
		v.Engines = append(v.Engines, fleet.Engine{
			Name: string(rune('z' - i)), Region: "r", Models: []string{"m"}, Weight: w,
			Profile: fleet.Profile{T0: 0.2, UMax: 125 * float64(i+1), Batch: 200 * float64(i+1), Kappa: 0.9},
		})
	}
	return v
}

func TestWeights(t *testing.T) {
	for name, c := range map[string]struct {
		weights, want []float64 // want by name, so the other way round
	}{
		"as configured":       {[]float64{3, 1}, []float64{0.25, 0.75}},
		"some are 0":          {[]float64{0, 5, 5}, []float64{0.5, 0.5, 0}},
		"all 0: by capacity":  {[]float64{0, 0}, []float64{2.0 / 3, 1.0 / 3}},
		"one engine":          {[]float64{0}, []float64{1}},
		"great disproportion": {[]float64{1e9, 1}, []float64{1 / (1e9 + 1), 1e9 / (1e9 + 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := static.New().Plan(view(c.weights...), nil)
			require.NoError(t, err)
			require.Len(t, plan.Rows, 2)
			for _, row := range plan.Rows {
				assert.Zero(t, row.Shed)
				for j, a := range row.Arcs {
					assert.InDelta(t, c.want[j], a.Weight, 1e-12)
				}
			}
			for j, e := range plan.Engines {
				assert.InDelta(t, 1000*c.want[j], e.Load, 1e-6)
				assert.Positive(t, e.Latency)
				assert.GreaterOrEqual(t, e.Congestion, 0.0)
			}
			assert.Zero(t, plan.Bound)
			assert.Zero(t, plan.Gap)
			assert.Positive(t, plan.Objective)
		})
	}
}

func TestNobodyServes(t *testing.T) {
	v := view(1)
	v.Demands[0].Model = "ghost"
	plan, err := static.New().Plan(v, nil)
	require.NoError(t, err)
	assert.Equal(t, [fleet.NumPriorities]float64{0, 0, 1}, plan.Row("A", "ghost").Shed)
}

func TestRefusesBadView(t *testing.T) {
	v := view(-1)
	_, err := static.New().Plan(v, nil)
	assert.ErrorContains(t, err, "weight")
}
