package tick

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/latency"
)

// paceFleet is engines of one kind with 10 requests/s each, some of them slow, seen by
// data planes that report every second.
type paceFleet struct {
	now     time.Time
	factors []float64
	planes  []string
	sent    map[string]float64 // by data plane, at each engine
	gauges  bool               // engines say how many requests are in them
	memory  Memory
}

func newPaceFleet(factors ...float64) *paceFleet {
	return &paceFleet{now: time.Unix(1_700_000_000, 0), factors: factors, planes: []string{"a", "b"}, sent: map[string]float64{}}
}

var paceProfile = fleet.Profile{T0: 1, UMax: 60, Batch: 120, Kappa: 0.9}

// run goes on for some seconds and gives the slowdowns.
func (f *paceFleet) run(seconds int) []float64 {
	var view *fleet.View
	for range seconds {
		f.now = f.now.Add(time.Second)
		view = &fleet.View{}
		var reports []Report
		for _, name := range f.planes {
			f.sent[name] += 10 / float64(len(f.planes))
			r := &pb.ReportRequest{Cluster: "c", Instance: name, Time: timestamppb.New(f.now)}
			for i, factor := range f.factors {
				inside := latency.New(latency.Slowed(paceProfile, factor)).Phi(10)
				engine := fmt.Sprintf("e%d", i)
				o := &pb.Observation{Engine: engine, Model: "m", Requests: uint64(f.sent[name]), InFlight: inside / float64(len(f.planes)), Ended: uint64(f.sent[name])}
				if f.gauges {
					o.InFlight = 0 // what a data plane of another cluster has there is not seen here
					none := 0.0
					r.Readings = append(r.Readings, &pb.Reading{Engine: engine, Time: r.Time, Running: &inside, Waiting: &none})
				}
				r.Observations = append(r.Observations, o)
			}
			reports = append(reports, Report{r, f.now})
		}
		for i := range f.factors {
			view.Engines = append(view.Engines, fleet.Engine{Name: fmt.Sprintf("e%d", i), Models: []string{"m"}, Profile: paceProfile})
		}
		f.memory.Apply(view, reports, "optimal", f.now)
	}
	var out []float64
	for _, e := range view.Engines {
		out = append(out, e.Slowdown)
		if e.Slowdown > 0 {
			requireSlowed(e)
		}
	}
	return out
}

func requireSlowed(e fleet.Engine) {
	if e.Profile != latency.Slowed(paceProfile, e.Slowdown) {
		panic("the profile is not that of the slow engine")
	}
}

func TestSlowEngineIsFound(t *testing.T) {
	for _, gauges := range []bool{false, true} {
		f := newPaceFleet(1, 1, 2.9, 1)
		f.gauges = gauges
		s := f.run(60)
		require.InDelta(t, 2.9, s[2], 0.9, "gauges %v", gauges)
		require.Equal(t, []float64{0, 0, 0}, []float64{s[0], s[1], s[3]})
		f.factors[2] = 1
		require.Less(t, f.run(90)[2], 1.1)
	}
}

// TestAllSlowIsNobodys: when the requests have become longer, no engine is slow.
func TestAllSlowIsNobodys(t *testing.T) {
	require.Equal(t, []float64{0, 0, 0, 0}, newPaceFleet(2.5, 2.5, 2.5, 2.5).run(30))
	require.Equal(t, []float64{0}, newPaceFleet(2.5).run(30), "of a single engine nobody can tell")
}

// TestPaceSurvivesDataPlanes: a data plane that starts anew, one that goes and
// reports that come twice make no engine slow or well.
func TestPaceSurvivesDataPlanes(t *testing.T) {
	f := newPaceFleet(1, 1, 1, 1)
	f.run(20)
	f.sent["a"] = 0 // under the same name, which no data plane does
	require.Equal(t, []float64{0, 0, 0, 0}, f.run(5))
	f.planes = []string{"b", "c"}
	require.Equal(t, []float64{0, 0, 0, 0}, f.run(5))
	f.planes = []string{"c"}
	require.Equal(t, []float64{0, 0, 0, 0}, f.run(20))

	var p paces
	view := &fleet.View{}
	report := func(second int64, requests uint64) []Report {
		return []Report{{Received: time.Unix(second, 0), ReportRequest: &pb.ReportRequest{Instance: "a", Time: timestamppb.New(time.Unix(second, 0)), Observations: []*pb.Observation{
			{Engine: "e", Model: "m", Requests: requests, InFlight: 4, Ended: max(requests, 4) - 4, Spent: float64(requests) / 2},
		}}}}
	}
	p.of(view, report(1, 100))
	require.Equal(t, flow{10, 10, 4, 5}, p.of(view, report(2, 110))["e"])
	require.Equal(t, flow{10, 10, 4, 5}, p.of(view, report(2, 110))["e"], "nothing new was said")
	require.Equal(t, flow{5, 5, 4, 2.5}, p.of(view, report(4, 120))["e"])
	require.Equal(t, flow{0, 0, 4, 0}, p.of(view, report(5, 3))["e"], "it counts anew")
}
