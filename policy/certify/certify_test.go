package certify_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy"
	"github.com/wardrop-lb/wardrop/policy/certify"
	"github.com/wardrop-lb/wardrop/policy/optimal"
)

// view has two near engines, a busy far one, an overloaded model of its own and
// an idle one.
func view() *fleet.View {
	profile := func(size float64) fleet.Profile {
		return fleet.Profile{T0: 0.2, UMax: size, Batch: 1.6 * size, Kappa: 0.9}
	}
	return &fleet.View{
		Clusters: []fleet.Cluster{{Name: "A", Region: "a"}, {Name: "C", Region: "c"}},
		Engines: []fleet.Engine{
			{Name: "far", Region: "c", Models: []string{"m"}, Profile: profile(100)},
			{Name: "near1", Region: "a", Models: []string{"m"}, Profile: profile(60)},
			{Name: "near2", Region: "a", Models: []string{"m"}, Profile: profile(65), Offset: 0.001, Penalty: 0.02},
			{Name: "other", Region: "a", Models: []string{"n", "idle"}, Profile: profile(30)},
		},
		Demands: []fleet.Demand{
			{Cluster: "A", Model: "m", Priority: fleet.Standard, Rate: 120},
			{Cluster: "C", Model: "m", Priority: fleet.Critical, Rate: 40},
			{Cluster: "C", Model: "n", Priority: fleet.Batch, Rate: 40},
			{Cluster: "C", Model: "ghost", Priority: fleet.Batch, Rate: 1},
		},
		Distances: []fleet.Distance{
			{Cluster: "A", Region: "a", Seconds: 0.005}, {Cluster: "A", Region: "c", Seconds: 0.150},
			{Cluster: "C", Region: "c", Seconds: 0.005}, {Cluster: "C", Region: "a", Seconds: 0.150},
		},
	}
}

// plans makes a first plan and one that follows it.
func plans(t *testing.T) (v *fleet.View, last, plan *fleet.Plan) {
	p := optimal.New(optimal.Options{})
	last, err := p.Plan(view(), nil)
	require.NoError(t, err)
	v = view()
	v.Demands[1].Rate = 25
	plan, err = p.Plan(v, last)
	require.NoError(t, err)
	return v, last, plan
}

func clone(p *fleet.Plan) *fleet.Plan {
	c := *p
	c.Engines = slices.Clone(p.Engines)
	c.Rows, c.Prices = slices.Clone(p.Rows), slices.Clone(p.Prices)
	for i := range c.Rows {
		c.Rows[i].Arcs = slices.Clone(c.Rows[i].Arcs)
	}
	return &c
}

func TestAcceptsSoundPlans(t *testing.T) {
	v, last, plan := plans(t)
	for _, x := range []struct {
		view *fleet.View
		last *fleet.Plan
		plan *fleet.Plan
	}{{view(), nil, last}, {v, last, plan}} {
		cert, err := certify.Check(x.view, x.last, x.plan, policy.DefaultProblem())
		require.NoError(t, err)
		assert.Less(t, cert.Gap, 1e-5)
		assert.LessOrEqual(t, cert.Bound, cert.Objective)
		assert.InDelta(t, 0, cert.CapExcess, 1e-6) // "other" is full
	}
}

