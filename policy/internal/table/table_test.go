package table_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy/internal/table"
)

func engine(name, region string, models ...string) fleet.Engine {
	return fleet.Engine{
		Name: name, Region: region, Models: models, Offset: 0.5,
		Profile: fleet.Profile{T0: 1, UMax: 10, Batch: 10, Kappa: 0.9},
	}
}

func view(engines ...fleet.Engine) *fleet.View {
	return &fleet.View{
		Clusters: []fleet.Cluster{{Name: "d"}, {Name: "c"}},
		Engines:  engines,
		Demands: []fleet.Demand{
			{Cluster: "d", Model: "n", Priority: fleet.Batch, Rate: 4},
			{Cluster: "d", Model: "n", Priority: fleet.Critical, Rate: 1},
			{Cluster: "c", Model: "ghost", Priority: fleet.Standard, Rate: 2},
		},
		Distances: []fleet.Distance{
			{Cluster: "c", Region: "r", Seconds: 1}, {Cluster: "c", Region: "s", Seconds: 2},
			{Cluster: "d", Region: "r", Seconds: 3}, {Cluster: "d", Region: "s", Seconds: 4},
			{Cluster: "d", Region: "empty", Seconds: 9},
		},
	}
}

func TestNumbers(t *testing.T) {
	x := table.New(view(engine("z", "r", "n", "m"), engine("y", "s", "m")))
	assert.Equal(t, []string{"c", "d"}, x.Clusters)
	assert.Equal(t, []string{"ghost", "m", "n"}, x.Models)
	assert.Equal(t, 2, x.Places)
	assert.Equal(t, "y", x.Engines[0].Name)
	assert.Empty(t, x.Serving(0))
	assert.Equal(t, []int32{0, 1}, x.Serving(1))
	assert.Equal(t, []int32{1}, x.Serving(2))
	assert.Equal(t, []int32{1}, x.Serves(0))
	assert.Equal(t, []int32{1, 2}, x.Serves(1))
	assert.Equal(t, 4.5, x.Network(1, 0))
	assert.Equal(t, 3.0, x.Farthest(0))
	assert.Equal(t, 5.0, x.Rate[x.RowIndex(1, 2)])
	assert.Equal(t, 6, x.ArcCount())
}

// What models ask may change from view to view, whatever becomes of the view before.
func TestModelsChange(t *testing.T) {
	before := view(engine("z", "r", "n", "m"), engine("y", "s", "m"))
	before.Models = []fleet.Model{{Name: "m", Work: 2}}
	x := table.New(before)
	after := view(engine("z", "r", "n", "m"), engine("y", "s", "m"))
	after.Models = []fleet.Model{{Name: "m", Work: 3, FirstToken: 2, Decode: 1}}
	before.Engines[0].Profile = fleet.Profile{}
	require.True(t, x.Update(after))
	fresh := table.New(after)
	assert.Equal(t, fresh.Curve, x.Curve)
	assert.Equal(t, fresh.Cap, x.Cap)
	assert.Equal(t, fresh.Work, x.Work)
	assert.Equal(t, fresh.Owns[1], x.Owns[1])
}

func TestPlanFrame(t *testing.T) {
	x := table.New(view(engine("z", "r", "n", "m"), engine("y", "s", "m")))
	plan, index := x.Plan("p")
	require.Len(t, plan.Rows, 5) // two models in two clusters, and ghost where asked for
	assert.Equal(t, "ghost", plan.Rows[0].Model)
	assert.Equal(t, 1.0, plan.Rows[0].Shed[fleet.Standard])
	assert.Equal(t, int32(-1), index[x.RowIndex(1, 0)])
	assert.Equal(t, int32(4), index[x.RowIndex(1, 2)])
	assert.Len(t, plan.Row("d", "m").Arcs, 2)
}

func TestLastWeights(t *testing.T) {
	before := table.New(view(engine("x", "r", "n"), engine("y", "r", "n"), engine("z", "s", "n")))
	plan, _ := before.Plan("p")
	for i, w := range []float64{0.2, 0.3, 0.5} {
		plan.Row("d", "n").Arcs[i].Weight = w
	}
	plan.Row("c", "n").Arcs[0].Weight = 1
	plan.Row("d", "n").Shed[fleet.Batch] = 0.25

	// x is gone, w is new, and z serves something else.
	x := table.New(view(engine("w", "s", "n"), engine("y", "r", "n"), engine("z", "s", "m")))
	last := x.Last(plan)
	c, d := x.RowIndex(0, 2), x.RowIndex(1, 2)
	assert.Equal(t, []float64{0, 0.3}, last.Weight[x.Row(1, 2):][:2])
	assert.True(t, last.Known[d])
	assert.False(t, last.Known[c])
	assert.Equal(t, 4.0, last.Admitted(x, d))
	assert.Nil(t, x.Last(nil))
}

func TestShedLowest(t *testing.T) {
	demand := [fleet.NumPriorities]float64{fleet.Critical: 10, fleet.Standard: 0, fleet.Batch: 4}
	for amount, want := range map[float64][fleet.NumPriorities]float64{
		0: {0, 0, 0}, 1: {0, 0, 0.25}, 4: {0, 0, 1}, 9: {0.5, 0, 1}, 14: {1, 0, 1}, 99: {1, 0, 1},
	} {
		assert.Equal(t, want, table.ShedLowest(&demand, amount))
	}
}
