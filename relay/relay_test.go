package relay

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/signals"
	"github.com/wardrop-lb/wardrop/weights"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

// plan is a snapshot of one row split over two engines.
func plan(cluster string, epoch, version uint64, a float64) *fleet.Snapshot {
	return &fleet.Snapshot{
		Epoch: epoch, Version: version, Cluster: cluster, Time: time.Unix(int64(1000*epoch+version), 0).UTC(), GoodFor: time.Minute, Replicas: 1, Planes: []string{"p"},
		Engines: []fleet.SnapshotEngine{{Name: "a", URL: "http://127.0.0.1:1", Capacity: 1}, {Name: "b", URL: "http://127.0.0.1:2", Capacity: 1}},
		Rows: []fleet.SnapshotRow{{Model: "m", Targets: []fleet.Target{
			{Engine: 0, Weight: a, Predicted: 1}, {Engine: 1, Weight: 1 - a, Predicted: 1},
		}}},
	}
}

// node is a server of both paths on a real socket.
type node struct {
	addr   string
	server *grpc.Server
	done   chan struct{}
}

func serve(t testing.TB, addr string, register func(grpc.ServiceRegistrar)) *node {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	n := &node{addr: l.Addr().String(), server: grpc.NewServer(), done: make(chan struct{})}
	register(n.server)
	go func() { defer close(n.done); _ = n.server.Serve(l) }()
	return n
}

func (n *node) stop() { n.server.Stop(); <-n.done }

// leader is a member of a control plane: it publishes, and keeps what is reported.
type leader struct {
	*node
	*weights.Publisher
	reports chan *pb.ReportRequest
	cancel  context.CancelFunc
}

func lead(t testing.TB, addr string) *leader {
	ctx, cancel := context.WithCancel(context.Background())
	l := &leader{Publisher: weights.NewPublisher(ctx), reports: make(chan *pb.ReportRequest, 1000), cancel: cancel}
	l.node = serve(t, addr, func(r grpc.ServiceRegistrar) {
		l.Register(r)
		pb.RegisterSignalsServer(r, &signals.Receiver{Handle: func(r *pb.ReportRequest) { l.reports <- r }, Log: quiet})
	})
	return l
}

func (l *leader) stop() { l.cancel(); l.node.stop() }

func dial(t testing.TB, addrs ...string) (conns []grpc.ClientConnInterface) {
	t.Helper()
	for _, addr := range addrs {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		conns = append(conns, conn)
	}
	return conns
}

// started is a relay that runs on a real socket.
type started struct {
	*Relay
	*node
	stop func()
}

func relays(t testing.TB, addr string, o Options, upstreams ...string) *started {
	t.Helper()
	o.Upstreams, o.Instance, o.Reports, o.Log = dial(t, upstreams...), "relay", true, quiet
	r, err := New(o)
	require.NoError(t, err)
	s := &started{Relay: r, node: serve(t, addr, r.Register)}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { r.Run(ctx) })
	s.stop = sync.OnceFunc(func() { cancel(); wg.Wait(); s.node.stop() })
	t.Cleanup(s.stop)
	return s
}

// plane is a data plane's end of the weight path.
type plane struct {
	t       testing.TB
	applied chan *fleet.Snapshot
	*weights.Subscriber
}

func follow(t testing.TB, cluster string, addrs ...string) *plane {
	t.Helper()
	p := &plane{t: t, applied: make(chan *fleet.Snapshot, 1000)}
	p.Subscriber = &weights.Subscriber{Cluster: cluster, Instance: "p", Conns: dial(t, addrs...), Log: quiet,
		Apply: func(s *fleet.Snapshot) error { p.applied <- s; return nil }}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { p.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return p
}

func (p *plane) gets(want *fleet.Snapshot) {
	p.t.Helper()
	select {
	case got := <-p.applied:
		require.Equal(p.t, want, got)
	case <-time.After(10 * time.Second):
		p.t.Fatal("no snapshot was applied")
	}
}

func publish(t testing.TB, to *leader, s ...*fleet.Snapshot) {
	t.Helper()
	require.NoError(t, to.Publish(s))
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 10*time.Second, 2*time.Millisecond, what)
}

