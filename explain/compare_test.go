package explain

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/fleetgen"
	"github.com/wardrop-lb/wardrop/policy/optimal"
)

// one is a plan of one row, of engines called e1, e2, ...
func one(policy string, arcs []fleet.Arc, engines ...fleet.EngineLoad) *fleet.Plan {
	p := &fleet.Plan{Epoch: 1, Version: 1, Policy: policy, Engines: engines}
	for i := range engines {
		engines[i].Name, engines[i].Capacity = fmt.Sprintf("e%d", i+1), 100
		arcs[i].Engine = int32(i)
	}
	p.Rows = []fleet.Row{{Cluster: "c", Model: "m", Rate: 50, Demand: [3]float64{0, 50, 0}, Arcs: arcs}}
	return p
}

// cases are what operators may come across, each with its words in testdata/words.txt.
func cases() map[string]struct {
	plan  *fleet.Plan
	known Known
} {
	type c = struct {
		plan  *fleet.Plan
		known Known
	}
	out := map[string]c{
		"congestion against distance": {plan: one("optimal", []fleet.Arc{{Network: 0.005}, {Weight: 1, Network: 0.195}},
			fleet.EngineLoad{Load: 90, Latency: 0.3, Congestion: 0.48}, fleet.EngineLoad{Load: 20, Latency: 0.3})},
		"a tie": {plan: one("optimal", []fleet.Arc{{Weight: 0.6, Network: 0.005}, {Weight: 0.4, Network: 0.155}},
			fleet.EngineLoad{Load: 90, Latency: 0.335, Congestion: 0.48}, fleet.EngineLoad{Load: 20, Latency: 0.325, Congestion: 0.34})},
		"alike": {plan: one("optimal", []fleet.Arc{{Weight: 0.25}, {Weight: 0.25}, {Weight: 0.25}, {Weight: 0.25}},
			fleet.EngineLoad{Load: 50, Latency: 0.5}, fleet.EngineLoad{Load: 50, Latency: 0.5}, fleet.EngineLoad{Load: 50, Latency: 0.5}, fleet.EngineLoad{Load: 50, Latency: 0.5})},
		"distance alone": {plan: one("optimal", []fleet.Arc{{Weight: 1, Network: 0.005}, {Network: 0.155}},
			fleet.EngineLoad{Load: 10, Latency: 0.5}, fleet.EngineLoad{Load: 10, Latency: 0.5})},
		"penalty": {plan: one("optimal", []fleet.Arc{{Weight: 1}, {}},
			fleet.EngineLoad{Load: 60, Latency: 0.5, Congestion: 0.1}, fleet.EngineLoad{Latency: 0.4, Penalty: 4})},
		"moving": {plan: one("optimal", []fleet.Arc{{Weight: 1, Network: 0.02}, {Churn: 0.035}},
			fleet.EngineLoad{Load: 60, Latency: 0.5}, fleet.EngineLoad{Load: 60, Latency: 0.5})},
		"a cap": {plan: one("optimal", []fleet.Arc{{Weight: 0.5}, {Weight: 0.5, Network: 0.2}},
			fleet.EngineLoad{Load: 100, Latency: 0.5, Cap: 0.2}, fleet.EngineLoad{Load: 50, Latency: 0.5})},
		"a cap that an override sets": {known: Known{Overrides: map[string]string{"cap/e1": "0.5"}}, plan: one("optimal", []fleet.Arc{{Weight: 0.5}, {Weight: 0.5, Network: 0.2}},
			fleet.EngineLoad{Load: 100, Latency: 0.5, Cap: 0.2}, fleet.EngineLoad{Load: 50, Latency: 0.5})},
		"one engine": {plan: one("optimal", []fleet.Arc{{Weight: 1}}, fleet.EngineLoad{Load: 50, Latency: 0.5})},
		"no engine":  {plan: one("optimal", nil)},
		"static": {plan: one("static", []fleet.Arc{{Weight: 0.5}, {Weight: 0.5, Network: 0.2}},
			fleet.EngineLoad{Load: 10, Latency: 0.5}, fleet.EngineLoad{Load: 10, Latency: 0.5})},
		"static, and another would be cheaper": {plan: one("static", []fleet.Arc{{}, {Weight: 1, Network: 0.2}},
			fleet.EngineLoad{Latency: 0.5}, fleet.EngineLoad{Load: 10, Latency: 0.5})},
		"held back": {plan: one("held", []fleet.Arc{{Weight: 0.5}, {Weight: 0.5, Network: 0.2}},
			fleet.EngineLoad{Load: 10, Latency: 0.5}, fleet.EngineLoad{Load: 10, Latency: 0.5})},
		"frozen": {known: Known{Overrides: map[string]string{"freeze": ""}}, plan: one("rescale", []fleet.Arc{{Weight: 0.5}, {Weight: 0.5, Network: 0.2}},
			fleet.EngineLoad{Load: 10, Latency: 0.5}, fleet.EngineLoad{Load: 10, Latency: 0.5})},
	}
	cold := &fleet.View{Engines: []fleet.Engine{{Name: "e1", Ramp: 0.3}}}
	out["a cold engine"] = c{plan: out["a cap"].plan, known: Known{View: cold}}
	out["a cold engine that an override caps"] = c{plan: out["a cap"].plan, known: Known{View: cold, Overrides: map[string]string{"cap/e1": "0.5"}}}
	out["held back, and why"] = c{plan: out["held back"].plan, known: Known{Hold: "would move too much"}}
	shed := one("optimal", []fleet.Arc{{Weight: 0.5}, {Weight: 0.5}}, fleet.EngineLoad{Load: 100, Latency: 0.5, Cap: 9}, fleet.EngineLoad{Load: 100, Latency: 0.5, Cap: 9})
	shed.Rows[0].Demand, shed.Rows[0].Rate, shed.Rows[0].Shed = [3]float64{50, 150, 100}, 300, [3]float64{0, 0.25, 1}
	out["shed"] = c{plan: shed}
	silent := one("optimal", []fleet.Arc{{Weight: 1}, {Network: 0.1}}, fleet.EngineLoad{Latency: 0.5}, fleet.EngineLoad{Latency: 0.5})
	silent.Rows[0].Rate, silent.Rows[0].Demand = 0, [3]float64{}
	out["no traffic"] = c{plan: silent}
	return out
}

