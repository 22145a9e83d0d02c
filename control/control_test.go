package control

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/latency"
	"github.com/wardrop-lb/wardrop/policy"
	"github.com/wardrop-lb/wardrop/policy/optimal"
	"github.com/wardrop-lb/wardrop/store"
	"github.com/wardrop-lb/wardrop/tick"
	"github.com/wardrop-lb/wardrop/weights"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const file = `
policy: {tick: 20ms}
clusters:
  - {name: a, region: a, distances: {a: 5ms, c: 150ms}}
  - {name: c, region: c, distances: {a: 150ms, c: 5ms}}
engines:
  - {name: near, region: a, url: "http://near", models: [demo], profile: {t0: 200ms, u_max: 125, batch: 200}}
  - {name: far, region: c, url: "http://far", models: [demo, big], profile: {t0: 200ms, u_max: 100, batch: 160}}
demand:
  - {cluster: a, model: demo, rate: 120}
  - {cluster: c, model: demo, rate: 40}
`

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse("w.yaml", []byte(text))
	require.NoError(t, err)
	return c
}

var now = time.Unix(1_000_000, 0)

// reported is a report of cluster a's data plane that came a second ago.
func reported(edit func(*pb.ReportRequest)) tick.Report {
	r := &pb.ReportRequest{Cluster: "a", Instance: "i", Sequence: 1, Time: timestamppb.New(now.Add(-time.Second))}
	edit(r)
	return tick.Report{ReportRequest: r, Received: now.Add(-time.Second)}
}

func rates(v *fleet.View) map[string]float64 {
	out := map[string]float64{}
	for _, d := range v.Demands {
		out[d.Cluster+"/"+d.Model+"/"+d.Priority.String()] = d.Rate
	}
	return out
}

func TestMeasuredDemandReplacesExpectedOnceSettled(t *testing.T) {
	c := parse(t, file)
	demand := func(rate, window float64) tick.Report {
		return reported(func(r *pb.ReportRequest) {
			r.Demands = []*pb.Demand{{Model: "demo", Priority: uint32(fleet.Standard), Rate: rate, Window: window}}
		})
	}
	require.Equal(t, 120.0, rates(tick.View(c, nil, now))["a/demo/standard"])
	require.Equal(t, 120.0, rates(tick.View(c, []tick.Report{demand(30, 1)}, now))["a/demo/standard"])
	require.Equal(t, 300.0, rates(tick.View(c, []tick.Report{demand(300, 1)}, now))["a/demo/standard"])
	require.Equal(t, 30.0, rates(tick.View(c, []tick.Report{demand(30, 10)}, now))["a/demo/standard"])
	require.Equal(t, 40.0, rates(tick.View(c, []tick.Report{demand(30, 10)}, now))["c/demo/standard"], "the other cluster has not reported")
}

func TestReplicasAddUp(t *testing.T) {
	c := parse(t, file)
	one := reported(func(r *pb.ReportRequest) {
		r.Demands = []*pb.Demand{{Model: "demo", Priority: 1, Rate: 30, Window: 10}}
		r.Distances = []*pb.Distance{{Region: "c", Seconds: 0.2}}
	})
	two := reported(func(r *pb.ReportRequest) {
		r.Instance = "j"
		r.Demands = []*pb.Demand{{Model: "demo", Priority: 1, Rate: 12, Window: 10}, {Model: "big", Priority: 2, Rate: 1, Window: 10}}
		r.Distances = []*pb.Distance{{Region: "c", Seconds: 0.1}}
	})
	v := tick.View(c, []tick.Report{one, two}, now)
	require.NoError(t, v.Validate())
	require.Equal(t, 42.0, rates(v)["a/demo/standard"])
	require.Equal(t, 1.0, rates(v)["a/big/batch"])
	for _, d := range v.Distances {
		if d.Cluster == "a" && d.Region == "c" {
			require.Equal(t, 0.1, d.Seconds, "the least of the replicas")
		}
	}
}

