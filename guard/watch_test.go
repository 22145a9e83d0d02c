package guard_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/guard"
)

// field is a rig whose engines are tried as the plan in force says, and fail as failing says.
type field struct {
	*rig
	failing func(engine string) float64 // part of the attempts
}

func newField(t *testing.T) *field {
	f := &field{rig: newRig(t, far(4, 60)), failing: func(string) float64 { return 0.002 }}
	f.in.Limits.Movement = 1
	f.distance("b", "a", 1) // so that what is b's own stays there
	f.view.Clusters = append(f.view.Clusters, fleet.Cluster{Name: "c", Region: "a"})
	f.view.Distances = append(f.view.Distances, fleet.Distance{Cluster: "c", Region: "a"}, fleet.Distance{Cluster: "c", Region: "b", Seconds: 1})
	f.view.Demands = append(f.view.Demands, fleet.Demand{Cluster: "c", Model: "m", Priority: fleet.Standard, Rate: 30})
	f.run(20)
	return f
}

// step is a tick, and what is tried until the next.
func (f *field) step() guard.Verdict {
	v := f.tick()
	f.in.Tried = map[string]guard.Tried{}
	for _, e := range v.Plan.Engines {
		n := float64(int(2 * e.Load))
		f.in.Tried[e.Name] = guard.Tried{Attempts: n, Failed: float64(int(n * f.failing(e.Name)))}
	}
	return v
}

func (f *field) run(steps int) (last guard.Verdict) {
	for range steps {
		last = f.step()
	}
	return last
}

// shift moves what cluster a has from its own region's engines to the other's, which have room.
func (f *field) shift() { f.distance("a", "a", 1) }

// steps until a roll-back begins, -1 when there is none in so many.
func (f *field) untilBack(most int) (int, guard.Verdict) {
	for n := range most {
		if v := f.step(); v.RolledBack {
			return n, v
		}
	}
	return -1, guard.Verdict{}
}

func inB(engine string) bool { return engine[0] == 'b' }

// TestRollBack: where requests fail after they were moved there, they go back, for a minute; if
// it is as bad again, for two, and so on up to ten. Then it is tried again: nothing latches.
func TestRollBack(t *testing.T) {
	f := newField(t)
	before := weights(f.last)
	f.shift()
	f.failing = func(e string) float64 {
		if inB(e) {
			return 0.2 * b2f(len(weightsOf(f.last, "a", inB)) > 0)
		}
		return 0
	}
	for i, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute} {
		moved := f.step()
		require.Nil(t, moved.Hold)
		require.NotEqual(t, before, weights(moved.Plan))
		n, v := f.untilBack(10)
		require.NotEqual(t, -1, n)
		require.LessOrEqual(t, n, 4, "within the ten seconds after")
		require.Equal(t, guard.RollBack, v.Hold.Rail)
		require.Equal(t, before, weights(v.Plan))
		require.Equal(t, f.now.Add(want), v.Hold.Until)
		if i == 0 {
			require.Regexp(t, `^20 % of \d+ attempts failed at 4 engines, usually [0-9.]+ %, since the plan of 22:14:\d\d gave them more: the last good plan is back for 1m0s$`, v.Hold.Reason)
		}
		since := f.now
		for f.now.Add(2 * time.Second).Before(since.Add(want)) {
			v := f.step()
			require.False(t, v.RolledBack)
			require.Equal(t, guard.RollBack, v.Hold.Rail)
			require.Equal(t, since, v.Hold.Since)
			require.Equal(t, before, weights(v.Plan))
		}
	}
	f.failing = func(string) float64 { return 0 }
	v := f.run(20)
	require.Nil(t, v.Hold)
	require.NotEqual(t, before, weights(v.Plan), "it is well now, and stays")
}

