package control

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/store"
	"github.com/wardrop-lb/wardrop/tick"
)

// TestDemandForModelsThatNoEngineServesIsLeftOut: data planes go on reporting a
// model that a reload has taken away, and a faulty one may report anything.
func TestDemandForModelsThatNoEngineServesIsLeftOut(t *testing.T) {
	c := parse(t, file)
	v := tick.View(c, []tick.Report{reported(func(r *pb.ReportRequest) {
		r.Demands = []*pb.Demand{
			{Model: "demo", Priority: 1, Rate: 30, Window: 10}, {Model: "gone", Priority: 1, Rate: 1e8, Window: 10}, {Priority: 1, Rate: 1, Window: 10},
		}
	})}, now)
	require.NoError(t, v.Validate())
	require.Equal(t, map[string]float64{"a/demo/standard": 30, "c/demo/standard": 40}, rates(v))
}

// TestEmptyReportsChangeNothing: every message of a report may come with no field
// set at all.
func TestEmptyReportsChangeNothing(t *testing.T) {
	c := parse(t, file)
	l := &leader{Control: newControl(t, c, &store.Memory{}, ""), epoch: 1}
	l.tick(now)
	want := l.snapshots
	for i, r := range []*pb.ReportRequest{
		{},
		{Cluster: "a"},
		{Cluster: "a", Demands: []*pb.Demand{{}}, Distances: []*pb.Distance{{}}, Readings: []*pb.Reading{{}}, Observations: []*pb.Observation{{}}, Penalties: []*pb.Penalty{{}}, Applied: &pb.Applied{}},
		{Cluster: "a", Time: timestamppb.New(now), Readings: []*pb.Reading{{Engine: "near"}, {Engine: "ghost", Failures: 9}}},
	} {
		r.Instance = string(rune('p' + i))
		l.reports.add(r, now)
		l.tick(now)
		s := l.State()
		require.Empty(t, s.Trouble)
		for j := range want {
			require.Equal(t, want[j].Rows[0].Targets[0].Weight, l.snapshots[j].Rows[0].Targets[0].Weight)
		}
		require.Len(t, l.DataPlanes(now), i+1)
	}
}

// FuzzReports sends whatever bytes decode as a report: the control plane must plan
// on, by its policy and within the engines it has.
func FuzzReports(f *testing.F) {
	for _, x := range []float64{0, 1, 120, 1e8, -1, math.NaN(), math.Inf(1), math.MaxFloat64, math.SmallestNonzeroFloat64} {
		b, err := proto.Marshal(&pb.ReportRequest{
			Cluster: "a", Instance: "i", Sequence: 1, Time: &timestamppb.Timestamp{Seconds: math.MaxInt64, Nanos: -5},
			Demands:   []*pb.Demand{{Model: "demo", Priority: 1, Rate: x, Window: x}, {Model: "big", Priority: 2, Rate: x, Window: 5}, {Model: "demo", Priority: 9}},
			Distances: []*pb.Distance{{Region: "a", Seconds: x}, {Region: "c", Seconds: x}, {Region: "nowhere", Seconds: x}},
			Readings: []*pb.Reading{{Engine: "near", Reachable: true, Running: &x, Waiting: &x, Time: &timestamppb.Timestamp{Seconds: math.MinInt64}},
				{Engine: "far", Failures: 3, Time: timestamppb.New(now)}},
			Penalties: []*pb.Penalty{{Engine: "near", Seconds: x}, {Engine: "ghost", Seconds: x}},
		})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &pb.ReportRequest{}
		if proto.Unmarshal(data, r) != nil {
			t.Skip("not a report")
		}
		c := parse(t, file)
		l := &leader{Control: newControl(t, c, &store.Memory{}, ""), epoch: 1}
		l.reports.add(r, now)
		l.tick(now)
		s := l.State()
		require.NotNil(t, s)
		require.Empty(t, s.Trouble)
		for _, snapshot := range l.snapshots {
			require.NoError(t, snapshot.Validate())
		}
	})
}