func TestImplausibleReportsAreLeftOut(t *testing.T) {
	c := parse(t, file)
	for _, x := range []float64{math.NaN(), math.Inf(1), -1} {
		v := tick.View(c, []tick.Report{reported(func(r *pb.ReportRequest) {
			r.Demands = []*pb.Demand{{Model: "demo", Priority: 1, Rate: x, Window: 1}, {Model: "demo", Priority: 77, Rate: 1}}
			r.Distances = []*pb.Distance{{Region: "c", Seconds: x}}
			r.Penalties = []*pb.Penalty{{Engine: "near", Seconds: x}}
		}), reported(func(r *pb.ReportRequest) { r.Cluster = "ghost"; r.Demands = []*pb.Demand{{Model: "demo", Rate: 1}} })}, now)
		require.NoError(t, v.Validate())
		require.Equal(t, 120.0, rates(v)["a/demo/standard"])
	}
}

func names(v *fleet.View) (out []string) {
	for _, e := range v.Engines {
		out = append(out, e.Name)
	}
	return out
}

func TestDeadEnginesLeaveTheView(t *testing.T) {
	c := parse(t, file)
	reading := func(engine string, reachable bool, failures uint32, age time.Duration) tick.Report {
		return reported(func(r *pb.ReportRequest) {
			r.Readings = []*pb.Reading{{Engine: engine, Reachable: reachable, Failures: failures, Time: timestamppb.New(now.Add(-age))}}
		})
	}
	require.Equal(t, []string{"near", "far"}, names(tick.View(c, nil, now)))
	require.Equal(t, []string{"far"}, names(tick.View(c, []tick.Report{reading("near", false, 2, 2*time.Second)}, now)))
	require.Equal(t, []string{"near", "far"}, names(tick.View(c, []tick.Report{reading("near", false, 1, 2*time.Second)}, now)), "one failed reading is no death")
	require.Equal(t, []string{"near", "far"}, names(tick.View(c, []tick.Report{reading("near", true, 9, 2*time.Second)}, now)), "it answers, whatever it says")
	require.Equal(t, []string{"near", "far"}, names(tick.View(c, []tick.Report{reading("near", false, 9, time.Minute)}, now)), "stale is not dead")
	require.Equal(t, []string{"near", "far"}, names(tick.View(c, []tick.Report{reading("far", false, 9, 2*time.Second)}, now)),
		"the only engine of a model stays: routing to where it may fail is better than nowhere")
	newer := reading("near", true, 0, 2*time.Second)
	newer.Instance = "j"
	require.Equal(t, []string{"near", "far"}, names(tick.View(c, []tick.Report{reading("near", false, 9, 5*time.Second), newer}, now)), "the newest reading counts")
}

// TestClocksThatDifferDoNotMatter: a data plane an hour ahead reports a reading
// of two seconds ago by its own clock.
func TestClocksThatDifferDoNotMatter(t *testing.T) {
	c := parse(t, file)
	ahead := now.Add(time.Hour)
	p := tick.Report{ReportRequest: &pb.ReportRequest{Cluster: "a", Instance: "i", Time: timestamppb.New(ahead), Readings: []*pb.Reading{
		{Engine: "near", Failures: 5, Time: timestamppb.New(ahead.Add(-2 * time.Second))},
	}}, Received: now}
	require.Equal(t, []string{"far"}, names(tick.View(c, []tick.Report{p}, now)))
}

func TestDrainingEnginesLeaveTheView(t *testing.T) {
	c := parse(t, file)
	c.Engines[0].Drain = true
	require.Equal(t, []string{"far"}, names(tick.View(c, nil, now)))
	c.Engines[1].Drain = true
	require.Equal(t, []string{"near", "far"}, names(tick.View(c, nil, now)), "the last engine of a model cannot be drained")
}

