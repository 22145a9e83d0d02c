package control

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/signals"
	"github.com/wardrop-lb/wardrop/store"
)

const (
	benchEngines    = 10_000
	benchCollectors = 10
	// serveForBench makes the test binary a control plane, and nothing else.
	serveForBench = "WARDROP_BENCH_CONTROL"
)

// benchConfig is ten regions with a thousand engines each, and a cluster in the first.
func benchConfig(tb testing.TB) *config.Config {
	var b strings.Builder
	b.WriteString("clusters:\n  - {name: c, region: r0, distances: {")
	for i := range benchCollectors {
		fmt.Fprintf(&b, "r%d: %dms, ", i, 1+10*i)
	}
	b.WriteString("}}\nengines:\n")
	for i := range benchEngines {
		fmt.Fprintf(&b, "  - {name: e%d, region: r%d, url: \"http://127.0.0.1:%d\", kind: vllm, models: [m]}\n", i, i%benchCollectors, 10_000+i)
	}
	b.WriteString("demand:\n  - {cluster: c, model: m, rate: 50000}\n")
	c, err := config.Parse("bench.yaml", []byte(b.String()))
	require.NoError(tb, err)
	return c
}

// TestServeForBench is the benchmark's control plane; it ends with its input. For every line
// it prints its CPU time in microseconds and its resident memory in KiB.
func TestServeForBench(t *testing.T) {
	if os.Getenv(serveForBench) == "" {
		t.Skip("a process of BenchmarkSignalPath")
	}
	c := New(Options{Config: benchConfig(t), Store: &store.Memory{}, Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	server := grpc.NewServer()
	c.Register(server)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = server.Serve(l) }()
	if os.Getenv(serveForBench) == "plan" {
		go func() { _ = c.Run(ctx) }()
	}
	fmt.Printf("listening %s\n", l.Addr())
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var u syscall.Rusage
		require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		fresh := 0
		for _, p := range c.reports.live(time.Now()) {
			for _, r := range p.Readings {
				if time.Since(r.Time.AsTime()) < 3*time.Second {
					fresh++
				}
			}
		}
		b, _ := os.ReadFile("/proc/self/status")
		_, rest, _ := strings.Cut(string(b), "VmRSS:")
		rss := 0
		_, _ = fmt.Sscan(rest, &rss)
		fmt.Printf("%d %d %d\n", time.Duration(u.Utime.Nano()+u.Stime.Nano()).Microseconds(), rss, fresh)
	}
	server.Stop()
	c.stop()
}

// BenchmarkSignalPath has ten collectors report ten thousand engines, each read once a second,
// over sockets to a control plane in a process of its own, with and without plans being made of
// it every two seconds.
func BenchmarkSignalPath(b *testing.B) {
	for _, mode := range []string{"view", "plan"} {
		b.Run(mode, func(b *testing.B) {
			child := exec.Command(os.Args[0], "-test.run=^TestServeForBench$")
			child.Env = append(os.Environ(), serveForBench+"="+mode)
			child.Stderr = os.Stderr
			in, err := child.StdinPipe()
			require.NoError(b, err)
			out, err := child.StdoutPipe()
			require.NoError(b, err)
			require.NoError(b, child.Start())
			defer func() { _ = in.Close(); _ = child.Wait() }()
			lines := bufio.NewScanner(out)
			require.True(b, lines.Scan())
			address := strings.TrimPrefix(lines.Text(), "listening ")
			conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
			require.NoError(b, err)
			defer func() { _ = conn.Close() }()
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			for i := range benchCollectors {
				build, all := benchReadings(i)
				r := &signals.Reporter{Conns: []grpc.ClientConnInterface{conn}, Interval: 500 * time.Millisecond, Build: build, Readings: all, Log: slog.New(slog.DiscardHandler)}
				go r.Run(ctx)
			}
			ask := func() (cpu time.Duration, kib, fresh int) {
				_, err := io.WriteString(in, "\n")
				require.NoError(b, err)
				require.True(b, lines.Scan())
				var micros int64
				_, err = fmt.Sscan(lines.Text(), &micros, &kib, &fresh)
				require.NoError(b, err)
				return time.Duration(micros) * time.Microsecond, kib, fresh
			}
			time.Sleep(5 * time.Second)
			before, _, _ := ask()
			start := time.Now()
			b.ResetTimer()
			for range b.N {
				time.Sleep(10 * time.Second)
			}
			b.StopTimer()
			after, kib, fresh := ask()
			require.Equal(b, benchEngines, fresh, "every engine's newest reading is in the view")
			b.ReportMetric(100*(after-before).Seconds()/time.Since(start).Seconds(), "%core")
			b.ReportMetric(float64(kib)/1024, "MiB")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// benchReadings makes a collector's reports: half of its engines are new in each.
func benchReadings(collector int) (build func(time.Time) *pb.ReportRequest, all func() []*pb.Reading) {
	random := rand.New(rand.NewPCG(1, uint64(collector)))
	sequence := uint64(0)
	f := func(x float64) *float64 { return &x }
	readings := func(wanted func(i int) bool) (out []*pb.Reading) {
		now := timestamppb.Now()
		for i := collector; i < benchEngines; i += benchCollectors {
			if !wanted(i / benchCollectors) {
				continue
			}
			n := float64(random.IntN(100))
			out = append(out, &pb.Reading{
				Engine: fmt.Sprintf("e%d", i), Incarnation: 1_700_000_000_000_000, Sequence: sequence, Time: now, Good: now, Reachable: true, Kind: "vllm",
				Running: f(n), Waiting: f(0), KvUsage: f(n / 128), Slots: f(256), KvTokens: f(450_000),
				GenerationTokens: f(float64(sequence) * 5e4), PromptTokens: f(float64(sequence) * 2e5), Preemptions: f(0),
				PrefixHits: f(float64(sequence) * 1e5), PrefixQueries: f(float64(sequence) * 2e5),
			})
		}
		return out
	}
	build = func(now time.Time) *pb.ReportRequest {
		sequence++
		return &pb.ReportRequest{
			Instance: fmt.Sprintf("i%d", collector), Collects: fmt.Sprintf("r%d", collector), Sequence: sequence,
			Time: timestamppb.New(now), Applied: &pb.Applied{}, Readings: readings(func(i int) bool { return uint64(i)%2 == sequence%2 }),
		}
	}
	return build, func() []*pb.Reading { return readings(func(int) bool { return true }) }
}
