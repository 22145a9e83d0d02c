package optimal_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy"
	"github.com/wardrop-lb/wardrop/policy/certify"
	"github.com/wardrop-lb/wardrop/policy/optimal"
)

// talk is the example of the talk: A's near engine is too small for A, and
// another one is far away and busy with its own region.
func talk() *fleet.View {
	return &fleet.View{
		Clusters: []fleet.Cluster{{Name: "A", Region: "a"}, {Name: "C", Region: "c"}},
		Engines: []fleet.Engine{
			{Name: "near", Region: "a", Models: []string{"m"}, Profile: fleet.Profile{T0: 0.2, UMax: 125, Batch: 200, Kappa: 0.9}},
			{Name: "far", Region: "c", Models: []string{"m"}, Profile: fleet.Profile{T0: 0.2, UMax: 100, Batch: 160, Kappa: 0.9}},
		},
		Demands: []fleet.Demand{
			{Cluster: "A", Model: "m", Priority: fleet.Standard, Rate: 120},
			{Cluster: "C", Model: "m", Priority: fleet.Standard, Rate: 40},
		},
		Distances: []fleet.Distance{
			{Cluster: "A", Region: "a", Seconds: 0.005}, {Cluster: "A", Region: "c", Seconds: 0.150},
			{Cluster: "C", Region: "c", Seconds: 0.005}, {Cluster: "C", Region: "a", Seconds: 0.150},
		},
	}
}

// solve plans and has the plan checked.
func solve(t require.TestingT, p policy.Problem, view *fleet.View, last *fleet.Plan) *fleet.Plan {
	plan, err := optimal.New(optimal.Options{Problem: &p}).Plan(view, last)
	require.NoError(t, err)
	_, err = certify.Check(view, last, plan, p)
	require.NoError(t, err)
	return plan
}

func TestTalk(t *testing.T) {
	plan := solve(t, policy.DefaultProblem(), talk(), nil)
	far := plan.Row("A", "m").Arcs[0]
	require.Equal(t, "far", plan.Engines[far.Engine].Name)
	assert.InDelta(t, 0.255, far.Weight, 0.005)
	a, c := plan.Row("A", "m"), plan.Row("C", "m")
	assert.InEpsilon(t, plan.Terms(a, a.Arcs[0]).Total, plan.Terms(a, a.Arcs[1]).Total, 1e-3)
	assert.Equal(t, 1.0, c.Arcs[0].Weight)
	assert.Zero(t, c.Arcs[1].Weight)
	assert.Zero(t, a.Shed)
	assert.Less(t, plan.Gap, 1e-6)
	t.Logf("%+v", plan)
}
