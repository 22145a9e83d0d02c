package guard_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/guard"
	"github.com/wardrop-lb/wardrop/policy"
)

// drawn is a small fleet of which every engine could serve all demand, so that nothing has to
// move but what was on engines that are gone.
func drawn(t *rapid.T) *fleet.View {
	v := &fleet.View{}
	for c := range rapid.IntRange(1, 3).Draw(t, "clusters") {
		name := fmt.Sprintf("c%d", c)
		v.Clusters = append(v.Clusters, fleet.Cluster{Name: name, Region: "r"})
		v.Distances = append(v.Distances, fleet.Distance{Cluster: name, Region: "r", Seconds: 0.01})
		for m := range 2 {
			v.Demands = append(v.Demands, fleet.Demand{
				Cluster: name, Model: fmt.Sprintf("m%d", m), Priority: fleet.Standard, Rate: rapid.Float64Range(0, 10).Draw(t, "rate"),
			})
		}
	}
	for e := range rapid.IntRange(1, 8).Draw(t, "engines") {
		models := [][]string{{"m0"}, {"m1"}, {"m0", "m1"}}[rapid.IntRange(0, 2).Draw(t, "models")]
		v.Engines = append(v.Engines, fleet.Engine{
			Name: fmt.Sprintf("e%d", e), Region: "r", Models: models, Profile: fleet.Profile{T0: 0.5, UMax: 1000, Batch: 1000, Kappa: 0.9},
		})
	}
	return v
}

// planned is some plan of a view.
func planned(t *rapid.T, v *fleet.View) *fleet.Plan {
	p := policy.ByCapacity(v)
	p.Policy = "some"
	for i := range p.Rows {
		arcs, sum := p.Rows[i].Arcs, 0.0
		for j := range arcs {
			arcs[j].Weight = float64(rapid.IntRange(0, 4).Draw(t, "weight"))
			sum += arcs[j].Weight
		}
		for j := range arcs {
			if sum == 0 {
				arcs[j].Weight = 1 / float64(len(arcs))
			} else {
				arcs[j].Weight /= sum
			}
		}
	}
	return p
}

func heard(t *rapid.T) guard.Heard {
	n := rapid.IntRange(0, 3).Draw(t, "known")
	if rapid.IntRange(0, 3).Draw(t, "silent") > 0 {
		return guard.Heard{Fresh: n, Known: n}
	}
	return guard.Heard{Fresh: rapid.IntRange(0, n).Draw(t, "fresh"), Known: n}
}

// TestWhatIsPublished: whatever is held, what goes out serves every row that can be served, with
// weights that add up to 1; rows that lost no engine keep theirs to the bit, and the others keep
// theirs to each other. What is released, or has nothing before it, goes out.
func TestWhatIsPublished(t *testing.T) {
	held := map[guard.Rail]int{}
	rapid.Check(t, func(t *rapid.T) {
		view := drawn(t)
		last := planned(t, view)
		after := *view
		after.Engines = nil
		for _, e := range view.Engines {
			if rapid.IntRange(0, 3).Draw(t, "dies") > 0 {
				after.Engines = append(after.Engines, e)
			}
		}
		next := planned(t, &after)
		if rapid.IntRange(0, 9).Draw(t, "spoilt") == 0 {
			for j := range next.Rows[0].Arcs {
				next.Rows[0].Arcs[j].Weight = 0
			}
		}
		limits := guard.Limits{Movement: rapid.Float64Range(0, 0.6).Draw(t, "movement"), Fresh: 0.5}
		in := guard.Inputs{Limits: limits, Clusters: heard(t), Engines: heard(t)}
		var g guard.Guard
		v := g.Check(&after, last, next, in, start)
		if v.Hold != nil {
			held[v.Hold.Rail]++
			for i := range v.Plan.Rows {
				keeps(t, last, v.Plan, &v.Plan.Rows[i])
			}
		} else {
			require.Same(t, next, v.Plan)
		}
		in.Released = true
		v = g.Check(&after, last, next, in, start.Add(time.Second))
		require.Nil(t, v.Hold)
		require.Same(t, next, v.Plan)
		in.Released = false
		require.Same(t, next, new(guard.Guard).Check(&after, nil, next, in, start).Plan)
	})
	for _, rail := range []guard.Rail{guard.Movement, guard.Fresh, guard.Emptied} {
		require.Positive(t, held[rail], rail)
	}
}

func keeps(t *rapid.T, last, plan *fleet.Plan, r *fleet.Row) {
	old := map[string]float64{}
	live, lost := 0.0, false
	if row := last.Row(r.Cluster, r.Model); row != nil {
		for _, a := range row.Arcs {
			old[last.Engines[a.Engine].Name] = a.Weight
		}
	}
	sum := 0.0
	for _, a := range r.Arcs {
		name := plan.Engines[a.Engine].Name
		live += old[name]
		sum += a.Weight
	}
	for _, w := range old {
		lost = lost || w > 0 && live < 1-1e-9
	}
	if len(r.Arcs) > 0 {
		require.InDelta(t, 1, sum, 1e-9)
	}
	for _, a := range r.Arcs {
		switch was := old[plan.Engines[a.Engine].Name]; {
		case !lost:
			require.Equal(t, was, a.Weight)
		case live > 0:
			require.InDelta(t, was/live, a.Weight, 1e-9)
		}
	}
}

// TestRollBacksEnd: whatever fails and whatever moves, a roll-back is over in ten minutes, says
// when, and then the policy's plan goes out.
func TestRollBacksEnd(t *testing.T) {
	began := 0
	rapid.Check(t, func(t *rapid.T) {
		view := drawn(t)
		var g guard.Guard
		last, now := planned(t, view), start
		in := guard.Inputs{Limits: guard.Limits{Movement: 1}}
		step := func(next *fleet.Plan, seconds int) guard.Verdict {
			now = now.Add(time.Duration(seconds) * time.Second)
			v := g.Check(view, last, next, in, now)
			if v.Hold != nil {
				require.Equal(t, guard.RollBack, v.Hold.Rail)
				require.True(t, v.Hold.Until.After(now))
				require.LessOrEqual(t, v.Hold.Until.Sub(now), 10*time.Minute)
			}
			if v.RolledBack {
				began++
			}
			last = v.Plan
			return v
		}
		next := planned(t, view)
		for range rapid.IntRange(1, 30).Draw(t, "ticks") {
			if rapid.Bool().Draw(t, "moves") {
				next = planned(t, view)
			}
			in.Tried = map[string]guard.Tried{}
			for _, e := range view.Engines {
				n := rapid.IntRange(0, 100).Draw(t, "attempts")
				in.Tried[e.Name] = guard.Tried{Attempts: float64(n), Failed: float64(n * rapid.IntRange(0, 1).Draw(t, "fails"))}
			}
			step(next, rapid.IntRange(1, 20).Draw(t, "seconds"))
		}
		in.Tried = nil
		v := guard.Verdict{}
		for range 2 * 11 * 60 / 10 { // one that has begun, and one of what was still watched
			v = step(next, 10)
		}
		require.Nil(t, v.Hold)
		require.Same(t, next, v.Plan)
	})
	require.Positive(t, began)
}
