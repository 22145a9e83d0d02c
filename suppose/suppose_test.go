package suppose_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/fleetgen"
	"github.com/wardrop-lb/wardrop/policy"
	"github.com/wardrop-lb/wardrop/policy/optimal"
	"github.com/wardrop-lb/wardrop/suppose"
)

func solve(view *fleet.View, last *fleet.Plan) (*fleet.Plan, error) {
	return optimal.New(optimal.Options{}).Plan(view, last)
}

// bySettings knows two settings: prices of moving.
func bySettings(settings string, view *fleet.View, last *fleet.Plan) (*fleet.Plan, error) {
	if settings == suppose.Frozen {
		return policy.Rescale(view, last), nil
	}
	p := policy.DefaultProblem()
	if settings == "dear" {
		p.Lambda *= 10
	}
	return optimal.New(optimal.Options{Problem: &p}).Plan(view, last)
}

// talk is the region that sends 120 requests/s next to an engine that serves 100, and one two
// regions away where 80 are served and 40 are needed.
func talk() *fleet.View {
	p := fleet.Profile{T0: 0.2, UMax: 125, Batch: 200, Kappa: 0.9}
	far := fleet.Profile{T0: 0.2, UMax: 100, Batch: 160, Kappa: 0.9}
	return &fleet.View{
		Clusters: []fleet.Cluster{{Name: "a", Region: "ra"}, {Name: "c", Region: "rc"}},
		Engines: []fleet.Engine{
			{Name: "near", Region: "ra", Models: []string{"m"}, Profile: p}, {Name: "far", Region: "rc", Models: []string{"m"}, Profile: far},
		},
		Demands: []fleet.Demand{{Cluster: "a", Model: "m", Priority: fleet.Standard, Rate: 120}, {Cluster: "c", Model: "m", Priority: fleet.Standard, Rate: 40}},
		Distances: []fleet.Distance{
			{Cluster: "a", Region: "ra", Seconds: 0.005}, {Cluster: "a", Region: "rc", Seconds: 0.15},
			{Cluster: "c", Region: "ra", Seconds: 0.15}, {Cluster: "c", Region: "rc", Seconds: 0.005},
		},
	}
}

func plan(t testing.TB, v *fleet.View, last *fleet.Plan) *fleet.Plan {
	t.Helper()
	p, err := solve(v, last)
	require.NoError(t, err)
	return p
}

func weight(p *fleet.Plan, cluster, model, engine string) float64 {
	for _, a := range p.Row(cluster, model).Arcs {
		if p.Engines[a.Engine].Name == engine {
			return a.Weight
		}
	}
	return 0
}