// Rows: (A,idle) (A,m) (A,n) (C,ghost) (C,idle) (C,m) (C,n);
// engines: far near1 near2 other.
func TestRejectsCorruptedPlans(t *testing.T) {
	v, last, plan := plans(t)
	for name, c := range map[string]struct {
		corrupt func(p *fleet.Plan)
		says    string
	}{
		"weights moved": {func(p *fleet.Plan) {
			p.Rows[1].Arcs[0].Weight += 0.02
			p.Rows[1].Arcs[1].Weight -= 0.02
		}, "load is recorded"},
		"weights moved and loads with them": {func(p *fleet.Plan) {
			p.Rows[1].Arcs[0].Weight -= 0.02
			p.Rows[1].Arcs[1].Weight += 0.02
			p.Engines[0].Load -= 0.02 * 120
			p.Engines[1].Load += 0.02 * 120
		}, ""},
		"load hidden":           {func(p *fleet.Plan) { p.Engines[1].Load *= 0.9 }, "load is recorded"},
		"row emptied":           {func(p *fleet.Plan) { clear(p.Rows[1].Arcs) }, "row (A, m)"},
		"weights zero":          {func(p *fleet.Plan) { p.Rows[1].Arcs[1].Weight = 0 }, "add up"},
		"weight negative":       {func(p *fleet.Plan) { p.Rows[1].Arcs[0].Weight = -0.1 }, "fraction"},
		"weight NaN":            {func(p *fleet.Plan) { p.Rows[1].Arcs[0].Weight = math.NaN() }, "fraction"},
		"arc missing":           {func(p *fleet.Plan) { p.Rows[1].Arcs = p.Rows[1].Arcs[1:] }, "arcs for"},
		"arc twice":             {func(p *fleet.Plan) { p.Rows[1].Arcs[1] = p.Rows[1].Arcs[0] }, "out of order"},
		"arc to other model":    {func(p *fleet.Plan) { p.Rows[1].Arcs[2].Engine = 3 }, "does not serve"},
		"arc to nowhere":        {func(p *fleet.Plan) { p.Rows[1].Arcs[2].Engine = 7 }, "does not serve"},
		"arc before everything": {func(p *fleet.Plan) { p.Rows[1].Arcs[0].Engine = -1 }, "does not serve"},
		"row missing":           {func(p *fleet.Plan) { p.Rows = p.Rows[1:] }, "missing"},
		"row twice":             {func(p *fleet.Plan) { p.Rows[1] = p.Rows[0] }, "not sorted"},
		"row of nobody":         {func(p *fleet.Plan) { p.Rows[0].Model = "a" }, "no such row"},
		"rate changed":          {func(p *fleet.Plan) { p.Rows[1].Rate = 100 }, "rate"},
		"shed denied":           {func(p *fleet.Plan) { p.Rows[6].Shed = [3]float64{} }, "load is recorded"},
		"shed denied with load": {func(p *fleet.Plan) {
			p.Rows[6].Shed = [3]float64{}
			p.Engines[3].Load = 40
		}, "exceeds the cap"},
		"shed beyond all":       {func(p *fleet.Plan) { p.Rows[6].Shed[2] = 1.1 }, "fraction"},
		"ghost admitted":        {func(p *fleet.Plan) { p.Rows[3].Shed[2] = 0 }, "no engine serves"},
		"cap moved":             {func(p *fleet.Plan) { p.Engines[3].Capacity *= 2 }, "capacity"},
		"engine unknown":        {func(p *fleet.Plan) { p.Engines[3].Name = "zzz" }, "not in the view"},
		"engine missing":        {func(p *fleet.Plan) { p.Engines = p.Engines[:3] }, "engines where"},
		"price up":              {func(p *fleet.Plan) { p.Engines[0].Congestion += 0.1 }, "does not fit"},
		"price split otherwise": {func(p *fleet.Plan) { p.Engines[0].Congestion -= 0.1; p.Engines[0].Latency += 0.1 }, "does not fit"},
		"price NaN":             {func(p *fleet.Plan) { p.Engines[0].Latency = math.NaN() }, "no load"},
		"price below service":   {func(p *fleet.Plan) { p.Engines[0].Latency, p.Engines[0].Congestion = 0.1, 0 }, "no load"},
		"cap price up":          {func(p *fleet.Plan) { p.Engines[3].Cap += 0.3 }, "bound"},
		"cap price invented":    {func(p *fleet.Plan) { p.Engines[0].Cap = 0.3 }, "bound"},
		"cap price negative":    {func(p *fleet.Plan) { p.Engines[0].Cap = -0.1 }, "cap price"},
		"penalty forgotten":     {func(p *fleet.Plan) { p.Engines[2].Penalty = 0 }, "penalty"},
		"network changed":       {func(p *fleet.Plan) { p.Rows[1].Arcs[0].Network = 0.1 }, "network"},
		"group price down":      {func(p *fleet.Plan) { p.Prices[groupOf(p, "m", 0)].Seconds -= 0.02 }, "bound"},
		"group prices missing":  {func(p *fleet.Plan) { p.Prices = nil }, "bound"},
		"group price NaN":       {func(p *fleet.Plan) { p.Prices[0].Seconds = math.NaN() }, "not finite"},
		"group of nobody":       {func(p *fleet.Plan) { p.Prices[0].Model = "zzz" }, "nobody serves"},
		"churn out of range":    {func(p *fleet.Plan) { p.Rows[1].Arcs[0].Churn = 0.2 }, "churn"},
		"objective":             {func(p *fleet.Plan) { p.Objective *= 0.999 }, "objective"},
		"bound":                 {func(p *fleet.Plan) { p.Bound *= 0.999 }, "bound"},
		"gap":                   {func(p *fleet.Plan) { p.Gap += 1e-6 }, "gap"},
		"objective NaN":         {func(p *fleet.Plan) { p.Objective = math.NaN() }, "objective"},
	} {
		t.Run(name, func(t *testing.T) {
			p := clone(plan)
			c.corrupt(p)
			_, err := certify.Check(v, last, p, policy.DefaultProblem())
			require.ErrorContains(t, err, c.says)
		})
	}
	_, err := certify.Check(v, last, plan, policy.DefaultProblem())
	require.NoError(t, err, "the plan was left alone")
	_, err = certify.Check(v, nil, plan, policy.DefaultProblem())
	require.Error(t, err, "another last plan is another problem")
	_, err = certify.Check(view(), last, plan, policy.DefaultProblem())
	require.Error(t, err, "another view is another problem")
}

