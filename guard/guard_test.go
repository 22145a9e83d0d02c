package guard_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/fleetgen"
	"github.com/wardrop-lb/wardrop/guard"
	"github.com/wardrop-lb/wardrop/policy"
	"github.com/wardrop-lb/wardrop/policy/optimal"
)

var start = time.Unix(1_700_000_000, 0).UTC()

// rig is a control plane's ticks: the optimal policy, and the guard before its plans go out.
type rig struct {
	t      require.TestingT
	view   *fleet.View
	policy *optimal.Policy
	guard  guard.Guard
	in     guard.Inputs
	last   *fleet.Plan // in force
	now    time.Time
}

func newRig(t require.TestingT, view *fleet.View) *rig {
	p := optimal.New(optimal.Options{})
	problem := p.Problem()
	return &rig{t: t, view: view, policy: p, in: guard.Inputs{Limits: guard.DefaultLimits(), Problem: &problem}, now: start}
}

// tick plans and publishes.
func (r *rig) tick() guard.Verdict {
	r.now = r.now.Add(2 * time.Second)
	next, err := r.policy.Plan(r.view, r.last)
	require.NoError(r.t, err)
	return r.check(next)
}

// check publishes what the guard lets out.
func (r *rig) check(next *fleet.Plan) guard.Verdict {
	v := r.guard.Check(r.view, r.last, next, r.in, r.now)
	r.last = v.Plan
	return v
}

// far is two regions of engines with 100 requests/s each, of which each cluster uses its own.
func far(engines int, demand float64) *fleet.View {
	v := &fleet.View{}
	for _, region := range []string{"a", "b"} {
		v.Clusters = append(v.Clusters, fleet.Cluster{Name: region, Region: region})
		v.Demands = append(v.Demands, fleet.Demand{Cluster: region, Model: "m", Priority: fleet.Standard, Rate: demand})
		for i := range engines {
			v.Engines = append(v.Engines, fleet.Engine{
				Name: fmt.Sprintf("%s%02d", region, i), Region: region, Models: []string{"m"},
				Profile: fleet.Profile{T0: 0.5, UMax: 150, Batch: 120, Kappa: 0.9},
			})
		}
	}
	v.Distances = []fleet.Distance{
		{Cluster: "a", Region: "a", Seconds: 0.005}, {Cluster: "a", Region: "b", Seconds: 0.2},
		{Cluster: "b", Region: "a", Seconds: 0.2}, {Cluster: "b", Region: "b", Seconds: 0.005},
	}
	return v
}

func (r *rig) distance(cluster, region string, seconds float64) {
	for i := range r.view.Distances {
		if d := &r.view.Distances[i]; d.Cluster == cluster && d.Region == region {
			d.Seconds = seconds
		}
	}
}

// lose takes engines out of the view.
func (r *rig) lose(dead func(e *fleet.Engine) bool) {
	v := *r.view
	v.Engines = nil
	for i := range r.view.Engines {
		if !dead(&r.view.Engines[i]) {
			v.Engines = append(v.Engines, r.view.Engines[i])
		}
	}
	r.view = &v
}

// weights are those above 0, by cluster and engine.
func weights(p *fleet.Plan) map[string]float64 {
	out := map[string]float64{}
	for _, row := range p.Rows {
		for _, a := range row.Arcs {
			if a.Weight > 0 {
				out[row.Cluster+" "+row.Model+" "+p.Engines[a.Engine].Name] = a.Weight
			}
		}
	}
	return out
}

// TestTypedDistance: a distance of 1000 s where 5 ms were meant would send all of a cluster's
// requests, and what they push out, elsewhere. That is held, said, and over once it is mended.
func TestTypedDistance(t *testing.T) {
	r := newRig(t, far(4, 150))
	require.Nil(t, r.tick().Hold, "there was no plan before")
	before := weights(r.last)
	r.distance("a", "a", 1000)
	r.distance("b", "b", 1000)
	var first guard.Hold
	for n := range 20 {
		v := r.tick()
		require.NotNil(t, v.Hold)
		require.Equal(t, guard.Movement, v.Hold.Rail)
		require.Equal(t, before, weights(v.Plan), "to the bit")
		require.Equal(t, guard.Name, v.Plan.Policy)
		if n == 0 {
			first = *v.Hold
			require.Equal(t, r.now, first.Since)
			require.InDelta(t, 1, first.Figure, 1e-9)
			require.Equal(t, 0.5, first.Limit)
			require.Contains(t, first.Reason, "would move 100 % of all traffic at once that could stay where it is, more than 50 %; 50 % of it of model m in cluster a")
		}
		require.Equal(t, first.Since, v.Hold.Since)
		require.Equal(t, n+1, v.Hold.Ticks)
	}
	r.distance("a", "a", 0.005)
	r.distance("b", "b", 0.005)
	v := r.tick()
	require.Nil(t, v.Hold)
	require.Equal(t, optimal.Name, v.Plan.Policy)
	require.Equal(t, before, weights(v.Plan))
}