func TestWhatIf(t *testing.T) {
	v := talk()
	p := plan(t, v, nil)
	o, err := suppose.WhatIf(v, p, suppose.Changes{}, solve)
	require.NoError(t, err)
	require.Empty(t, o.Moves, "nothing is different")
	require.InDelta(t, 160, o.Before.Admitted, 1e-9)
	require.InDelta(t, o.Before.Seconds, o.After.Seconds, 1e-6)

	o, err = suppose.WhatIf(v, p, suppose.Changes{Demand: []suppose.DemandChange{{Cluster: "a", Factor: 2}}}, solve)
	require.NoError(t, err)
	require.Greater(t, o.After.Seconds, o.Before.Seconds)
	require.Positive(t, o.After.Shed["standard"], "240 and 40 are more than there is")
	require.Empty(t, o.Before.Shed)
	require.Equal(t, 120.0, v.Demands[0].Rate, "the view is not touched")

	o, err = suppose.WhatIf(v, p, suppose.Changes{Add: []suppose.AddChange{{Region: "ra", Model: "m", Engines: 2}}}, solve)
	require.NoError(t, err)
	require.Less(t, o.After.Seconds, o.Before.Seconds)
	require.Positive(t, weight(o.Plan, "a", "m", "new-1-1"))
	require.InDelta(t, weight(o.Plan, "a", "m", "new-1-1"), weight(o.Plan, "a", "m", "new-1-2"), 1e-3)

	o, err = suppose.WhatIf(v, p, suppose.Changes{Lose: []string{"rc"}}, solve)
	require.NoError(t, err)
	require.Equal(t, 1.0, weight(o.Plan, "c", "m", "near"))
	require.InDelta(t, (120*weight(p, "a", "m", "far")+40*weight(p, "c", "m", "far"))/160, o.Moved, 1e-9)
	require.Equal(t, suppose.Move{Cluster: "c", Model: "m", Engine: "far", Before: weight(p, "c", "m", "far"), Rate: -40 * weight(p, "c", "m", "far")}, o.Moves[slices.IndexFunc(o.Moves, func(m suppose.Move) bool { return m.Cluster == "c" && m.Engine == "far" })])

	o, err = suppose.WhatIf(v, p, suppose.Changes{Drain: []string{"far"}, Distance: []suppose.DistanceChange{{Cluster: "c", Region: "ra", Seconds: 0.01}}}, solve)
	require.NoError(t, err)
	require.Equal(t, 1.0, weight(o.Plan, "c", "m", "near"))

	for want, c := range map[string]suppose.Changes{
		`there is no engine "x" to drain`:       {Drain: []string{"x"}},
		`no engine is in region "x"`:            {Lose: []string{"x"}},
		`there is no demand of cluster "x"`:     {Demand: []suppose.DemandChange{{Cluster: "x", Factor: 2}}},
		`demand cannot be multiplied by -1`:     {Demand: []suppose.DemandChange{{Factor: -1}}},
		`no engine serves model "x"`:            {Add: []suppose.AddChange{{Region: "ra", Model: "x", Engines: 1}}},
		`no cluster knows the distance to`:      {Add: []suppose.AddChange{{Region: "x", Model: "m", Engines: 1}}},
		`0 engines cannot be added`:             {Add: []suppose.AddChange{{Region: "ra", Model: "m"}}},
		`there is no distance from cluster "a"`: {Distance: []suppose.DistanceChange{{Cluster: "a", Region: "x"}}},
		`NaN seconds are no distance`:           {Distance: []suppose.DistanceChange{{Cluster: "a", Region: "ra", Seconds: math.NaN()}}},
	} {
		_, err := suppose.WhatIf(v, p, c, solve)
		require.ErrorContains(t, err, want)
	}
}

func TestThresholds(t *testing.T) {
	v := talk()
	v.Demands[0].Rate, v.Demands[1].Rate = 20, 10
	v.Distances[0].Seconds, v.Distances[1].Seconds = 0.3, 0.35 // room for what moving costs in caches
	p := plan(t, v, nil)
	require.Zero(t, weight(p, "a", "m", "far"))
	list, err := suppose.Thresholds(v, p, "a", "m", "far", solve)
	require.NoError(t, err)
	require.Len(t, list, 3)
	for _, x := range list {
		require.NotNil(t, x.Needed, x.Words)
	}
	distance, demand, capacity := *list[0].Needed, *list[1].Needed, *list[2].Needed
	require.Less(t, distance, 0.35)
	require.Greater(t, demand, 20.0)
	require.Less(t, capacity, 1.0)
	// A little beyond each threshold it gets some, a little before nothing.
	for _, side := range []struct {
		factor float64
		gets   bool
	}{{1.02, true}, {0.98, false}} {
		o, err := suppose.WhatIf(v, p, suppose.Changes{Demand: []suppose.DemandChange{{Cluster: "a", Factor: demand / 20 * side.factor}}}, solve)
		require.NoError(t, err)
		require.Equal(t, side.gets, weight(o.Plan, "a", "m", "far") > 0, "demand times %v", side.factor)
		o, err = suppose.WhatIf(v, p, suppose.Changes{Distance: []suppose.DistanceChange{{Cluster: "a", Region: "rc", Seconds: distance / side.factor}}}, solve)
		require.NoError(t, err)
		require.Equal(t, side.gets, weight(o.Plan, "a", "m", "far") > 0, "distance by %v", side.factor)
	}
	require.Contains(t, list[1].Words, "It would get some at a demand of ")

	list, err = suppose.Thresholds(v, p, "a", "m", "near", solve)
	require.NoError(t, err)
	require.Nil(t, list, "it has weight")
	_, err = suppose.Thresholds(v, p, "a", "m", "nobody", solve)
	require.ErrorContains(t, err, `engine "nobody" does not serve "m"`)
	_, err = suppose.Thresholds(v, p, "b", "m", "far", solve)
	require.ErrorContains(t, err, `no row for cluster "b"`)
}

