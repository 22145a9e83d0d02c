package tick

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/protect"
)

func marked(instance string, now time.Time, marks ...*pb.Mark) Report {
	return Report{&pb.ReportRequest{Cluster: "c", Instance: instance, Marks: marks}, now}
}

func inView(t *testing.T, now time.Time, planes ...Report) (names []string) {
	t.Helper()
	c := &config.Config{Engines: []config.Engine{{Name: "a", Models: []string{"m"}}, {Name: "b", Models: []string{"m"}}, {Name: "only", Models: []string{"n"}}}}
	var list []fleet.Engine
	for _, e := range c.Engines {
		list = append(list, fleet.Engine{Name: e.Name, Models: e.Models})
	}
	for _, e := range engines(c, list, planes, now) {
		names = append(names, e.Name)
	}
	return names
}

// TestMarkedEnginesAreLeftOutForTheLease: those that serve nobody, never a model's last.
func TestMarkedEnginesAreLeftOutForTheLease(t *testing.T) {
	now := time.Unix(1000, 0)
	all := []string{"a", "b", "only"}
	for s := protect.BlackHole; s <= protect.Restarting; s++ {
		mark := func(engine string) *pb.Mark {
			return &pb.Mark{Engine: engine, State: s.String(), Reason: "r", SecondsLeft: 8}
		}
		planes := []Report{marked("1", now, mark("a"), mark("only")), marked("2", now)}
		want := all
		if s.TakesNothing() {
			want = []string{"b", "only"}
		}
		require.Equal(t, want, inView(t, now, planes...), s.String())
		require.Equal(t, all, inView(t, now.Add(8*time.Second), planes...), "a lease, whatever becomes of the reporter")
		require.Equal(t, all, inView(t, now, marked("1", now, mark("a"), mark("b"), mark("only"))), "better than none")
	}
	long := marked("1", now, &pb.Mark{Engine: "a", State: "black hole", SecondsLeft: 1e8})
	require.Equal(t, all, inView(t, now.Add(markMost), long))
	require.Equal(t, all, inView(t, now, marked("1", now, &pb.Mark{Engine: "a", State: "new", SecondsLeft: 8})))
}

// TestOwnMarksAreContradicted: by a data plane that gets answers; what the engine itself
// shows is not.
func TestOwnMarksAreContradicted(t *testing.T) {
	now := time.Unix(1000, 0)
	served := marked("2", now)
	served.Observations = []*pb.Observation{{Engine: "a", Model: "m", Rate: 3, FirstByte: 0.1}}
	hole := func(own bool) Report {
		return marked("1", now, &pb.Mark{Engine: "a", State: "black hole", SecondsLeft: 8, Own: own})
	}
	require.Equal(t, []string{"b", "only"}, inView(t, now, hole(true)))
	require.Equal(t, []string{"a", "b", "only"}, inView(t, now, hole(true), served))
	require.Equal(t, []string{"b", "only"}, inView(t, now, hole(false), served))
	served.Marks = hole(true).Marks
	require.Equal(t, []string{"b", "only"}, inView(t, now, hole(true), served), "it has found it too")
}