// TestRelaysNest: what the leader publishes comes through two relays as it is, of all clusters.
func TestRelaysNest(t *testing.T) {
	l := lead(t, "127.0.0.1:0")
	defer l.stop()
	near := relays(t, "127.0.0.1:0", Options{}, l.addr)
	far := relays(t, "127.0.0.1:0", Options{}, near.addr)
	c, d := follow(t, "c", far.addr), follow(t, "d", far.addr)
	for v, a := range []float64{0.5, 0.25, 0.125} {
		want := []*fleet.Snapshot{plan("c", 3, uint64(v+1), a), plan("d", 3, uint64(v+1), 1-a)}
		publish(t, l, want...)
		c.gets(want[0])
		d.gets(want[1])
	}
	eventually(t, "the relay knows its clients", func() bool {
		s := far.Status(time.Now())
		return len(s.Clients) == 2 && s.Clients[1].Cluster == "d" && s.Clients[1].Version == 3 && s.Clients[1].Refused == ""
	})
	s := near.Status(time.Now())
	require.Equal(t, []Upstream{{Name: l.addr, Connected: true}}, s.Upstreams)
	require.Len(t, s.Clusters, 2)
	require.Equal(t, uint64(3), s.Clusters[0].Version)
	require.Equal(t, "relay", s.Clients[0].Instance)
}

// TestTheLastIsServedOn, to who comes back and to who is new, while all upstreams are away, and
// by a relay that was restarted meanwhile.
func TestTheLastIsServedOn(t *testing.T) {
	l := lead(t, "127.0.0.1:0")
	dir := t.TempDir()
	r := relays(t, "127.0.0.1:0", Options{Path: dir}, l.addr)
	want := plan("c", 3, 7, 0.5)
	publish(t, l, plan("c", 3, 6, 0.4))
	publish(t, l, want)
	eventually(t, "it is there", func() bool { s := r.Status(time.Now()); return len(s.Clusters) == 1 && s.Clusters[0].Version == 7 })
	l.stop()
	follow(t, "c", r.addr).gets(want)
	r.stop()
	r = relays(t, r.addr, Options{Path: dir}, l.addr)
	require.True(t, r.Ready())
	p := follow(t, "c", r.addr)
	p.gets(want)
	l = lead(t, l.addr)
	defer l.stop()
	publish(t, l, plan("c", 4, 1, 0.25))
	p.gets(plan("c", 4, 1, 0.25))
}

// TestADeposedLeaderIsNotRelayed, nor served by a relay in the place of what is in force.
func TestADeposedLeaderIsNotRelayed(t *testing.T) {
	old, current := lead(t, "127.0.0.1:0"), lead(t, "127.0.0.1:0")
	defer old.stop()
	defer current.stop()
	r := relays(t, "127.0.0.1:0", Options{}, old.addr, current.addr)
	p := follow(t, "c", r.addr)
	publish(t, old, plan("c", 4, 9, 0.5))
	p.gets(plan("c", 4, 9, 0.5))
	publish(t, current, plan("c", 5, 1, 0.4))
	p.gets(plan("c", 5, 1, 0.4))
	publish(t, old, plan("c", 4, 10, 0.1))
	eventually(t, "the deposed leader is told", func() bool {
		s := old.Subscriptions()
		return len(s) == 1 && s[0].Refused == "epoch 4 version 10 is older than epoch 5 version 1 in force"
	})
	publish(t, current, plan("c", 5, 2, 0.3))
	p.gets(plan("c", 5, 2, 0.3))
	require.Empty(t, r.Status(time.Now()).Clusters[0].Refused)
}

// TestRelaysInACircle do no harm: each snapshot goes round once.
func TestRelaysInACircle(t *testing.T) {
	l := lead(t, "127.0.0.1:0")
	defer l.stop()
	reserve, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	other := reserve.Addr().String()
	require.NoError(t, reserve.Close())
	one := relays(t, "127.0.0.1:0", Options{}, l.addr, other)
	two := relays(t, other, Options{}, one.addr)
	p := follow(t, "c", one.addr, two.addr)
	for v := range uint64(20) {
		publish(t, l, plan("c", 1, v+1, 0.5))
		p.gets(plan("c", 1, v+1, 0.5))
	}
	require.Empty(t, p.applied)
	for _, r := range []*started{one, two} {
		eventually(t, "it stands still", func() bool { return r.Status(time.Now()).Clusters[0].Version == 20 })
	}
}