func b2f(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func weightsOf(p *fleet.Plan, cluster string, engine func(string) bool) (out []float64) {
	for _, a := range p.Row(cluster, "m").Arcs {
		if a.Weight > 0 && engine(p.Engines[a.Engine].Name) {
			out = append(out, a.Weight)
		}
	}
	return out
}

// TestRollBackIsForgotten: what recurs an hour later is no recurrence.
func TestRollBackIsForgotten(t *testing.T) {
	f := newField(t)
	f.shift()
	f.failing = func(e string) float64 { return 0.3 * b2f(inB(e)) }
	n, _ := f.untilBack(10)
	require.NotEqual(t, -1, n)
	f.failing = func(string) float64 { return 0 }
	f.distance("a", "a", 0.005)
	f.run(600)
	f.shift()
	f.failing = func(e string) float64 { return 0.3 * b2f(inB(e)) }
	n, v := f.untilBack(10)
	require.NotEqual(t, -1, n)
	require.Equal(t, f.now.Add(time.Minute), v.Hold.Until)
}

// TestEnginesThatDieMeanwhile: the plan that came back gives nothing to who is gone.
func TestEnginesThatDieMeanwhile(t *testing.T) {
	f := newField(t)
	f.shift()
	f.failing = func(e string) float64 { return 0.3 * b2f(inB(e)) }
	n, _ := f.untilBack(10)
	require.NotEqual(t, -1, n)
	f.lose(func(e *fleet.Engine) bool { return e.Name == "a02" })
	v := f.step()
	require.Equal(t, guard.RollBack, v.Hold.Rail)
	require.Len(t, weightsOf(v.Plan, "a", func(string) bool { return true }), 3)
}

// TestReleaseEndsARollBack at once.
func TestReleaseEndsARollBack(t *testing.T) {
	f := newField(t)
	f.shift()
	f.failing = func(e string) float64 { return 0.3 * b2f(inB(e)) }
	n, _ := f.untilBack(10)
	require.NotEqual(t, -1, n)
	f.in.Released = true
	require.Nil(t, f.step().Hold)
	require.NotEmpty(t, weightsOf(f.last, "a", inB))
	for range 20 {
		require.Nil(t, f.step().Hold, "as long as it is released")
	}
}

// TestWhatIsNotThePlansFault rolls nothing back.
func TestWhatIsNotThePlansFault(t *testing.T) {
	for name, prepare := range map[string]func(f *field){
		"nothing fails":                        func(f *field) {},
		"it always failed there":               func(f *field) { f.failing = func(e string) float64 { return 0.3 * b2f(inB(e)) }; f.run(60) },
		"it fails everywhere":                  func(f *field) { f.failing = func(string) float64 { return 0.3 } },
		"it fails where nothing came from":     func(f *field) { f.failing = func(e string) float64 { return 0.5 * b2f(!inB(e)) } },
		"a little more than before":            func(f *field) { f.failing = func(e string) float64 { return 0.04 * b2f(inB(e)) } },
		"one engine of the four dies":          func(f *field) { f.failing = func(e string) float64 { return b2f(e == "b01") } },
		"it begins when the plan is long good": func(f *field) { f.shift(); f.run(8); f.failing = func(e string) float64 { return b2f(inB(e)) } },
		"the engines that fail die": func(f *field) {
			dead := func(e *fleet.Engine) bool { return inB(e.Name) && e.Name != "b00" }
			f.shift()
			f.failing = func(e string) float64 { return b2f(dead(&fleet.Engine{Name: e})) }
			f.step()
			require.False(f.t, f.step().RolledBack, "one tick is no proof: it takes as long to see that they are dead")
			f.lose(dead)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newField(t)
			prepare(f)
			f.shift()
			n, v := f.untilBack(20)
			require.Equal(t, -1, n, "%+v", v.Hold)
		})
	}
}

// TestOneEngineThatGotItAll and fails is the plan's fault, few as its attempts are.
func TestOneEngineThatGotItAll(t *testing.T) {
	f := &field{rig: newRig(t, far(1, 40)), failing: func(string) float64 { return 0 }}
	f.in.Limits.Movement = 1
	f.run(20)
	f.shift()
	f.failing = func(e string) float64 { return 0.5 * b2f(inB(e)) }
	n, _ := f.untilBack(10)
	require.NotEqual(t, -1, n)
}

// TestFewAttemptsProveNothing, whatever becomes of them.
func TestFewAttemptsProveNothing(t *testing.T) {
	f := newField(t)
	f.shift()
	f.step()
	f.in.Tried = map[string]guard.Tried{"b00": {Attempts: 10, Failed: 10}, "b01": {Attempts: 9, Failed: 9}}
	for range 10 {
		require.False(t, f.tick().RolledBack)
		f.in.Tried = nil
	}
}

// TestDeathAfterAHair: an engine that gains a hair and dies by itself freezes nothing, though
// it be the only one that gained.
func TestDeathAfterAHair(t *testing.T) {
	r := newRig(t, far(4, 60))
	r.in.Problem = nil // plans of our own
	r.tick()
	next, err := r.policy.Plan(r.view, r.last)
	require.NoError(t, err)
	// Two hundredths of all traffic, from one engine to another that has three fourths of it.
	give(r.last, 0, 0.74)
	give(next, 0, 0.78)
	require.Nil(t, r.check(next).Hold)
	for range 10 {
		r.now = r.now.Add(2 * time.Second)
		r.in.Tried = map[string]guard.Tried{"a00": {Attempts: 200, Failed: 200}, "a01": {Attempts: 50}, "b00": {Attempts: 300}}
		require.Nil(t, r.check(next).Hold)
	}
}