// TestLimits: an engine's crowd is divided between the rows that use it and the
// replicas of a cluster.
func TestLimits(t *testing.T) {
	c := parse(t, file)
	plan, err := Solve(c, optimal.Options{})
	require.NoError(t, err)
	one, two := tick.Cut(c, c.View(), plan, nil), tick.Cut(c, c.View(), plan, map[string][]string{"a": {"x", "y"}})
	require.Zero(t, one[0].Replicas, "nobody has reported")
	require.Equal(t, 2, two[0].Replicas)
	limit := func(s []*fleet.Snapshot, cluster int, engine int32) float64 {
		for _, target := range s[cluster].Rows[1].Targets {
			if target.Engine == engine {
				return target.Limit
			}
		}
		return 0
	}
	const far, near = 0, 1
	require.InDelta(t, limit(one, 0, near)/2, limit(two, 0, near), 1)
	total := limit(one, 0, far) + limit(one, 1, far)
	m := latency.New(c.Engines[1].Fleet().Profile)
	held := m.Phi(m.Capacity())
	require.Greater(t, total, tick.Crowding*held)
	require.Less(t, total, 2*tick.Crowding*held)
}

func TestPenaltiesEnterTheView(t *testing.T) {
	v := tick.View(parse(t, file), []tick.Report{reported(func(r *pb.ReportRequest) {
		r.Penalties = []*pb.Penalty{{Engine: "near", Seconds: 2}}
	})}, now)
	require.Equal(t, 2.0, v.Engines[0].Penalty)
}

func TestReportsAreLeases(t *testing.T) {
	r := newReports()
	r.add(&pb.ReportRequest{Instance: "i", Sequence: 2}, now)
	r.add(&pb.ReportRequest{Instance: "i", Sequence: 1, Cluster: "late"}, now.Add(time.Second))
	live := r.live(now.Add(reportLease))
	require.Len(t, live, 1)
	require.Empty(t, live[0].Cluster, "an older report does not replace a newer one")
	require.Empty(t, r.live(now.Add(reportLease+1)))
	require.Empty(t, r.planes, "what is gone is forgotten")
}

func TestCutMakesValidSnapshotsOfEveryCluster(t *testing.T) {
	c := parse(t, file)
	view := tick.View(c, []tick.Report{reported(func(r *pb.ReportRequest) {
		r.Readings = []*pb.Reading{{Engine: "near", Failures: 3, Time: timestamppb.New(now)}}
	})}, now)
	plan := policy.ByCapacity(view)
	snapshots := tick.Cut(c, c.View(), plan, map[string][]string{"a": {"x", "y"}})
	require.Len(t, snapshots, 2)
	for _, s := range snapshots {
		require.NoError(t, s.Validate())
		require.Len(t, s.Engines, 2, "dead engines stay in the table, so that somebody looks at them")
		require.Equal(t, "c", s.Engines[0].Collector, "the nearest cluster reads an engine")
		require.Equal(t, "a", s.Engines[1].Collector)
		require.Len(t, s.Rows, 2)
		for _, r := range s.Rows {
			require.Len(t, r.Targets, 1)
			require.Equal(t, "far", s.Engines[r.Targets[0].Engine].Name)
			require.GreaterOrEqual(t, r.Targets[0].Limit, float64(tick.LeastLimit))
		}
	}
}

func TestSameIgnoresPredictionsAndTime(t *testing.T) {
	c := parse(t, file)
	view := tick.View(c, nil, now)
	plan := policy.ByCapacity(view)
	a, b := tick.Cut(c, c.View(), plan, nil), tick.Cut(c, c.View(), plan, nil)
	b[0].Time, b[0].Rows[0].Targets[0].Predicted = now, 99
	require.True(t, tick.Same(a, b))
	b[0].Rows[0].Shed[0] = 0.1
	require.False(t, tick.Same(a, b))
}

// failing is a policy that gives no plan.
type failing struct{}

func (failing) Name() string { return "failing" }
func (failing) Plan(*fleet.View, *fleet.Plan) (*fleet.Plan, error) {
	return nil, errors.New("out of ideas")
}