// TestReportsGoUp, to every upstream, whole at first, with the reason of a refusal.
func TestReportsGoUp(t *testing.T) {
	a, b := lead(t, "127.0.0.1:0"), lead(t, "127.0.0.1:0")
	defer func() { a.stop() }()
	defer b.stop()
	registry := prometheus.NewRegistry()
	r := relays(t, "127.0.0.1:0", Options{Registry: registry}, a.addr, b.addr)
	sequence := uint64(0)
	reporter := &signals.Reporter{Conns: dial(t, r.addr), Interval: time.Millisecond, Log: quiet,
		Build: func(now time.Time) *pb.ReportRequest {
			sequence++
			return &pb.ReportRequest{Cluster: "c", Instance: "p", Sequence: sequence, Time: timestamppb.New(now), Applied: &pb.Applied{Refused: "not today"}}
		},
		Readings: func() []*pb.Reading { return []*pb.Reading{{Engine: "e", Time: timestamppb.Now()}} },
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { reporter.Run(ctx) })
	first := func(l *leader) *pb.ReportRequest {
		select {
		case r := <-l.reports:
			return r
		case <-time.After(10 * time.Second):
			t.Fatal("no report came")
			return nil
		}
	}
	for _, l := range []*leader{a, b} {
		r := first(l)
		require.False(t, r.Partial)
		require.Equal(t, "not today", r.Applied.Refused)
	}
	a.stop()
	a = lead(t, a.addr)
	again := first(a)
	require.False(t, again.Partial, "the stream is new")
	require.Len(t, again.Readings, 1)
	n, err := testutil.GatherAndCount(registry)
	require.NoError(t, err)
	require.GreaterOrEqual(t, n, 5)
	require.Equal(t, 1, r.Status(time.Now()).Reporting)
}

// TestStockClientsAreServed what a control plane would serve them.
func TestStockClientsAreServed(t *testing.T) {
	l := lead(t, "127.0.0.1:0")
	defer l.stop()
	r := relays(t, "127.0.0.1:0", Options{}, l.addr)
	publish(t, l, plan("c", 1, 1, 0.75))
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(dial(t, r.addr)[0]).DeltaAggregatedResources(t.Context())
	require.NoError(t, err)
	require.NoError(t, stream.Send(&discovery.DeltaDiscoveryRequest{
		Node: &core.Node{Id: "envoy", Cluster: "c"}, TypeUrl: resourcev3.EndpointType, ResourceNamesSubscribe: []string{"c/m"},
	}))
	got, err := stream.Recv()
	require.NoError(t, err)
	var load endpoint.ClusterLoadAssignment
	require.NoError(t, got.Resources[0].Resource.UnmarshalTo(&load))
	require.Equal(t, uint32(750_000), load.Endpoints[0].LoadBalancingWeight.Value)
	eventually(t, "it is a client", func() bool {
		c := r.Status(time.Now()).Clients
		return len(c) == 1 && c[0].Wire == 0 && c[0].Instance == "envoy"
	})
}

// TestAStandbyServesTheLeaders, through a publisher of its own, until it leads itself: what
// comes from upstream afterwards is too late.
func TestAStandbyServesTheLeaders(t *testing.T) {
	l, own := lead(t, "127.0.0.1:0"), lead(t, "127.0.0.1:0")
	defer l.stop()
	defer own.stop()
	r, err := New(Options{Upstreams: dial(t, l.addr), Publisher: own.Publisher, Instance: "standby", Log: quiet})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { r.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	p := follow(t, "c", own.addr)
	publish(t, l, plan("c", 4, 1, 0.5))
	p.gets(plan("c", 4, 1, 0.5))
	publish(t, own, plan("c", 5, 1, 0.4))
	p.gets(plan("c", 5, 1, 0.4))
	publish(t, l, plan("c", 4, 2, 0.1))
	eventually(t, "it came, and is not served", func() bool { return r.Status(time.Now()).Clusters[0].Version == 2 })
	publish(t, own, plan("c", 5, 2, 0.3))
	p.gets(plan("c", 5, 2, 0.3))
}
