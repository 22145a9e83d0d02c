package tick

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/guard"
)

// hearing is a fleet of three clusters with an engine each.
type hearing struct {
	memory Memory
	now    time.Time
}

// tick hears of some clusters and engines, after a while.
func (h *hearing) tick(after time.Duration, clusters, engines string) (c, e guard.Heard) {
	h.now = h.now.Add(after)
	view := &fleet.View{}
	for _, name := range []string{"a", "b", "c"} {
		view.Clusters = append(view.Clusters, fleet.Cluster{Name: name})
		view.Engines = append(view.Engines, fleet.Engine{Name: name, Models: []string{"m"}, Profile: paceProfile})
	}
	var planes []Report
	for _, name := range clusters {
		planes = append(planes, Report{&pb.ReportRequest{Cluster: string(name), Instance: string(name), Time: timestamppb.New(h.now)}, h.now})
	}
	r := &pb.ReportRequest{Collects: "r", Instance: "collector", Time: timestamppb.New(h.now)}
	for _, name := range engines {
		r.Readings = append(r.Readings, &pb.Reading{Engine: string(name), Time: r.Time})
	}
	h.memory.Apply(view, append(planes, Report{r, h.now}), "optimal", h.now)
	in := h.memory.Guard(&config.Config{})
	return in.Clusters, in.Engines
}

// TestHeard: those count that have been heard of, for an hour, and in the next leader's time too.
func TestHeard(t *testing.T) {
	h := &hearing{now: time.Unix(1_700_000_000, 0)}
	check := func(after time.Duration, clusters, engines string, c, e guard.Heard) {
		t.Helper()
		gotC, gotE := h.tick(after, clusters, engines)
		require.Equal(t, c, gotC)
		require.Equal(t, e, gotE)
	}
	check(0, "", "", guard.Heard{}, guard.Heard{})
	check(2*time.Second, "ab", "a", guard.Heard{Fresh: 2, Known: 2}, guard.Heard{Fresh: 1, Known: 1})
	check(2*time.Second, "a", "bc", guard.Heard{Fresh: 1, Known: 2}, guard.Heard{Fresh: 2, Known: 3})
	require.Equal(t, []string{"a", "b"}, h.memory.Heard())

	next := &hearing{now: h.now}
	next.memory.RestoreHeard(h.memory.Heard(), next.now)
	c, _ := next.tick(0, "b", "")
	require.Equal(t, guard.Heard{Fresh: 1, Known: 2}, c)

	check(2*time.Hour, "a", "", guard.Heard{Fresh: 1, Known: 1}, guard.Heard{})
}

// TestTried: attempts and failures count once, from when a data plane is known; of one that begins
// anew only what comes then.
func TestTried(t *testing.T) {
	var m Memory
	now := time.Unix(1_700_000_000, 0)
	type counts map[string][2]uint64
	report := func(instance string, c counts) Report {
		r := &pb.ReportRequest{Cluster: "c", Instance: instance, Time: timestamppb.New(now)}
		for engine, x := range c {
			r.Observations = append(r.Observations, &pb.Observation{Engine: engine, Model: "m", Requests: x[0], Failed: x[1]})
		}
		return Report{r, now}
	}
	tick := func(planes ...Report) map[string]guard.Tried {
		now = now.Add(time.Second)
		view := &fleet.View{Engines: []fleet.Engine{{Name: "e", Models: []string{"m"}, Profile: paceProfile}}}
		m.Apply(view, planes, "optimal", now)
		return m.Guard(&config.Config{}).Tried
	}
	none := map[string]guard.Tried{}
	require.Equal(t, none, tick(report("i", counts{"e": {1000, 400}})), "who knows when that was")
	a := report("i", counts{"e": {1100, 410}, "new": {7, 2}})
	require.Equal(t, map[string]guard.Tried{"e": {Attempts: 100, Failed: 10}, "new": {Attempts: 7, Failed: 2}}, tick(a))
	require.Equal(t, none, tick(a), "the same report again")
	require.Equal(t, map[string]guard.Tried{"e": {Attempts: 5}, "new": {Failed: 1}},
		tick(report("i", counts{"e": {1105, 410}, "new": {7, 3}}), report("j", counts{"e": {50, 50}})))
	require.Equal(t, map[string]guard.Tried{"e": {Attempts: 6, Failed: 2}},
		tick(report("i", counts{"e": {3, 1}, "new": {7, 3}}), report("j", counts{"e": {56, 52}})), "i began anew")
}