func record(v *fleet.View, p *fleet.Plan, version uint64) *suppose.Record {
	return &suppose.Record{Epoch: 1, Version: version, View: v, Plan: p, Settings: "usual"}
}

// changed copies a view.
func changed(v *fleet.View, edit func(*fleet.View)) *fleet.View {
	c := *v
	c.Engines, c.Demands, c.Distances = slices.Clone(v.Engines), slices.Clone(v.Demands), slices.Clone(v.Distances)
	edit(&c)
	return &c
}

// addsUp holds every change against the plans at its ends.
func addsUp(t require.TestingT, c *suppose.Change, before, after *fleet.Plan) {
	seen := map[string]bool{}
	for _, w := range c.Weights {
		sum := 0.0
		for _, p := range w.Parts {
			sum += p.Weight
		}
		require.InDelta(t, w.After-w.Before, sum, 1e-6, "%+v", w)
		seen[w.Cluster+w.Model+w.Engine] = true
	}
	for i := range before.Rows {
		r := &before.Rows[i]
		for _, a := range r.Arcs {
			name := before.Engines[a.Engine].Name
			now := 0.0
			if row := after.Row(r.Cluster, r.Model); row != nil {
				now = weight(after, r.Cluster, r.Model, name)
			}
			require.True(t, math.Abs(now-a.Weight) < 1e-6 || seen[r.Cluster+r.Model+name], "%s of %s is explained", name, r.Cluster)
		}
	}
}

func TestExplainOneInput(t *testing.T) {
	v := talk()
	v.Demands[0].Rate = 90
	p := plan(t, v, nil)
	for _, x := range []struct {
		input suppose.Input
		says  string
		edit  func(*fleet.View)
	}{
		{suppose.InputDemand, "standard for m of a from 90 to 125 requests/s", func(v *fleet.View) { v.Demands[0].Rate = 125 }},
		{suppose.InputDistance, "a to ra from 5 ms to 500 ms", func(v *fleet.View) { v.Distances[0].Seconds = 0.5 }},
		{suppose.InputProfile, "near alone takes 2 s, and 200 ms before", func(v *fleet.View) { v.Engines[0].Profile.T0 = 2 }},
		{suppose.InputPenalty, "near from 0 ms to 3 s", func(v *fleet.View) { v.Engines[0].Penalty = 3 }},
		{suppose.InputCapacity, "near may have 60 % of its capacity, 100 % before", func(v *fleet.View) { v.Engines[0].Ramp = 0.6 }},
		{suppose.InputMembership, "near went", func(v *fleet.View) { v.Engines = v.Engines[1:] }},
	} {
		t.Run(string(x.input), func(t *testing.T) {
			next := changed(v, x.edit)
			q := plan(t, next, p)
			c, err := suppose.Explain([]*suppose.Record{record(v, p, 1), record(next, q, 2)}, bySettings)
			require.NoError(t, err)
			require.NotEmpty(t, c.Weights)
			addsUp(t, c, p, q)
			require.Equal(t, x.input, c.Inputs[0].Input)
			require.InDelta(t, 1, c.Inputs[0].Share, 1e-9)
			require.Contains(t, strings.Join(c.Words, "\n"), x.says)
		})
	}
}

