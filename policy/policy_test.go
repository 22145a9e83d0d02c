package policy_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy"
	"github.com/wardrop-lb/wardrop/policy/certify"
)

func TestProblemValidate(t *testing.T) {
	require.NoError(t, policy.DefaultProblem().Validate())
	for field, spoil := range map[string]func(p *policy.Problem){
		"lambda":          func(p *policy.Problem) { p.Lambda = -1 },
		"refuse.critical": func(p *policy.Problem) { p.Refuse[fleet.Critical] = 1e9 },
		"refuse.standard": func(p *policy.Problem) { p.Refuse[fleet.Standard] = 201 },
		"refuse.batch":    func(p *policy.Problem) { p.Refuse[fleet.Batch] = 0 },
		"floor":           func(p *policy.Problem) { p.Floor = 0.5 },
		"keep":            func(p *policy.Problem) { p.Keep = -1e-9 },
		"max_gap":         func(p *policy.Problem) { p.MaxGap = 0 },
	} {
		p := policy.DefaultProblem()
		spoil(&p)
		assert.ErrorContains(t, p.Validate(), field)
	}
}

func TestRowFloor(t *testing.T) {
	p := policy.DefaultProblem()
	assert.Equal(t, 2e-3, p.RowFloor(0))
	assert.Equal(t, 2e-3, p.RowFloor(50))
	assert.InDelta(t, 1e-4, p.RowFloor(1000), 1e-12)
}

// view draws a fleet of two models, some engines serving both; of even seeds, models that
// ask different things of engines with limits.
func view(seed uint64, load float64) *fleet.View {
	r := rand.New(rand.NewPCG(seed, 6))
	v := &fleet.View{}
	for c := range 1 + r.IntN(4) {
		name := fmt.Sprint("c", c)
		v.Clusters = append(v.Clusters, fleet.Cluster{Name: name})
		v.Distances = append(v.Distances, fleet.Distance{Cluster: name, Region: "r", Seconds: r.Float64()})
		for _, m := range []string{"m", "n"} {
			for k := range fleet.NumPriorities {
				v.Demands = append(v.Demands, fleet.Demand{
					Cluster: name, Model: m, Priority: fleet.Priority(k), Rate: load * r.Float64() * 50,
				})
			}
		}
	}
	for e := range 2 + r.IntN(6) {
		models := []string{"m", "n"}
		if e > 1 {
			models = models[e%2:][:1+r.IntN(2-e%2)]
		}
		v.Engines = append(v.Engines, fleet.Engine{
			Name: fmt.Sprint("e", e), Region: "r", Models: models,
			Profile: fleet.Profile{T0: 0.2, UMax: 50 + 100*r.Float64(), Batch: 200, Kappa: 0.9},
		})
	}
	if seed%2 == 0 {
		v.Models = []fleet.Model{
			{Name: "m", Work: 0.5 + r.Float64(), TokenSeconds: 1000 * r.Float64(), FirstToken: r.Float64(), Decode: 1},
			{Name: "n", TokenSeconds: 1000 * r.Float64(), SlotSeconds: r.Float64()},
		}
		for i := range v.Engines {
			v.Engines[i].Profile.Tokens, v.Engines[i].Profile.Slots = 60e3*r.Float64(), 60*r.Float64()
		}
	}
	return v
}

// Fallback plans keep every constraint, whatever the load and whoever is gone.
func TestFallbacksAreSound(t *testing.T) {
	for seed := range uint64(300) {
		for _, load := range []float64{0, 0.2, 1, 3} {
			v := view(seed, load)
			first := policy.ByCapacity(v)
			cert, err := certify.Measure(v, nil, first, policy.DefaultProblem())
			require.NoError(t, err, "seed %d load %v", seed, load)
			require.LessOrEqual(t, cert.CapExcess, 1e-9)
			requireLowestFirst(t, first)

			w := view(seed, load*1.3)
			w.Engines = append(w.Engines[:1:1], w.Engines[2:]...)
			second := policy.Rescale(w, first)
			_, err = certify.Measure(w, first, second, policy.DefaultProblem())
			require.NoError(t, err, "seed %d load %v", seed, load)
			requireLowestFirst(t, second)
		}
	}
}

func requireLowestFirst(t *testing.T, plan *fleet.Plan) {
	for _, row := range plan.Rows {
		for k := range fleet.NumPriorities - 1 {
			require.False(t, row.Shed[k] > 0 && row.Shed[k+1] < 1 && row.Rate > 0, "%v", row.Shed)
		}
	}
}

// What a last plan's mixture of models leaves within an engine's limits stays: that
// another mixture would break them is no reason to refuse anything.
func TestRescaleKeepsMixtures(t *testing.T) {
	v := &fleet.View{
		Clusters: []fleet.Cluster{{Name: "c"}}, Distances: []fleet.Distance{{Cluster: "c", Region: "r"}},
		Models:  []fleet.Model{{Name: "m", TokenSeconds: 1000}},
		Demands: []fleet.Demand{{Cluster: "c", Model: "m", Rate: 10}, {Cluster: "c", Model: "n", Rate: 80}},
		Engines: []fleet.Engine{{Name: "e", Region: "r", Models: []string{"m", "n"}, Profile: fleet.Profile{T0: 0.2, UMax: 150, Batch: 200, Kappa: 0.9, Tokens: 12e3}}},
	}
	plan := policy.ByCapacity(v)
	for i := range plan.Rows {
		assert.Zero(t, plan.Rows[i].Shed)
	}
	v.Demands[0].Rate = 15
	plan = policy.Rescale(v, plan)
	m := plan.Row("c", "m")
	assert.InEpsilon(t, 12, m.Admitted(), 1e-9, "its tokens are all held")
	_, err := certify.Measure(v, nil, plan, policy.DefaultProblem())
	assert.NoError(t, err)
}

func TestRescaleKeepsWeights(t *testing.T) {
	v := view(7, 0.1)
	first := policy.ByCapacity(v)
	again := policy.Rescale(v, first)
	for i := range first.Rows {
		for j := range first.Rows[i].Arcs {
			assert.InDelta(t, first.Rows[i].Arcs[j].Weight, again.Rows[i].Arcs[j].Weight, 1e-12)
		}
	}
	assert.Equal(t, "capacity", first.Policy)
	assert.Equal(t, "rescale", again.Policy)
}