// TestPlanOfAnotherLeader: of what was cut into snapshots it is not known what arrived; it counts
// as if all had been there.
func TestPlanOfAnotherLeader(t *testing.T) {
	r := newRig(t, far(4, 150))
	r.tick()
	r.last.Policy = ""
	for i := range r.last.Rows {
		r.last.Rows[i].Rate, r.last.Rows[i].Demand = 0, [fleet.NumPriorities]float64{}
	}
	require.Nil(t, r.tick().Hold)
	r.last.Policy = ""
	r.distance("a", "a", 1000)
	r.distance("b", "b", 1000)
	require.Equal(t, guard.Movement, r.tick().Hold.Rail)
}

// TestDeadEnginesLoseTheirTrafficWhileHeld: a hold keeps no request on an engine that is gone.
func TestDeadEnginesLoseTheirTrafficWhileHeld(t *testing.T) {
	r := newRig(t, far(4, 150))
	r.tick()
	r.distance("a", "a", 1000)
	r.distance("b", "b", 1000)
	require.NotNil(t, r.tick().Hold)
	r.lose(func(e *fleet.Engine) bool { return e.Name == "a01" })
	v := r.tick()
	require.NotNil(t, v.Hold)
	require.InDelta(t, 1.0/3, weights(v.Plan)["a m a00"], 1e-9)
	require.NotContains(t, weights(v.Plan), "a m a01")
}

// TestReleased: what an operator lets through goes out at once, and is the plan from then on.
func TestReleased(t *testing.T) {
	r := newRig(t, far(4, 150))
	r.tick()
	r.distance("a", "a", 1000)
	r.distance("b", "b", 1000)
	require.NotNil(t, r.tick().Hold)
	r.in.Released = true
	v := r.tick()
	require.Nil(t, v.Hold)
	require.InDelta(t, 0.25, weights(v.Plan)["a m b00"], 1e-3)
	r.in.Released = false
	require.Nil(t, r.tick().Hold)
}

// TestWhatMustMoveIsNotHeld: there is nothing before, or what is there cannot stay.
func TestWhatMustMoveIsNotHeld(t *testing.T) {
	for name, change := range map[string]func(r *rig){
		"no last plan": func(r *rig) {
			r.last = nil
			r.distance("a", "a", 1000)
			r.distance("b", "b", 1000)
		},
		"the last plan was a fallback": func(r *rig) {
			r.last = policy.Rescale(r.view, r.last)
			r.distance("a", "a", 1000)
			r.distance("b", "b", 1000)
		},
		"no limit": func(r *rig) {
			r.in.Limits.Movement = 1
			r.distance("a", "a", 1000)
			r.distance("b", "b", 1000)
		},
		"a region is lost": func(r *rig) { r.lose(func(e *fleet.Engine) bool { return e.Region == "a" }) },
		"most engines are lost": func(r *rig) {
			r.lose(func(e *fleet.Engine) bool { return e.Name != "a00" && e.Name != "b03" })
		},
		"demand grows far beyond what is near": func(r *rig) { r.view.Demands[0].Rate = 550 },
		"overload":                             func(r *rig) { r.view.Demands[0].Rate, r.view.Demands[1].Rate = 2000, 2000 },
		"what comes is new": func(r *rig) {
			r.view.Demands[0].Rate, r.view.Demands[1].Rate = 10, 0
			r.tick()
			r.view.Demands[0].Rate = 300
			r.distance("a", "a", 1000)
		},
		"hardly anything comes": func(r *rig) {
			r.view.Demands[0].Rate, r.view.Demands[1].Rate = 0.3, 0.2
			r.tick()
			r.distance("a", "a", 1000)
			r.distance("b", "b", 1000)
		},
		"most engines were restarted": func(r *rig) {
			for i := range r.view.Engines {
				if e := &r.view.Engines[i]; e.Name != "b03" && e.Name != "a03" {
					e.Ramp = 0.1
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, far(4, 150))
			r.tick()
			change(r)
			v := r.tick()
			require.Nil(t, v.Hold)
			require.Equal(t, optimal.Name, v.Plan.Policy)
		})
	}
}