func TestExplainOverridesAndHolds(t *testing.T) {
	v := talk()
	v.Demands[0].Rate = 90
	p := plan(t, v, nil)
	drained := changed(v, func(v *fleet.View) { v.Engines = v.Engines[1:] })
	q := plan(t, drained, p)
	one, two := record(v, p, 1), record(drained, q, 2)
	two.Overrides = map[string]string{"drain/near": ""}
	c, err := suppose.Explain([]*suppose.Record{one, two}, bySettings)
	require.NoError(t, err)
	addsUp(t, c, p, q)
	require.Len(t, c.Inputs, 1)
	require.Equal(t, suppose.InputOverride, c.Inputs[0].Input)
	require.Equal(t, []string{"drain/near began"}, c.Inputs[0].What)

	// More demand, and a guard rail that leaves the weights as they are.
	more := changed(v, func(v *fleet.View) { v.Demands[0].Rate = 125 })
	held := record(more, policy.Rescale(v, p), 3)
	held.Hold = "would move too much"
	held.Held = []suppose.Held{*suppose.NewHeld("movement", held.Hold, held.Time, held.Plan, plan(t, more, p))}
	c, err = suppose.Explain([]*suppose.Record{one, held}, bySettings)
	require.NoError(t, err)
	addsUp(t, c, p, held.Plan)
	for _, w := range c.Weights {
		require.InDelta(t, w.Before, w.After, 1e-9, "demand would have, the guard did not let it")
		require.Len(t, w.Parts, 2)
	}
	require.Contains(t, c.Words[len(c.Words)-1], "Held back by the rail movement: would move too much.")
	// Then it goes out, though nothing else moves: by the guard.
	let := plan(t, more, held.Plan)
	c, err = suppose.Explain([]*suppose.Record{held, record(more, let, 4)}, bySettings)
	require.NoError(t, err)
	addsUp(t, c, held.Plan, let)
	require.Equal(t, suppose.Guard, c.Inputs[0].Input)

	frozen := record(more, policy.Rescale(more, p), 5)
	frozen.Overrides = map[string]string{suppose.Frozen: ""}
	c, err = suppose.Explain([]*suppose.Record{one, frozen}, bySettings)
	require.NoError(t, err)
	addsUp(t, c, p, frozen.Plan)
	require.NotContains(t, fmt.Sprint(c.Inputs), suppose.Guard)

	_, err = suppose.Explain(nil, bySettings)
	require.Error(t, err)
}

// edits are what may happen to a view.
var edits = []func(*rapid.T, *fleet.View){
	func(t *rapid.T, v *fleet.View) {
		for i := range v.Demands {
			v.Demands[i].Rate *= rapid.Float64Range(0.5, 1.2).Draw(t, "demand")
		}
	},
	func(t *rapid.T, v *fleet.View) {
		v.Distances[0].Seconds *= rapid.Float64Range(0.1, 4).Draw(t, "distance")
	},
	func(t *rapid.T, v *fleet.View) {
		i := rapid.IntRange(0, len(v.Engines)-1).Draw(t, "slow engine")
		v.Engines[i].Profile.T0 *= 2
		v.Engines[i].Profile.UMax /= 2
	},
	func(t *rapid.T, v *fleet.View) {
		v.Engines[rapid.IntRange(0, len(v.Engines)-1).Draw(t, "cold engine")].Ramp = 0.5
	},
	func(t *rapid.T, v *fleet.View) {
		v.Engines[rapid.IntRange(0, len(v.Engines)-1).Draw(t, "penalised engine")].Penalty = 1
	},
	func(t *rapid.T, v *fleet.View) {
		i := rapid.IntRange(0, len(v.Engines)-1).Draw(t, "dead engine")
		name := v.Engines[i].Name
		v.Engines = slices.Delete(v.Engines, i, i+1)
		v.Distances = slices.DeleteFunc(v.Distances, func(d fleet.Distance) bool { return d.Engine == name })
	},
}

// TestExplainAddsUp: whatever moves, over one step or three, the parts are the whole.
func TestExplainAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := fmt.Sprintf("clusters=3,engines=12,models=2,util=%.2f,seed=%d", rapid.Float64Range(0.3, 0.95).Draw(t, "util"), rapid.IntRange(1, 1000).Draw(t, "seed"))
		s, err := fleetgen.Parse(spec)
		require.NoError(t, err)
		v := s.View()
		p, err := solve(v, nil)
		require.NoError(t, err)
		records := []*suppose.Record{record(v, p, 1)}
		for step := range rapid.IntRange(1, 3).Draw(t, "steps") {
			v = changed(v, func(v *fleet.View) {
				for i, edit := range edits {
					if rapid.Bool().Draw(t, fmt.Sprint("edit ", i)) {
						edit(t, v)
					}
				}
			})
			r := record(v, nil, uint64(step+2))
			if rapid.Bool().Draw(t, "settings") {
				r.Settings = "dear"
			}
			if r.Plan, err = bySettings(r.Settings, v, p); err != nil {
				t.Skip("no plan")
			}
			p = r.Plan
			records = append(records, r)
		}
		c, err := suppose.Explain(records, bySettings)
		require.NoError(t, err)
		addsUp(t, c, records[0].Plan, p)
		sum := 0.0
		for _, in := range c.Inputs {
			sum += in.Share
		}
		if len(c.Weights) > 0 {
			require.InDelta(t, 1, sum, 1e-9)
		}
		require.NotContains(t, fmt.Sprint(c.Inputs), suppose.Guard, "the policy's plans are its own")
		require.NotContains(t, fmt.Sprint(c.Inputs), suppose.Path)
	})
}