// give sets the first row's weights: one engine's, and what is left for the next.
func give(p *fleet.Plan, engine int, weight float64) {
	for j := range p.Rows[0].Arcs {
		p.Rows[0].Arcs[j].Weight = 0
	}
	p.Rows[0].Arcs[engine].Weight, p.Rows[0].Arcs[engine+1].Weight = weight, 1-weight
}

// TestManyLittleSteps are one change.
func TestManyLittleSteps(t *testing.T) {
	r := newRig(t, far(4, 60))
	r.in.Problem = nil
	r.tick()
	give(r.last, 0, 1)
	first := weights(r.last)
	for n := range 4 {
		next, err := r.policy.Plan(r.view, r.last)
		require.NoError(t, err)
		give(next, 0, 1-0.006*float64(n+1)) // three thousandths of all traffic
		r.now = r.now.Add(2 * time.Second)
		require.Nil(t, r.check(next).Hold)
	}
	steady := r.last
	for n := range 4 {
		r.now = r.now.Add(2 * time.Second)
		r.in.Tried = map[string]guard.Tried{"a01": {Attempts: 40, Failed: 30}, "a00": {Attempts: 200}}
		if v := r.check(steady); v.Hold != nil {
			require.Equal(t, guard.RollBack, v.Hold.Rail)
			require.Equal(t, first["a m a00"], weights(v.Plan)["a m a00"], "before the first step")
			return
		}
		require.Less(t, n, 3)
	}
	assert.Fail(t, "not rolled back")
}

// TestStepsFarApart are none.
func TestStepsFarApart(t *testing.T) {
	r := newRig(t, far(4, 60))
	r.in.Problem = nil
	r.tick()
	give(r.last, 0, 1)
	r.in.Tried = map[string]guard.Tried{"a00": {Attempts: 1000}, "b00": {Attempts: 1000}}
	for n := range 4 {
		next, err := r.policy.Plan(r.view, r.last)
		require.NoError(t, err)
		give(next, 0, 1-0.006*float64(n+1))
		r.now = r.now.Add(time.Minute)
		require.Nil(t, r.check(next).Hold)
	}
	for range 4 {
		r.now = r.now.Add(2 * time.Second)
		r.in.Tried = map[string]guard.Tried{"a01": {Attempts: 40, Failed: 30}, "a00": {Attempts: 200}}
		require.Nil(t, r.check(r.last).Hold)
	}
}

// TestWhatHadToMoveHasNoWayBack: what was on an engine that is gone goes somewhere, and when it
// fails there the last plan knows no better.
func TestWhatHadToMoveHasNoWayBack(t *testing.T) {
	r := newRig(t, far(4, 60))
	r.in.Problem = nil
	r.tick()
	give(r.last, 0, 0.9)
	r.lose(func(e *fleet.Engine) bool { return e.Name == "a00" })
	next, err := r.policy.Plan(r.view, r.last)
	require.NoError(t, err)
	give(next, 0, 0.05) // a01 had a tenth
	r.in.Tried = map[string]guard.Tried{"a00": {Attempts: 1000}, "b00": {Attempts: 1000}}
	for range 8 {
		r.now = r.now.Add(2 * time.Second)
		require.Nil(t, r.check(next).Hold)
		r.in.Tried = map[string]guard.Tried{"a02": {Attempts: 100, Failed: 50}, "b00": {Attempts: 100}}
	}
}

// TestUnbelievableCounts: more failures than attempts, which were sent before, and none at all.
func TestUnbelievableCounts(t *testing.T) {
	for _, x := range []guard.Tried{{Attempts: 0, Failed: 50}, {Attempts: 25, Failed: 5000}, {}, {Attempts: 1e9, Failed: 1e9}} {
		f := newField(t)
		f.shift()
		f.step()
		for range 10 {
			f.in.Tried = map[string]guard.Tried{}
			for i := range 4 {
				f.in.Tried[fmt.Sprintf("b%02d", i)] = x
			}
			v := f.tick()
			require.NotContains(t, fmt.Sprint(v.Hold), "NaN")
			if v.Hold != nil {
				require.InDelta(t, 1, v.Hold.Figure, 0.05)
			}
		}
	}
}