func TestWordsOfWeights(t *testing.T) {
	all := cases()
	var b strings.Builder
	for _, name := range sortedKeys(all) {
		w, err := all[name].known.Weight(all[name].plan, "c", "m", "")
		require.NoError(t, err)
		fmt.Fprintf(&b, "%s:\n", name)
		for _, s := range w.Words {
			fmt.Fprintf(&b, "  %s\n", s)
		}
		require.LessOrEqual(t, len(strings.Fields(strings.Join(w.Words, " "))), 60, name)
	}
	golden(t, "words.txt", []byte(b.String()))
}

func sortedKeys[V any](m map[string]V) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func TestAnEngineThatIsDrained(t *testing.T) {
	_, err := Known{Overrides: map[string]string{"drain/gone": ""}}.Weight(plan(), "a", "demo", "gone")
	require.EqualError(t, err, `an override drains engine "gone": it is in no plan`)
}

// TestWordsNameTheLargestTerm: whatever the terms are, what is said to decide is what speaks most
// against the worse engine, and the words say that.
func TestWordsNameTheLargestTerm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 5).Draw(t, "engines")
		seconds := rapid.Float64Range(0, 5)
		arcs, engines := make([]fleet.Arc, n), make([]fleet.EngineLoad, n)
		for i := range n {
			arcs[i] = fleet.Arc{Network: seconds.Draw(t, "network"), Churn: rapid.Float64Range(-1, 1).Draw(t, "churn")}
			engines[i] = fleet.EngineLoad{
				Latency: seconds.Draw(t, "latency"), Congestion: seconds.Draw(t, "congestion"), Cap: seconds.Draw(t, "cap"), Penalty: seconds.Draw(t, "penalty"),
			}
		}
		p := one("optimal", arcs, engines...)
		best := 0
		for i := range arcs {
			if p.Terms(&p.Rows[0], arcs[i]).Total < p.Terms(&p.Rows[0], arcs[best]).Total {
				best = i
			}
		}
		arcs[best].Weight = 1
		w, err := Known{}.Weight(p, "c", "m", "")
		require.NoError(t, err)
		require.Len(t, w.Compared, 1)
		c := w.Compared[0]
		require.Equal(t, p.Engines[best].Name, c.Better)
		other := slices.IndexFunc(w.Engines, func(x EngineWeight) bool { return x.Engine == c.Worse })
		a, b := byTerm(w.Engines[0].Terms), byTerm(w.Engines[other].Terms)
		most, least := 0.0, 0.0
		for term := range a {
			most, least = math.Max(most, b[term]-a[term]), math.Max(least, a[term]-b[term])
		}
		require.InDelta(t, w.Engines[other].Terms.Total-w.Engines[0].Terms.Total, c.By, 1e-9)
		if c.Decides != "" {
			require.InDelta(t, most, b[c.Decides]-a[c.Decides], 1e-12)
			require.Contains(t, w.Words[0], mark[c.Decides])
			require.Less(t, strings.Index(w.Words[0], mark[c.Decides]), len(w.Words[0])-strings.Count(w.Words[0], "though"))
		}
		if c.Against != "" {
			require.InDelta(t, least, a[c.Against]-b[c.Against], 1e-12)
			_, after, found := strings.Cut(w.Words[0], "though ")
			require.Equal(t, c.Decides != "", found)
			if found {
				require.Contains(t, after, mark[c.Against])
			}
		}
		require.GreaterOrEqual(t, most, c.By/float64(len(terms)), "one of the terms has its part of the whole")
	})
}