func TestAdvise(t *testing.T) {
	v := talk()
	spare := v.Engines[1]
	spare.Name, spare.Region = "spare", "rs"
	v.Engines = append(v.Engines, spare) // so far that nobody goes there
	v.Distances = append(v.Distances, fleet.Distance{Cluster: "a", Region: "rs", Seconds: 9}, fleet.Distance{Cluster: "c", Region: "rs", Seconds: 9})
	p := plan(t, v, nil)
	require.Zero(t, weight(p, "a", "m", "spare"))
	a, err := suppose.Advise(v, p, solve)
	require.NoError(t, err)
	require.Equal(t, "ra", a.Add[0].Region, "where 120 requests/s meet an engine for 100")
	require.Zero(t, a.Add[0].Admitted)
	o, err := suppose.WhatIf(v, p, suppose.Changes{Add: []suppose.AddChange{{Region: "ra", Model: "m", Engines: 1}}}, solve)
	require.NoError(t, err)
	require.InDelta(t, 160*(o.Before.Seconds-o.After.Seconds), a.Add[0].Saved, 1e-9)
	require.Len(t, a.Idle, 1)
	require.Equal(t, "spare", a.Idle[0].Engine)
	require.InDelta(t, 0, a.Idle[0].Cost, 1e-3)
	require.Equal(t, "a to rc", a.Distances[0].Cluster+" to "+a.Distances[0].Region)
	require.InDelta(t, a.Distances[0].Rate*0.15, a.Distances[0].Spent, 1e-9)
	require.Equal(t, []suppose.Replicas{
		{Model: "m", Region: "ra", Engines: 1, Desired: 2, Load: a.Replicas[0].Load}, {Model: "m", Region: "rc", Engines: 1, Desired: 2, Load: a.Replicas[1].Load},
		{Model: "m", Region: "rs", Engines: 1},
	}, a.Replicas)
	require.InDelta(t, 160, a.Replicas[0].Load+a.Replicas[1].Load, 1e-9)

	v.Demands[0].Rate = 400 // more than there is
	p = plan(t, v, nil)
	a, err = suppose.Advise(v, p, solve)
	require.NoError(t, err)
	require.Positive(t, a.Add[0].Admitted)
	require.Contains(t, a.Add[0].Words, "requests/s that are refused")
	require.InDelta(t, 440, a.Replicas[0].Load+a.Replicas[1].Load+a.Replicas[2].Load, 1e-6, "refused ones are wanted too")
}

// TestAdviceIsWhereItIsBest: of all places for another engine, the first that is advised saves
// within a tenth of the most.
func TestAdviceIsWhereItIsBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, err := fleetgen.Parse(fmt.Sprintf("clusters=4,engines=24,models=2,util=%.2f,seed=%d", rapid.Float64Range(0.5, 0.9).Draw(t, "util"), rapid.IntRange(1, 1000).Draw(t, "seed")))
		require.NoError(t, err)
		v := s.View()
		p, err := solve(v, nil)
		require.NoError(t, err)
		a, err := suppose.Advise(v, p, solve)
		require.NoError(t, err)
		now, best := suppose.TotalsOf(p), 0.0
		for _, r := range a.Replicas {
			o, err := suppose.WhatIf(v, p, suppose.Changes{Add: []suppose.AddChange{{Region: r.Region, Model: r.Model, Engines: 1}}}, solve)
			require.NoError(t, err)
			best = max(best, now.Seconds*now.Admitted-o.After.Seconds*o.After.Admitted)
		}
		if best < now.Seconds*now.Admitted*1e-3 {
			t.Skip("nowhere is it worth a word")
		}
		require.NotEmpty(t, a.Add)
		require.GreaterOrEqual(t, a.Add[0].Saved, 0.9*best)
	})
}
