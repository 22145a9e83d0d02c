package control

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/guard"
	"github.com/wardrop-lb/wardrop/store"
	"github.com/wardrop-lb/wardrop/suppose"
)

// held is 1 for the rail that holds, as the metrics say.
func held(t *testing.T, l *leader, rail guard.Rail) float64 {
	t.Helper()
	want := "# HELP wardrop_control_hold 1 while the policy's plan is held back by a rail.\n# TYPE wardrop_control_hold gauge\n"
	for _, r := range []guard.Rail{guard.Certificate, guard.Emptied, guard.Fresh, guard.Movement, guard.RollBack} {
		value := "0"
		if r == rail {
			value = "1"
		}
		want += `wardrop_control_hold{rail="` + string(r) + `"} ` + value + "\n"
	}
	require.NoError(t, testutil.CollectAndCompare((*collector)(l.Control), strings.NewReader(want), "wardrop_control_hold"))
	return 1
}

// TestBadConfigurationIsHeld: a file with distances of 1000 s validates, and would send all
// requests the long way. It is said once why it does not; an operator who means it says so.
func TestBadConfigurationIsHeld(t *testing.T) {
	usually := strings.NewReplacer("rate: 120", "rate: 50", "[demo, big]", "[demo]").Replace(file)
	var log bytes.Buffer
	l := &leader{Control: newControl(t, parse(t, usually), &store.Memory{}, ""), epoch: 1}
	l.log = slog.New(slog.NewTextHandler(&log, nil))
	at := now
	next := func() *State {
		at = at.Add(2 * time.Second)
		l.tick(at)
		return l.State()
	}
	next()
	require.Nil(t, next().Hold)
	weights := weightsOf(l)
	wrong := parse(t, strings.NewReplacer("a: 5ms", "a: 1000s", "c: 5ms", "c: 1000s").Replace(usually))
	l.Reload(wrong)
	for n := range 5 {
		s := next()
		require.Equal(t, guard.Movement, s.Hold.Rail)
		require.Equal(t, n+1, s.Hold.Ticks)
		require.Equal(t, weights, weightsOf(l))
		require.Empty(t, s.Trouble)
	}
	held(t, l, guard.Movement)
	require.Equal(t, 1, strings.Count(log.String(), "the policy's plan is held back"))
	require.Contains(t, log.String(), "would move 100 % of all traffic at once")
	l.Reload(parse(t, usually))
	require.Nil(t, next().Hold)
	require.Equal(t, 1, strings.Count(log.String(), "goes out again"))
	require.Contains(t, log.String(), "ticks=5")
	held(t, l, "")

	l.Reload(wrong)
	require.NotNil(t, next().Hold)
	require.NoError(t, l.Override(t.Context(), store.Override{Kind: OverrideRelease, Set: at}))
	seen, end := context.WithCancel(t.Context())
	end()
	l.store.Watch(seen, l.overrides.set)
	require.Equal(t, at.Add(releaseFor), l.Overrides(at)[0].Until, "no guard is off for ever")
	require.Nil(t, next().Hold)
	require.NotEqual(t, weights, weightsOf(l))
}

// TestWhyChangeSaysWhatIsHeldBack: while a rail holds the policy's plan back no weight changes,
// and the answer is which rail does, why, and what would have moved.
func TestWhyChangeSaysWhatIsHeldBack(t *testing.T) {
	usually := strings.NewReplacer("rate: 120", "rate: 50", "[demo, big]", "[demo]").Replace(file)
	l := &leader{Control: newControl(t, parse(t, usually), &store.Memory{}, ""), epoch: 1}
	at := now
	next := func() {
		at = at.Add(2 * time.Second)
		l.tick(at)
		for len(l.recorded) > 0 {
			require.NoError(t, l.history.Add(<-l.recorded))
		}
	}
	next()
	l.Reload(parse(t, strings.NewReplacer("a: 5ms", "a: 1000s", "c: 5ms", "c: 1000s").Replace(usually)))
	next()
	next()
	require.Equal(t, guard.Movement, l.State().Hold.Rail)
	in := [2]uint64{1, l.State().Plan.Version}
	why := func(to [2]uint64) *suppose.Change {
		c, err := l.WhyChange(t.Context(), in, to)
		require.NoError(t, err)
		return c
	}
	c := why(in)
	require.Empty(t, c.Weights)
	require.Equal(t, "No weight changed.", c.Words[0])
	require.Regexp(t, `^Held back by the rail movement: would move 100 % of all traffic at once .* 100 % of the traffic would have gone elsewhere: of demo at a, far would have got 100 % instead of 0 %\.$`, c.Words[1])
	require.Len(t, c.Holds, 1)
	text, err := json.Marshal(c)
	require.NoError(t, err)
	require.Contains(t, string(text), `"holds":[{"rail":"movement","reason":"would move 100 %`)
	h := c.Holds[0]
	require.Equal(t, "movement", h.Rail)
	require.Zero(t, h.Until)
	require.InDelta(t, 1, h.Moved, 1e-9)
	require.Equal(t, suppose.Move{Cluster: "a", Model: "demo", Engine: "far", After: 1, Rate: 50}, h.Moves[0])

	// The file is mended: what was held is told of the time between.
	l.Reload(parse(t, strings.Replace(usually, "rate: 50", "rate: 120", 1)))
	next()
	require.Nil(t, l.State().Hold)
	require.Greater(t, l.State().Plan.Version, in[1])
	c = why([2]uint64{1, l.State().Plan.Version})
	require.NotEmpty(t, c.Weights)
	require.Len(t, c.Holds, 1)
	require.Contains(t, c.Words[len(c.Words)-1], "Held back by the rail movement, for 4s: would move 100 %")
	require.Len(t, l.Plans([2]uint64{}), int(l.State().Plan.Version), "one of each plan, however often it was made anew")
}

