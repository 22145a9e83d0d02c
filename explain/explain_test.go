package explain

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/fleet"
)

var update = flag.Bool("update", false, "write the golden files anew; commit them only if you know why they changed")

// golden compares with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, got, 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

// plan is a plan as a policy would record it: two rows, three engines, one of
// them at its cap and one unused.
func plan() *fleet.Plan {
	return &fleet.Plan{
		Epoch: 2, Version: 7, Policy: "optimal", Objective: 116.2, Bound: 116.19, Gap: 8.6e-5,
		Engines: []fleet.EngineLoad{
			{Name: "far", Load: 70.6, Capacity: 80, Latency: 0.6814, Congestion: 1.657},
			{Name: "near", Load: 100, Capacity: 100, Latency: 0.7, Congestion: 1.2, Cap: 0.5834},
			{Name: "sick", Load: 0, Capacity: 50, Latency: 0.2, Penalty: 4},
		},
		Rows: []fleet.Row{
			{Cluster: "a", Model: "demo", Rate: 120, Demand: [3]float64{0, 110, 10}, Shed: [3]float64{0, 0, 0.25}, Arcs: []fleet.Arc{
				{Engine: 0, Weight: 0.255, Network: 0.15, Churn: -0.0004}, {Engine: 1, Weight: 0.745, Network: 0.005}, {Engine: 2, Network: 0.02, Churn: 0.04},
			}},
			{Cluster: "c", Model: "demo", Rate: 40, Demand: [3]float64{0, 40, 0}, Arcs: []fleet.Arc{
				{Engine: 0, Weight: 1, Network: 0.005}, {Engine: 1, Network: 0.15}, {Engine: 2, Network: 0.3},
			}},
		},
	}
}

func TestPlanJSON(t *testing.T) {
	b, err := json.MarshalIndent(NewPlan(plan()), "", "  ")
	require.NoError(t, err)
	golden(t, "plan.json", append(b, '\n'))
}

func TestPlanTable(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, WriteTable(&b, plan()))
	golden(t, "plan.txt", b.Bytes())
}

func TestWhyWeight(t *testing.T) {
	w, err := Known{}.Weight(plan(), "a", "demo", "")
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, w.Write(&b))
	golden(t, "weight.txt", b.Bytes())
	require.Equal(t, []string{"near", "far", "sick"}, []string{w.Engines[0].Engine, w.Engines[1].Engine, w.Engines[2].Engine})
	require.InDelta(t, w.Engines[2].Terms.Total-w.Level, w.Engines[2].Dearer, 1e-12)
}

func TestWhyWeightOfOneEngine(t *testing.T) {
	w, err := Known{}.Weight(plan(), "a", "demo", "sick")
	require.NoError(t, err)
	require.Len(t, w.Engines, 1)
	require.Equal(t, []string{"sick gets nothing: a request there would cost 4.26s, 1.772s more than where they go " +
		"(network 20ms, own latency 200ms, delay to others 0, penalty 4s, price of moving 40ms).",
		"Beside near: sick has a penalty of 4s, though the next request at near would cost the others 1.2s, and it is full, which costs 583.4ms.",
		"Refused are 25 % of batch requests (2.5/s), none of standard: the engines cannot take all, and the least important goes first."}, w.Words)
}

func TestWhyWeightSaysWhatIsThere(t *testing.T) {
	_, err := Known{}.Weight(plan(), "a", "ghost", "")
	require.EqualError(t, err, `the plan has no row for cluster "a" and model "ghost": it has a/demo, c/demo`)
	_, err = Known{}.Weight(plan(), "a", "demo", "ghost")
	require.EqualError(t, err, `engine "ghost" does not serve "demo" in this plan`)
	_, err = Known{}.Weight(&fleet.Plan{}, "a", "demo", "")
	require.ErrorContains(t, err, "no rows")
}

func TestSecondsAreShort(t *testing.T) {
	for s, want := range map[float64]string{0: "0", 1.5: "1.5s", 0.0123456: "12.35ms", 0.00000456: "4.56us", -0.04: "-40ms", 123.456: "123.5s"} {
		require.Equal(t, want, seconds(s))
	}
}

// Where models ask different things, the terms are each model's own.
func TestWhyWeightOfWhatRequestsAsk(t *testing.T) {
	p := plan()
	p.Rows[0].Work, p.Rows[0].TokenSeconds = 2, 100
	p.Engines[0].TokenPrice = 0.01
	p.Engines[0].Own = []fleet.OwnLatency{{Model: "demo", Seconds: -0.1}}
	w, err := Known{}.Weight(p, "a", "demo", "far")
	require.NoError(t, err)
	require.Equal(t, fleet.Terms{Network: 0.15, Latency: 2*0.6814 - 0.1, Congestion: 2 * 1.657, Cap: 1, Churn: -0.0004,
		Total: 0.15 + 2*0.6814 - 0.1 + 2*1.657 + 1 - 0.0004}, w.Engines[0].Terms)
	require.Contains(t, w.Words[0], "capacity price 1s, price of moving -400us.")
	require.Contains(t, w.Words, "far holds all the tokens that it may.")
	require.Equal(t, []Bind{{What: "tokens", Who: "far", Price: 1}, {What: "shed", Who: "batch", Fraction: 0.25}}, w.Binds)
}