// TestColdEngineGivesUpWhatItMust: who has everything and was restarted cannot keep it.
func TestColdEngineGivesUpWhatItMust(t *testing.T) {
	r := newRig(t, far(1, 40))
	r.view.Demands = r.view.Demands[:1]
	r.tick()
	r.view.Engines[0].Ramp = 0.1
	before := weights(r.last)["a m a00"]
	v := r.tick()
	require.Nil(t, v.Hold)
	require.Greater(t, before-weights(v.Plan)["a m a00"], 0.5)
}

// TestHoldingRefusesNothing: model one has an engine of its own and uses the other, which is all
// that model two has. When that fills up, to move one serves all, and to keep it would not.
func TestHoldingRefusesNothing(t *testing.T) {
	v := &fleet.View{Clusters: []fleet.Cluster{{Name: "a", Region: "a"}}, Distances: []fleet.Distance{{Cluster: "a", Region: "a"}}}
	for name, models := range map[string][]string{"own": {"one"}, "shared": {"one", "two"}} {
		v.Engines = append(v.Engines, fleet.Engine{Name: name, Region: "a", Models: models, Profile: fleet.Profile{T0: 0.5, UMax: 150, Batch: 120, Kappa: 0.9}})
	}
	v.Demands = []fleet.Demand{{Cluster: "a", Model: "one", Rate: 70}, {Cluster: "a", Model: "two", Rate: 10}}
	r := newRig(t, v)
	r.in.Problem = nil
	r.tick()
	one := func(p *fleet.Plan, own, shared float64) {
		p.Rows[0].Arcs[0].Weight, p.Rows[0].Arcs[1].Weight = own, shared
	}
	next, err := r.policy.Plan(r.view, nil)
	require.NoError(t, err)
	one(r.last, 0, 1)
	one(next, 1, 0)
	last := r.last
	require.Equal(t, guard.Movement, r.check(next).Hold.Rail, "as long as all of it fits")
	v.Demands[1].Rate = r.last.Engines[1].Capacity - 65
	next, err = r.policy.Plan(r.view, nil)
	require.NoError(t, err)
	one(next, 1, 0)
	require.Positive(t, policy.Rescale(v, last).Rows[1].Shed[0])
	r.last = last
	require.Nil(t, r.check(next).Hold)
}

// TestLittleOverloadExcusesLittle: a fleet at its caps, of which some engine is always a hair
// over, is guarded like any other.
func TestLittleOverloadExcusesLittle(t *testing.T) {
	r := newRig(t, far(4, 420))
	r.tick()
	for _, e := range r.last.Engines {
		require.Greater(t, e.Load, 0.9*e.Capacity)
	}
	r.view.Demands[0].Rate *= 1.01
	r.distance("a", "a", 1000)
	r.distance("b", "b", 1000)
	v := r.tick()
	require.NotNil(t, v.Hold)
	require.Equal(t, guard.Movement, v.Hold.Rail)
}

// TestFewSignals: a view that mostly guesses moves nothing, and stale is not dead.
func TestFewSignals(t *testing.T) {
	for name, x := range map[string]struct {
		clusters, engines guard.Heard
		want              string
	}{
		"all":                      {guard.Heard{Fresh: 3, Known: 3}, guard.Heard{Fresh: 8, Known: 8}, ""},
		"half":                     {guard.Heard{Fresh: 1, Known: 2}, guard.Heard{Fresh: 4, Known: 8}, ""},
		"nobody ever said a thing": {guard.Heard{}, guard.Heard{}, ""},
		"most clusters silent":     {guard.Heard{Fresh: 1, Known: 3}, guard.Heard{Fresh: 8, Known: 8}, "only 1 of 3 clusters"},
		"all silent":               {guard.Heard{Known: 1}, guard.Heard{}, "only 0 of 1 clusters"},
		"most readings stale":      {guard.Heard{Fresh: 3, Known: 3}, guard.Heard{Fresh: 3, Known: 8}, "only 3 of 8 engines"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, far(4, 150))
			r.tick()
			before := weights(r.last)
			r.in.Clusters, r.in.Engines = x.clusters, x.engines
			r.view.Engines[0].Penalty = 3
			v := r.tick()
			if x.want == "" {
				require.Nil(t, v.Hold)
				require.NotEqual(t, before, weights(v.Plan))
				return
			}
			require.NotNil(t, v.Hold)
			require.Equal(t, guard.Fresh, v.Hold.Rail)
			require.Contains(t, v.Hold.Reason, x.want)
			require.Equal(t, before, weights(v.Plan))
			r.in.Clusters, r.in.Engines = guard.Heard{Fresh: 3, Known: 3}, guard.Heard{Fresh: 8, Known: 8}
			v = r.tick()
			require.Nil(t, v.Hold)
			require.NotEqual(t, before, weights(v.Plan))
		})
	}
}