// mark is what the words say of a term.
var mark = map[Term]string{Network: "away", Latency: "itself takes", Congestion: "cost the others", Cap: "is full", Penalty: "penalty", Churn: "in caches"}

// byTerm reads the terms by the names that JSON has for them.
func byTerm(t fleet.Terms) map[Term]float64 {
	b, _ := json.Marshal(t)
	out := map[Term]float64{}
	_ = json.Unmarshal(b, &out)
	delete(out, "total")
	return out
}

// TestUsedEnginesAreSaidToBeEven: of plans that the optimizer makes, at any load, after changes
// too, the words never say of a row that its engines cost different amounts, nor that an unused
// one would be cheaper.
func TestUsedEnginesAreSaidToBeEven(t *testing.T) {
	for seed := range 4 {
		for _, util := range []string{"0.3", "0.9", "1.2"} {
			s, err := fleetgen.Parse(fmt.Sprintf("clusters=5,engines=20,models=2,regions=4,util=%s,seed=%d", util, seed))
			require.NoError(t, err)
			v := s.View()
			var plan *fleet.Plan
			for range 3 {
				plan, err = optimal.New(optimal.Options{}).Plan(v, plan)
				require.NoError(t, err)
				for i := range plan.Rows {
					w, err := Known{}.Weight(plan, plan.Rows[i].Cluster, plan.Rows[i].Model, "")
					require.NoError(t, err)
					words := strings.Join(w.Words, " ")
					require.NotContains(t, words, "One more costs from")
					require.NotContains(t, words, "cheaper")
					require.LessOrEqual(t, len(strings.Fields(words)), 120, words)
				}
				for i := range v.Demands {
					v.Demands[i].Rate *= 1 + 0.1*float64(i%3)
				}
			}
		}
	}
}