func newControl(t testing.TB, c *config.Config, st store.Store, planPath string) *Control {
	t.Helper()
	plane := New(Options{Config: c, Store: st, PlanPath: planPath, Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(plane.stop)
	return plane
}

func TestFailedPlanFallsBackAndSaysSo(t *testing.T) {
	c := parse(t, file)
	l := &leader{Control: newControl(t, c, &store.Memory{}, ""), epoch: 1}
	var log bytes.Buffer
	l.log = slog.New(slog.NewTextHandler(&log, nil))
	l.tick(now)
	good := l.State()
	require.Empty(t, good.Trouble)
	working := l.policy
	l.policy = failing{}
	l.tick(now)
	s := l.State()
	require.Equal(t, "out of ideas", s.Trouble)
	require.Equal(t, good.Plan.Row("a", "demo").Arcs[0].Weight, s.Plan.Row("a", "demo").Arcs[0].Weight, "the last plan stays")
	require.Equal(t, good.Plan.Version, s.Plan.Version)
	require.Equal(t, 1.0, testutil.ToFloat64(l.metrics.failures))
	l.tick(now)
	require.Equal(t, 2.0, testutil.ToFloat64(l.metrics.failures))
	require.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), "said once, not at every tick")
	l.policy = working
	l.tick(now)
	require.Empty(t, l.State().Trouble)
	require.Equal(t, 1, strings.Count(log.String(), "the policy plans again"))
}

func TestVersionGrowsOnlyWithChanges(t *testing.T) {
	c := parse(t, file)
	l := &leader{Control: newControl(t, c, &store.Memory{}, ""), epoch: 3}
	for range 3 {
		l.tick(now)
		require.Equal(t, uint64(1), l.State().Plan.Version)
		require.Equal(t, uint64(3), l.State().Plan.Epoch)
	}
	more := parse(t, file+"  - {cluster: a, model: big, rate: 30}\n")
	l.Reload(more)
	l.tick(now)
	require.Equal(t, uint64(2), l.State().Plan.Version)
}

func TestReloadChangesThePolicy(t *testing.T) {
	c := parse(t, file)
	l := &leader{Control: newControl(t, c, &store.Memory{}, ""), epoch: 1}
	l.tick(now)
	require.Equal(t, "optimal", l.State().Plan.Policy)
	other := *c
	other.Policy.Name = "static"
	l.Reload(&other)
	l.tick(now)
	require.Equal(t, "static", l.State().Plan.Policy)
}

func TestPlanSurvivesForTheNextLeader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "plan.json")
	p, err := load(path)
	require.NoError(t, err)
	require.Nil(t, p.Plan)
	l := &leader{Control: newControl(t, parse(t, file), &store.Memory{}, path), epoch: 1}
	l.tick(now)
	p, err = load(path)
	require.NoError(t, err)
	next := &leader{Control: newControl(t, parse(t, file), &store.Memory{}, path), epoch: 2}
	next.last = p.Plan
	next.tick(now)
	require.True(t, tick.Same(l.snapshots, next.snapshots), "a new leader moves nothing that need not move")

	learned := map[string]fleet.Profile{"near": {T0: 1, UMax: 2, Batch: 3, Kappa: 0.9, Spread: 0.1}}
	require.NoError(t, save(path, saved{next.State().Plan, learned, []string{"a"}}))
	p, err = load(path)
	require.NoError(t, err)
	require.Equal(t, learned, p.Learned)
	require.Equal(t, []string{"a"}, p.Heard)
	require.Len(t, p.Engines, len(next.State().Plan.Engines))

	for _, bad := range []string{"{", `{"Rows":[{"Arcs":[{"Engine":7}]}]}`, `{"Rows":[{"Arcs":[{"Engine":-1}]}]}`} {
		require.NoError(t, os.WriteFile(path, []byte(bad), 0o600))
		_, err = load(path)
		require.Error(t, err)
	}
}