// TestNoRowIsEmptied: whatever a policy says, a row that could be served is.
func TestNoRowIsEmptied(t *testing.T) {
	for name, spoil := range map[string]func(p *fleet.Plan){
		"without weights": func(p *fleet.Plan) {
			for j := range p.Rows[0].Arcs {
				p.Rows[0].Arcs[j].Weight = 0
			}
		},
		"without engines":                  func(p *fleet.Plan) { p.Rows = p.Rows[1:] },
		"with all of its requests refused": func(p *fleet.Plan) { p.Rows[0].Shed = [fleet.NumPriorities]float64{1, 1, 1} },
		"without engines, and 1 more":      func(p *fleet.Plan) { p.Rows[0].Arcs, p.Rows[1].Arcs = nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, far(4, 150))
			r.in.Problem = nil // whatever policy made it
			r.tick()
			next, err := r.policy.Plan(r.view, r.last)
			require.NoError(t, err)
			spoil(next)
			before := weights(r.last)
			v := r.check(next)
			require.NotNil(t, v.Hold)
			require.Equal(t, guard.Emptied, v.Hold.Rail)
			require.Contains(t, v.Hold.Reason, name)
			require.Equal(t, before, weights(v.Plan))
		})
	}
	t.Run("all refused for want of room", func(t *testing.T) {
		r := newRig(t, far(4, 150))
		r.tick()
		r.view.Demands = append(r.view.Demands, fleet.Demand{Cluster: "a", Model: "m", Priority: fleet.Critical, Rate: 2000})
		r.view.Demands[0].Rate = 1
		require.Nil(t, r.tick().Hold)
	})
	t.Run("a model is gone", func(t *testing.T) {
		r := newRig(t, far(4, 150))
		r.tick()
		for i := range r.view.Engines {
			r.view.Engines[i].Models = []string{"other"}
		}
		require.Nil(t, r.tick().Hold)
	})
}

// TestCertificateMustHold: a plan that is not what it says does not go out.
func TestCertificateMustHold(t *testing.T) {
	for name, spoil := range map[string]func(p *fleet.Plan){
		"gap": func(p *fleet.Plan) { p.Gap = 0.01 },
		"weights": func(p *fleet.Plan) {
			a := p.Rows[0].Arcs
			i := slices.IndexFunc(a, func(x fleet.Arc) bool { return x.Weight > 0 })
			j := slices.IndexFunc(a, func(x fleet.Arc) bool { return x.Weight == 0 })
			a[i].Weight, a[j].Weight = 0, a[i].Weight
		},
		"load": func(p *fleet.Plan) { p.Engines[0].Load *= 2 },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, far(4, 150))
			r.tick()
			next, err := r.policy.Plan(r.view, r.last)
			require.NoError(t, err)
			spoil(next)
			v := r.check(next)
			require.NotNil(t, v.Hold)
			require.Equal(t, guard.Certificate, v.Hold.Rail)
			require.Contains(t, v.Hold.Reason, "the plan is not what it says")
		})
	}
}

// BenchmarkCheck is a guard's part of a tick, for 100 clusters and 10,000 engines.
func BenchmarkCheck(b *testing.B) {
	spec, err := fleetgen.Parse("clusters=100,engines=10000,models=20,util=0.9,seed=1")
	require.NoError(b, err)
	view := spec.View()
	p := optimal.New(optimal.Options{Warm: true})
	last, err := p.Plan(view, nil)
	require.NoError(b, err)
	for i := range view.Demands {
		view.Demands[i].Rate *= 1 - 0.1*float64(i%3)
	}
	next, err := p.Plan(view, last)
	require.NoError(b, err)
	problem := p.Problem()
	for _, in := range []guard.Inputs{
		{Limits: guard.DefaultLimits(), Problem: &problem}, {Limits: guard.DefaultLimits()}, {Limits: guard.Limits{Movement: 0.001}},
	} {
		b.Run(fmt.Sprintf("certificate=%v/held=%v", in.Problem != nil, in.Limits.Movement < 0.5), func(b *testing.B) {
			var g guard.Guard
			for b.Loop() {
				v := g.Check(view, last, next, in, start)
				require.Equal(b, in.Limits.Movement < 0.5, v.Hold != nil)
			}
		})
	}
}