// TestOperatorsPolicyIsNotHeld: who has another policy plan wants its plan.
func TestOperatorsPolicyIsNotHeld(t *testing.T) {
	c := strings.NewReplacer("[demo], profile", "[demo], weight: 0.001, profile", "[demo, big], profile", "[demo, big], weight: 1, profile", "rate: 120", "rate: 70", "rate: 40", "rate: 10").Replace(file)
	l := &leader{Control: newControl(t, parse(t, c), &store.Memory{}, ""), epoch: 1}
	l.tick(now)
	before := weightsOf(l)
	require.NoError(t, l.Override(t.Context(), store.Override{Kind: OverridePolicy, Value: "static"}))
	seen, end := context.WithCancel(t.Context())
	end()
	l.store.Watch(seen, l.overrides.set)
	l.tick(now.Add(2 * time.Second))
	require.Nil(t, l.State().Hold)
	require.Greater(t, before["near"]-weightsOf(l)["near"], 0.5)
	_, err := l.RemoveOverride(t.Context(), "policy")
	require.NoError(t, err)
	l.store.Watch(seen, l.overrides.set)
	l.tick(now.Add(4 * time.Second))
	require.Equal(t, guard.Movement, l.State().Hold.Rail, "that it ends nobody need be there to see")
}

// TestSilenceMovesNothing: data planes that report no more leave a view of expectations, which
// is no reason to move anything; nor is it for a leader that has not yet heard of them.
func TestSilenceMovesNothing(t *testing.T) {
	s := newSignalled(t)
	before := s.ticks(20)
	s.lose = 1
	for range 60 {
		require.Equal(t, before, s.ticks(1))
	}
	require.Equal(t, guard.Fresh, s.l.State().Hold.Rail)
	require.Contains(t, s.l.State().Hold.Reason, "only 0 of 2 clusters")
	held(t, s.l, guard.Fresh)

	next := newSignalled(t)
	next.lose, next.at = 1, s.at
	next.l.last = s.l.last
	next.l.memory.RestoreHeard(s.l.memory.Heard(), s.at)
	require.Equal(t, before, next.ticks(3))
	require.Equal(t, guard.Fresh, next.l.State().Hold.Rail)

	s.lose = 0
	require.Equal(t, before, s.ticks(10))
	require.Nil(t, s.l.State().Hold)
}

// TestFailuresBringTheLastPlanBack: counts of data planes reach the guard.
func TestFailuresBringTheLastPlanBack(t *testing.T) {
	usually := strings.NewReplacer("rate: 120", "rate: 50", "[demo, big]", "[demo]", "policy: {tick: 20ms}", "control: {guard: {movement: 1}}").Replace(file)
	l := &leader{Control: newControl(t, parse(t, usually), &store.Memory{}, ""), epoch: 1}
	at, sent, failed := now, uint64(0), uint64(0)
	next := func(fails uint64) *State {
		at = at.Add(2 * time.Second)
		sent, failed = sent+100, failed+fails
		report := reported(func(r *pb.ReportRequest) {
			r.Sequence = sent
			r.Time.Seconds = at.Unix()
			r.Demands = []*pb.Demand{{Model: "demo", Priority: 1, Rate: 50, Count: sent, Window: 10}}
			r.Observations = []*pb.Observation{
				{Engine: "near", Model: "demo", Requests: sent}, {Engine: "far", Model: "demo", Requests: sent, Failed: failed},
			}
		})
		l.reports.add(report.ReportRequest, at)
		l.tick(at)
		return l.State()
	}
	for range 10 {
		require.Nil(t, next(0).Hold)
	}
	before := weightsOf(l)
	l.Reload(parse(t, strings.NewReplacer("{a: 5ms, c: 150ms}", "{a: 1500ms, c: 150ms}").Replace(usually)))
	require.Nil(t, next(0).Hold)
	require.NotEqual(t, before, weightsOf(l))
	for range 4 {
		next(50)
	}
	s := l.State()
	require.NotNil(t, s.Hold)
	require.Equal(t, guard.RollBack, s.Hold.Rail)
	require.Equal(t, before, weightsOf(l))
	require.Equal(t, 1.0, testutil.ToFloat64(l.metrics.rollbacks))
	held(t, l, guard.RollBack)
}
