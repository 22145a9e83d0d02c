package control

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/store"
)

const inspected = `
regions: [{name: a, coordinates: [50, 8]}, {name: s, coordinates: [50, 8]}]
clusters:
  - {name: a, region: a, distances: {a: 5ms, c: 150ms}, engine_distances: {far: 170ms}}
engines:
  - {name: near, region: a, url: "http://near", models: [demo]}
  - {name: far, region: c, url: "http://far", kind: sglang, models: [demo]}
  - {name: gone, region: c, url: "http://gone", models: [demo]}
  - {name: leaving, region: c, url: "http://leaving", models: [demo], drain: true}
  - {name: mute, region: c, url: "http://mute"}
  - {name: quiet, region: c, url: "http://quiet", kind: none, models: [demo]}
  - {name: south, region: s, url: "http://south", models: [demo]}
demand:
  - {cluster: a, model: demo, rate: 120}
  - {cluster: a, model: demo, priority: batch, rate: 9}
`

// inspect is a control plane that does not run, with one report of cluster a's data
// plane that came a second before now.
func inspect(t *testing.T, edit func(*pb.ReportRequest)) *Control {
	t.Helper()
	c := New(Options{Config: parse(t, inspected), Store: &store.Memory{}, Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(c.stop)
	r := reported(edit)
	c.reports.add(r.ReportRequest, r.Received)
	return c
}

func f(x float64) *float64 { return &x }

func TestEnginesAsTheControlPlaneSeesThem(t *testing.T) {
	sent := now.Add(-time.Second)
	read := func(engine string, tried, good time.Duration) *pb.Reading {
		r := &pb.Reading{Engine: engine, Reachable: true, Kind: "vllm", Time: timestamppb.New(sent.Add(-tried))}
		if good > 0 {
			r.Good, r.Running = timestamppb.New(sent.Add(-good)), f(7)
		}
		return r
	}
	c := inspect(t, func(r *pb.ReportRequest) {
		gone := read("gone", 2*time.Second, 30*time.Second)
		gone.Reachable, gone.Failures, gone.Error, gone.Faults = false, 2, "refused", &pb.Faults{Failed: 2}
		stale := read("far", 20*time.Second, 20*time.Second)
		r.Readings = []*pb.Reading{read("near", time.Second, time.Second), stale, gone, read("mute", time.Second, 0)}
	})
	learned := fleet.Profile{T0: 1, UMax: 100, Batch: 100, Kappa: 0.9}
	c.state.Store(&State{
		View: &fleet.View{Engines: []fleet.Engine{
			{Name: "near", Ramp: 0.3, Slowdown: 2, Penalty: 0.5, Profile: learned, Learn: true, Learned: true, Doubt: 0.02},
			{Name: "unknown"}, {Name: "far", Profile: learned, Learn: true}, {Name: "gone", Profile: learned},
		}},
		Plan: &fleet.Plan{Engines: []fleet.EngineLoad{{Name: "near", Load: 3, Capacity: 10, Latency: 1, Penalty: 0.5}}},
	})
	engines := map[string]Engine{}
	var names []string
	for _, e := range c.Engines(now) {
		engines[e.Name] = e
		names = append(names, e.Name)
	}
	require.Equal(t, []string{"far", "gone", "leaving", "mute", "near", "quiet", "south"}, names)
	for name, state := range map[string]string{
		"near": EngineLive, "far": EngineUnread, "gone": EngineDead, "leaving": EngineDraining, "mute": EngineNoModels, "quiet": EngineUnread,
	} {
		require.Equal(t, state, engines[name].State, name)
	}
	require.Equal(t, Engine{
		Name: "near", Region: "a", URL: "http://near", Models: []string{"demo"}, Kind: "vllm", State: EngineLive,
		Ramp: 0.3, Slowdown: 2, Penalty: 0.5, Load: 3, Capacity: 10, Price: 1.5,
		Profile: Profile{Source: SourceLearned, T0: 1, Saturation: 50, Doubt: 0.02},
		Reading: &EngineReading{Cluster: "a", Instance: "i", Tried: 2, Age: f(2), Running: f(7)},
	}, engines["near"])
	require.Equal(t, &EngineReading{
		Cluster: "a", Instance: "i", Tried: 3, Age: f(31), Running: f(7), Error: "refused", Failures: 2, Faults: &Faults{Failed: 2},
	}, engines["gone"].Reading)
	require.Equal(t, Profile{Source: SourceGuessed, Doubt: 1}, engines["far"].Profile)
	require.Equal(t, Profile{Source: SourceConfigured, T0: 1, Saturation: 50}, engines["gone"].Profile)
	require.Nil(t, engines["mute"].Reading.Age)
	require.Equal(t, "none", engines["quiet"].Kind)
	require.Nil(t, engines["quiet"].Reading)
}

// TestMarksAreShownUntilTheyEnd: with why and for how long, unless more is known.
func TestMarksAreShownUntilTheyEnd(t *testing.T) {
	c := inspect(t, func(r *pb.ReportRequest) {
		for _, e := range []string{"near", "south", "gone", "leaving"} {
			r.Readings = append(r.Readings, &pb.Reading{Engine: e, Reachable: e != "gone", Failures: 2, Time: timestamppb.New(now.Add(-time.Second))})
			r.Marks = append(r.Marks, &pb.Mark{Engine: e, State: "black hole", Reason: "nothing moves", SecondsLeft: 5})
		}
		r.Marks = append(r.Marks, &pb.Mark{Engine: "south", State: "of a later version", SecondsLeft: 50})
	})
	at := func(d time.Duration) map[string]Engine {
		out := map[string]Engine{}
		for _, e := range c.Engines(now.Add(d)) {
			out[e.Name] = e
		}
		return out
	}
	engines := at(0)
	for _, name := range []string{"near", "south"} {
		require.Equal(t, "black hole", engines[name].State)
		require.Equal(t, "nothing moves", engines[name].Reason)
		require.Equal(t, 4.0, engines[name].Left, "the report is a second old")
	}
	require.Equal(t, EngineDead, engines["gone"].State)
	require.Equal(t, EngineDraining, engines["leaving"].State)
	require.Equal(t, EngineLive, at(4 * time.Second)["near"].State)
}

// TestDemandSaysWhereItComesFrom: what is expected counts until a cluster has measured
// for a while, and beside a measurement nothing that is expected does.
func TestDemandSaysWhereItComesFrom(t *testing.T) {
	measured := func(window float64) []Demand {
		return inspect(t, func(r *pb.ReportRequest) {
			r.Demands = []*pb.Demand{{Model: "demo", Priority: uint32(fleet.Standard), Rate: 30, Count: 600, Window: window}, {Model: "nobody's", Rate: 1, Window: window}}
		}).Demands(now)
	}
	require.Equal(t, []Demand{
		{Cluster: "a", Model: "demo", Priority: fleet.Standard, Rate: 120, Source: SourceExpected, DataPlanes: 1, Age: 1, Window: 1, Requests: 600},
		{Cluster: "a", Model: "demo", Priority: fleet.Batch, Rate: 9, Source: SourceExpected},
	}, measured(1))
	require.Equal(t, []Demand{
		{Cluster: "a", Model: "demo", Priority: fleet.Standard, Rate: 30, Source: SourceMeasured, DataPlanes: 1, Age: 1, Window: 10, Requests: 600},
	}, measured(10))
}

// TestDemandAddsUp over the data planes of a cluster.
func TestDemandAddsUp(t *testing.T) {
	said := []*pb.Demand{{
		Model: "demo", Priority: uint32(fleet.Standard), Rate: 30, Window: 10, Count: 600, Retries: 5, Cancelled: 4, Samples: 100, Estimated: 10,
		PromptTokens: 5000, OutputTokens: 3000, CachedTokens: 1000,
	}}
	c := inspect(t, func(r *pb.ReportRequest) { r.Demands = said })
	other := reported(func(r *pb.ReportRequest) { r.Instance, r.Demands = "j", said })
	c.reports.add(other.ReportRequest, now.Add(-3*time.Second))
	require.Equal(t, []Demand{{
		Cluster: "a", Model: "demo", Priority: fleet.Standard, Rate: 60, Source: SourceMeasured, DataPlanes: 2, Age: 3, Window: 10,
		Requests: 1200, Retries: 10, Cancelled: 8, Samples: 200, Estimated: 20, PromptTokens: 10000, OutputTokens: 6000, CachedTokens: 2000,
	}}, c.Demands(now))
}

// TestDemandIsForecast: of measured demand what the last tick made of it is said.
func TestDemandIsForecast(t *testing.T) {
	c := inspect(t, func(r *pb.ReportRequest) {
		r.Demands = []*pb.Demand{{Model: "demo", Priority: uint32(fleet.Standard), Rate: 30, Count: 600, Window: 10}}
	})
	l := &leader{Control: c, epoch: 1}
	for i := range 20 {
		at := now.Add(time.Duration(i) * 2 * time.Second)
		r := reported(func(r *pb.ReportRequest) {
			r.Sequence, r.Time = uint64(i+2), timestamppb.New(at)
			// 20 and 40 requests by turns in two seconds: 15 a second, and more than chance.
			r.Demands = []*pb.Demand{{Model: "demo", Priority: uint32(fleet.Standard), Rate: 15, Count: uint64(600 + 30*i + 10*(i%2)), Window: 10}}
		})
		c.reports.add(r.ReportRequest, at)
		l.tick(at)
	}
	d := c.Demands(now.Add(38 * time.Second))[0]
	require.InEpsilon(t, 15, d.Rate, 0.05)
	require.InEpsilon(t, 1.0/3, d.Missed, 0.1)
	require.Greater(t, d.Dispersion, 1.1)
}

func TestDistancesSayWhereTheyComeFrom(t *testing.T) {
	c := inspect(t, func(r *pb.ReportRequest) {
		r.Distances = []*pb.Distance{{Region: "c", Seconds: 0.1, Age: 4}, {Region: "nowhere", Seconds: 0.2}}
	})
	require.Equal(t, []Distance{
		{Cluster: "a", Region: "a", Seconds: 0.005, Source: SourceConfigured, Configured: 0.005},
		{Cluster: "a", Region: "c", Seconds: 0.1, Source: SourceMeasured, Age: f(5), Configured: 0.15},
		{Cluster: "a", Region: "c", Engine: "far", Seconds: 0.17, Source: SourceConfigured, Configured: 0.17},
		{Cluster: "a", Region: "s", Seconds: 0.001, Source: SourceGeography, Configured: 0.001},
	}, c.Distances(now))
}
