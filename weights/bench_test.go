package weights

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/wardrop-lb/wardrop/api"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/testengine"
)

// fleetOf is the snapshots of some clusters with rows of a thousand engines over one table.
func fleetOf(clusters, models int) []*fleet.Snapshot {
	names := make([]string, models)
	for i := range names {
		names[i] = fmt.Sprintf("model-%02d", i)
	}
	out := make([]*fleet.Snapshot, clusters)
	for i := range out {
		s := *wide(1, 1000, names...)["c"]
		if s.Cluster = fmt.Sprintf("cluster-%02d", i); i > 0 {
			s.Engines = out[0].Engines
		}
		out[i] = &s
	}
	return out
}

// shift is the next plan: a hundredth of the weights of each row is another, with what is
// predicted of them.
func shift(random *rand.Rand, snapshots []*fleet.Snapshot) []*fleet.Snapshot {
	out := make([]*fleet.Snapshot, len(snapshots))
	for i, s := range snapshots {
		next := *s
		next.Version, next.Time = s.Version+1, s.Time.Add(2*time.Second)
		next.Rows = slices.Clone(s.Rows)
		for k := range next.Rows {
			targets := slices.Clone(next.Rows[k].Targets)
			next.Rows[k].Targets = targets
			for range max(1, len(targets)/200) { // pairs
				i := random.IntN(len(targets))
				a, b := &targets[i], &targets[(i+1+random.IntN(len(targets)-1))%len(targets)]
				part := a.Weight * random.Float64()
				a.Weight, b.Weight = a.Weight-part, b.Weight+part
				a.Predicted, b.Predicted = float64(float32(a.Predicted*0.98)), float64(float32(b.Predicted*1.02))
			}
		}
		out[i] = &next
	}
	return out
}

// planes are data planes on real sockets, each with a connection of its own.
type planes struct {
	applied chan arrival
	stop    func()
}

type arrival struct {
	version uint64
	at      time.Time
}

// follow starts data planes, of the clusters in turn.
func follow(tb testing.TB, addr string, n int, clusters []*fleet.Snapshot) *planes {
	return followAs(tb, api.Wire, addr, n, clusters)
}

func followAs(tb testing.TB, wire int, addr string, n int, clusters []*fleet.Snapshot) *planes {
	p := &planes{applied: make(chan arrival, 100*n)}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var conns []*grpc.ClientConn
	for i := range n {
		conn, err := grpc.NewClient(addr, append(DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		require.NoError(tb, err)
		conns = append(conns, conn)
		s := &Subscriber{Cluster: clusters[i%len(clusters)].Cluster, Instance: fmt.Sprint(i), speaks: wire, Conns: []grpc.ClientConnInterface{conn}, Log: slog.New(slog.DiscardHandler),
			Apply: func(s *fleet.Snapshot) error { p.applied <- arrival{s.Version, time.Now()}; return nil }}
		wg.Go(func() { s.Run(ctx) })
	}
	p.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		for _, c := range conns {
			_ = c.Close()
		}
	})
	return p
}

// arrive waits until n data planes have a version and gives when each had.
func (p *planes) arrive(tb testing.TB, n int, version uint64) (at []time.Time) {
	tb.Helper()
	patience := time.After(time.Minute)
	for len(at) < n {
		select {
		case a := <-p.applied:
			if a.version == version {
				at = append(at, a.at)
			}
		case <-patience:
			tb.Fatalf("only %d of %d data planes have version %d", len(at), n, version)
		}
	}
	return at
}

// served is a publisher on a real socket.
type served struct {
	*Publisher
	addr string
	stop func()
}

func serve(tb testing.TB, addr string, options ...grpc.ServerOption) *served {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &served{Publisher: NewPublisher(ctx)}
	server := grpc.NewServer(append(ServerOptions(), options...)...)
	s.Register(server)
	l, err := net.Listen("tcp", addr)
	require.NoError(tb, err)
	s.addr = l.Addr().String()
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	s.stop = sync.OnceFunc(func() { cancel(); server.Stop(); <-done })
	return s
}