// groupOf finds the price of a model's group by its first engine.
func groupOf(p *fleet.Plan, model string, engine int32) int {
	return slices.IndexFunc(p.Prices, func(g fleet.GroupPrice) bool { return g.Model == model && g.Engine == engine })
}

// A request/s that moves pays the churn price at each end as the engines see it,
// and half as much again if it changes its region.
func TestChurnIsCountedTwice(t *testing.T) {
	for region, want := range map[string]float64{"a": 1, "b": 1.5} {
		profile := fleet.Profile{T0: 0.2, UMax: 100, Batch: 160, Kappa: 0.9}
		v := &fleet.View{
			Clusters: []fleet.Cluster{{Name: "A", Region: "a"}},
			Engines: []fleet.Engine{
				{Name: "e1", Region: "a", Models: []string{"m"}, Profile: profile},
				{Name: "e2", Region: region, Models: []string{"m"}, Profile: profile},
			},
			Demands:   []fleet.Demand{{Cluster: "A", Model: "m", Rate: 40}},
			Distances: []fleet.Distance{{Cluster: "A", Region: "a", Seconds: 0.01}, {Cluster: "A", Region: "b", Seconds: 0.01}},
		}
		plan := policy.ByCapacity(v)
		last := clone(plan)
		last.Rows[0].Arcs[0].Weight, last.Rows[0].Arcs[1].Weight = 1, 0
		p := policy.DefaultProblem()
		still, err := certify.Measure(v, plan, plan, p)
		require.NoError(t, err)
		moved, err := certify.Measure(v, last, plan, p)
		require.NoError(t, err)
		// 20 requests/s leave e1 and arrive at e2.
		assert.InDelta(t, want*p.Lambda*(20+20), moved.Objective-still.Objective, 1e-9)
	}
}