// TestControlPlaneEndToEnd runs a control plane with both paths on a real socket.
func TestControlPlaneEndToEnd(t *testing.T) {
	registry := prometheus.NewRegistry()
	c := New(Options{Config: parse(t, file), Store: &store.Memory{Last: 6}, Registry: registry, Log: slog.New(slog.DiscardHandler)})
	server := grpc.NewServer()
	c.Register(server)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(l) })
	wg.Go(func() { _ = c.Run(ctx) })
	defer func() { cancel(); server.Stop(); wg.Wait() }()

	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	report := func(cluster string, rate float64) {
		stream, err := pb.NewSignalsClient(conn).Report(ctx)
		require.NoError(t, err)
		require.NoError(t, stream.Send(&pb.ReportRequest{Cluster: cluster, Instance: cluster, Sequence: 1, Time: timestamppb.Now(),
			Applied: &pb.Applied{Epoch: 6, Version: 2, Refused: "not good"},
			Demands: []*pb.Demand{{Model: "demo", Priority: 1, Rate: rate, Window: 10}}}))
		_, err = stream.CloseAndRecv()
		require.NoError(t, err)
	}
	report("a", 20)
	report("c", 10)

	applied := make(chan *fleet.Snapshot, 1000)
	s := &weights.Subscriber{Cluster: "a", Instance: "x", Conns: []grpc.ClientConnInterface{conn}, Log: slog.New(slog.DiscardHandler),
		Apply: func(s *fleet.Snapshot) error { applied <- s; return nil }}
	wg.Go(func() { s.Run(ctx) })
	select {
	case got := <-applied:
		require.Equal(t, uint64(7), got.Epoch)
		require.Equal(t, "demo", got.Rows[1].Model)
		require.Equal(t, 1.0, got.Rows[1].Targets[1].Weight, "20 requests/s stay near")
	case <-time.After(10 * time.Second):
		t.Fatal("no snapshot came")
	}
	planes := c.DataPlanes(time.Now())
	require.Len(t, planes, 2)
	require.Equal(t, "not good", planes[0].Refused)
	require.Equal(t, uint64(2), planes[0].Version)
	require.Eventually(t, func() bool { return c.State() != nil }, 10*time.Second, time.Millisecond, "it is published first")
	n, err := testutil.GatherAndCount(registry)
	require.NoError(t, err)
	require.Greater(t, n, 10)
}

// TestStoreThatLostItsDataIsFenced: data planes that hold a higher epoch would
// refuse every plan of a leader that began anew.
func TestStoreThatLostItsDataIsFenced(t *testing.T) {
	l := &leader{Control: newControl(t, parse(t, file), &store.Memory{Last: 1}, ""), epoch: 1, version: 5}
	require.True(t, l.fence(t.Context()))
	require.Equal(t, uint64(1), l.epoch, "nobody reports")
	l.reports.add(&pb.ReportRequest{Cluster: "a", Instance: "i", Sequence: 1, Applied: &pb.Applied{Epoch: 1, Version: 9}}, time.Now())
	require.True(t, l.fence(t.Context()))
	require.Equal(t, uint64(1), l.epoch, "our own epoch is no other's")
	l.reports.add(&pb.ReportRequest{Cluster: "a", Instance: "i", Sequence: 2, Applied: &pb.Applied{Epoch: 9}}, time.Now())
	require.True(t, l.fence(t.Context()))
	require.Equal(t, uint64(10), l.epoch)
	require.Zero(t, l.version)
	l.store = &troubled{asked: 1}
	l.reports.add(&pb.ReportRequest{Cluster: "a", Instance: "i", Sequence: 3, Applied: &pb.Applied{Epoch: 90}}, time.Now())
	require.False(t, l.fence(t.Context()), "no plan of it would be taken")
	require.Equal(t, uint64(10), l.epoch)
}

// TestARestartedEngineIsNotFlooded: the plan after a restart gives the engine no
// more than its ramp.
func TestARestartedEngineIsNotFlooded(t *testing.T) {
	c := parse(t, file)
	view := tick.View(c, nil, now)
	view.Engines[0].Ramp = 0.1 // near serves 100
	view.Demands = []fleet.Demand{{Cluster: "a", Model: "demo", Rate: 50, Priority: fleet.Standard}}
	plan, err := tick.Policy(c.Policy, optimal.Options{}).Plan(view, nil)
	require.NoError(t, err)
	for _, e := range plan.Engines {
		if e.Name == "near" {
			require.LessOrEqual(t, e.Load, 10+1e-6)
		}
	}
}