// cpu is what the process has spent.
func cpu(tb testing.TB) time.Duration {
	var u syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func quantile(d []time.Duration, q float64) time.Duration {
	slices.Sort(d)
	return d[min(len(d)-1, int(q*float64(len(d))))]
}

// BenchmarkPublishTo100 publishes plans of which a hundredth of the weights is new to a hundred
// data planes in the same process, and measures until each has applied them: snapshots are
// received, put together and validated, and handed over. Wire 1 sends changed rows whole.
func BenchmarkPublishTo100(b *testing.B) {
	const n = 100
	for _, c := range []struct{ clusters, models, wire int }{{1, 1, 2}, {1, 20, 2}, {1, 20, 1}, {100, 1, 2}, {100, 4, 2}, {100, 4, 1}, {100, 20, 2}} {
		b.Run(fmt.Sprintf("clusters=%d,models=%d,wire=%d", c.clusters, c.models, c.wire), func(b *testing.B) {
			s := serve(b, "127.0.0.1:0")
			defer s.stop()
			snapshots := fleetOf(c.clusters, c.models)
			require.NoError(b, s.Publish(snapshots))
			p := followAs(b, c.wire, s.addr, n, snapshots)
			defer p.stop()
			p.arrive(b, n, 1)
			random := rand.New(rand.NewPCG(3, 4))
			var took []time.Duration
			spent := time.Duration(0)
			b.ResetTimer()
			for range b.N {
				snapshots = shift(random, snapshots)
				before := cpu(b)
				begin := time.Now()
				require.NoError(b, s.Publish(snapshots))
				for _, at := range p.arrive(b, n, snapshots[0].Version) {
					took = append(took, at.Sub(begin))
				}
				spent += cpu(b) - before
			}
			b.ReportMetric(spent.Seconds()*1e3/float64(b.N), "cpu-ms")
			b.ReportMetric(quantile(took, 0.5).Seconds()*1e3, "p50-ms")
			b.ReportMetric(quantile(took, 0.99).Seconds()*1e3, "p99-ms")
			b.ReportMetric(quantile(took, 1).Seconds()*1e3, "max-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkMemory has a hundred data planes follow a cluster whose snapshot is a megabyte, through
// plans that change a hundredth of the weights, and then a hundred more that read nothing. The
// publisher is a process of its own, and what counts is its memory.
func BenchmarkMemory(b *testing.B) {
	child := publisherChild(b, "127.0.0.1:0", 1, megabyte)
	defer child.end(false)
	alone := child.publish(0)
	const n = 100
	p := follow(b, child.addr, n, []*fleet.Snapshot{{Cluster: "cluster-00"}})
	defer p.stop()
	p.arrive(b, n, 1)
	first := child.publish(0)
	for v := range b.N {
		child.publish(1)
		p.arrive(b, n, uint64(v+2))
	}
	reading := child.publish(0)
	for range n {
		silent(b, child.addr)
	}
	eventually(b, "each was sent something", func() bool { return child.publish(0).messages == reading.messages+n })
	child.publish(100)
	all := child.publish(0)
	b.ReportMetric(float64(first.bytes)/n/1e6, "MB-each")
	b.ReportMetric(alone.resident, "alone-MiB")
	b.ReportMetric(reading.resident, "reading-MiB")
	b.ReportMetric(all.resident, "reading-and-silent-MiB")
	b.ReportMetric(all.heap, "heap-MiB")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkReconnect1000 kills a publisher that a thousand data planes follow, starts the next
// leader at the same address, at once or after a while, and measures until all have its plan,
// from when it listens. A hundredth of the weights is new in it.
func BenchmarkReconnect1000(b *testing.B) {
	const n, models = 1000, 4
	for _, away := range []time.Duration{0, 10 * time.Second} {
		b.Run(fmt.Sprintf("away=%s", away), func(b *testing.B) {
			child := publisherChild(b, "127.0.0.1:0", 1, models)
			defer func() { child.end(false) }()
			p := follow(b, child.addr, n, []*fleet.Snapshot{{Cluster: "cluster-00"}})
			defer p.stop()
			p.arrive(b, n, 1)
			var slowest time.Duration
			most := 0.0
			b.ResetTimer()
			for i := range b.N {
				child.end(true)
				time.Sleep(away)
				child = publisherChild(b, child.addr, i+2, models)
				begin := time.Now()
				child.publish(1)
				for _, at := range p.arrive(b, n, 2) {
					slowest = max(slowest, at.Sub(begin))
				}
				most = max(most, child.publish(0).resident)
			}
			b.ReportMetric(slowest.Seconds(), "slowest-s")
			b.ReportMetric(most, "publisher-MiB")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkFar is a snapshot of a megabyte that comes from a publisher 150 ms away, in round
// trips of that length, with the windows of this package and with gRPC's own estimate. The
// connection is there already; the distance delays and does not throttle.
func BenchmarkFar(b *testing.B) {
	const distance = 150 * time.Millisecond
	for _, c := range []struct {
		name    string
		options []grpc.DialOption
	}{{"windows=16MiB", DialOptions()}, {"windows=default", nil}, {"windows=64KiB", []grpc.DialOption{
		grpc.WithInitialWindowSize(1 << 16), grpc.WithInitialConnWindowSize(1 << 16),
	}}} {
		b.Run(c.name, func(b *testing.B) {
			s := serve(b, "127.0.0.1:0")
			defer s.stop()
			require.NoError(b, s.Publish(fleetOf(1, megabyte)))
			far := testengine.Dialer(func(string) time.Duration { return distance })
			var took time.Duration
			for range b.N {
				options := append(slices.Clone(c.options), grpc.WithTransportCredentials(insecure.NewCredentials()),
					grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(largest)),
					grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return far(ctx, "tcp", addr) }))
				conn, err := grpc.NewClient(s.addr, options...)
				require.NoError(b, err)
				ready(b, conn)
				applied := make(chan struct{}, 1)
				x := &Subscriber{Cluster: "cluster-00", Instance: "far", Conns: []grpc.ClientConnInterface{conn}, Log: slog.New(slog.DiscardHandler),
					Apply: func(*fleet.Snapshot) error { applied <- struct{}{}; return nil }}
				ctx, cancel := context.WithCancel(b.Context())
				begin := time.Now()
				var wg sync.WaitGroup
				wg.Go(func() { x.Run(ctx) })
				<-applied
				took += time.Since(begin)
				cancel()
				wg.Wait()
				_ = conn.Close()
			}
			b.ReportMetric(took.Seconds()/float64(b.N)/distance.Seconds(), "round-trips")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// ready waits until a connection is there.
func ready(b *testing.B, conn *grpc.ClientConn) {
	conn.Connect()
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		require.True(b, conn.WaitForStateChange(b.Context(), state))
	}
}