// A checker that has seen other views and plans gives the same answers.
func TestCheckerForgets(t *testing.T) {
	v, last, plan := plans(t)
	want, err := certify.Measure(v, last, plan, policy.DefaultProblem())
	require.NoError(t, err)
	var c certify.Checker
	for range 2 {
		_, err = c.Measure(view(), nil, last, policy.DefaultProblem())
		require.NoError(t, err)
		_, err = c.Measure(&fleet.View{}, nil, plan, policy.DefaultProblem())
		require.Error(t, err)
		got, err := c.Measure(v, last, plan, policy.DefaultProblem())
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// What engines serve may change though their profiles do not: the curves and limits
// are then others.
func TestCheckerForgetsWhoServesWhat(t *testing.T) {
	v, p := view(), optimal.New(optimal.Options{})
	v.Demands = v.Demands[:3]
	v.Models = []fleet.Model{{Name: "m", FirstToken: 1, Decode: 0.1}, {Name: "n", TokenSeconds: 3000}}
	for round := range 2 {
		for i := range v.Engines {
			v.Engines[i].Models = []string{[]string{"m", "n"}[(i+round)%2]}
			v.Engines[i].Profile = fleet.Profile{T0: 0.2, UMax: 60, Batch: 90, Kappa: 0.9, FirstToken: 0.05, Tokens: 60e3}
		}
		plan, err := p.Plan(v, nil)
		require.NoError(t, err, "round %d", round)
		_, err = certify.Check(v, nil, plan, policy.DefaultProblem())
		require.NoError(t, err)
	}
}

// A cold engine's capacity is recorded with or without its ramp; nothing between.
func TestRampedCapacity(t *testing.T) {
	v := view()
	v.Engines[1].Ramp = 0.5
	plan, err := optimal.New(optimal.Options{}).Plan(v, nil)
	require.NoError(t, err)
	_, err = certify.Check(v, nil, plan, policy.DefaultProblem())
	require.NoError(t, err)
	bad := clone(plan)
	bad.Engines[1].Capacity *= 1.1
	_, err = certify.Check(v, nil, bad, policy.DefaultProblem())
	require.ErrorContains(t, err, "capacity is recorded")
}

// A sound plan that is merely dear has an honest certificate with a gap.
func TestGapOfDearPlan(t *testing.T) {
	v := view()
	plan := policy.ByCapacity(v)
	cert, err := certify.Measure(v, nil, plan, policy.DefaultProblem())
	require.NoError(t, err)
	assert.Greater(t, cert.Gap, 1e-3)
	best, err := optimal.New(optimal.Options{}).Plan(v, nil)
	require.NoError(t, err)
	assert.Greater(t, cert.Objective, best.Objective)
	assert.LessOrEqual(t, cert.Bound, best.Objective)
}

// shared is a fleet whose one engine serves two models that ask different things,
// and whose tokens bind.
func shared(t *testing.T) (*fleet.View, *fleet.Plan) {
	v := view()
	v.Engines[0].Models = []string{"m", "n"}
	v.Engines[3].Models = []string{"n", "idle"}
	v.Engines[0].Profile.FirstToken, v.Engines[0].Profile.Tokens, v.Engines[0].Profile.Slots = 0.05, 60e3, 1000
	v.Models = []fleet.Model{
		{Name: "m", Work: 2, TokenSeconds: 4000, SlotSeconds: 1, FirstToken: 1, Decode: 0.5},
		{Name: "n", TokenSeconds: 500, SlotSeconds: 5, FirstToken: 2, Decode: 1},
	}
	plan, err := optimal.New(optimal.Options{}).Plan(v, nil)
	require.NoError(t, err)
	require.Positive(t, plan.Engines[0].TokenPrice)
	require.Len(t, plan.Engines[0].Own, 2)
	return v, plan
}

// What requests ask and are worth is certified too.
func TestRejectsCorruptedAsks(t *testing.T) {
	v, plan := shared(t)
	cert, err := certify.Check(v, nil, plan, policy.DefaultProblem())
	require.NoError(t, err)
	assert.Less(t, cert.Gap, 1e-5)
	assert.InDelta(t, 0, cert.CapExcess, 1e-6)
	for says, corrupt := range map[string]func(v *fleet.View, p *fleet.Plan){
		"work is recorded as":          func(_ *fleet.View, p *fleet.Plan) { p.Rows[1].Work = 1 },
		"token_seconds is recorded as": func(_ *fleet.View, p *fleet.Plan) { p.Rows[1].TokenSeconds++ },
		"slot_seconds is recorded as":  func(_ *fleet.View, p *fleet.Plan) { p.Rows[1].SlotSeconds++ },
		"own latency of":               func(_ *fleet.View, p *fleet.Plan) { p.Engines[0].Own = nil },
		"more than the limit":          func(v *fleet.View, _ *fleet.Plan) { v.Engines[0].Profile.Tokens *= 0.99 },
		"none of its own":              func(_ *fleet.View, p *fleet.Plan) { p.Engines[1].SlotPrice = 1 },
		"at least 0":                   func(_ *fleet.View, p *fleet.Plan) { p.Engines[0].TokenPrice *= -1 },
		"bound is recorded as":         func(_ *fleet.View, p *fleet.Plan) { p.Engines[0].TokenPrice *= 1.5 },
		"does not fit congestion":      func(v *fleet.View, _ *fleet.Plan) { v.Models[0].Decode += 0.2; v.Models[1].Decode += 0.2 },
	} {
		w, p := *v, clone(plan)
		w.Engines, w.Models = slices.Clone(v.Engines), slices.Clone(v.Models)
		corrupt(&w, p)
		_, err := certify.Check(&w, nil, p, policy.DefaultProblem())
		assert.ErrorContains(t, err, says)
	}
}
