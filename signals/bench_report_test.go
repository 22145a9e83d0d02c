package signals

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
)

// sinkForBench makes the test binary an upstream that takes reports, and nothing else.
const sinkForBench = "WARDROP_BENCH_SINK"

func TestSinkForBench(t *testing.T) {
	if os.Getenv(sinkForBench) == "" {
		t.Skip("a process of BenchmarkReport")
	}
	s := newSink(t, "127.0.0.1:0", nil)
	go func() {
		for range s.got {
		}
	}()
	fmt.Printf("listening %s\n", s.addr)
	_, _ = io.Copy(io.Discard, os.Stdin)
	s.stop()
}

// BenchmarkReport reports 10,000 engines, of which each report says half anew, to one upstream
// and to three in processes of their own. What counts is the reporter's CPU time.
func BenchmarkReport(b *testing.B) {
	one := 0.0
	for _, n := range []int{1, 3} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := &Reporter{Interval: 20 * time.Millisecond, Log: slog.New(slog.DiscardHandler)}
			for range n {
				conn, err := grpc.NewClient(sinkProcess(b), grpc.WithTransportCredentials(insecure.NewCredentials()))
				require.NoError(b, err)
				defer func() { _ = conn.Close() }()
				r.Conns = append(r.Conns, conn)
			}
			count, done := 0, make(chan struct{})
			r.Build = func(now time.Time) *pb.ReportRequest {
				if count++; count == b.N {
					close(done)
				}
				return &pb.ReportRequest{Instance: "i", Sequence: uint64(count), Time: timestamppb.New(now), Readings: benchReadings(count, 5000)}
			}
			r.Readings = func() []*pb.Reading { return benchReadings(0, 10_000) }
			before := cpu(b)
			ctx, cancel := context.WithCancel(b.Context())
			var wg sync.WaitGroup
			wg.Go(func() { r.Run(ctx) })
			<-done
			spent := cpu(b) - before
			cancel()
			wg.Wait()
			each := spent.Seconds() / float64(b.N)
			if n == 1 {
				one = each
			}
			b.ReportMetric(each*1e3, "cpu-ms/report")
			b.ReportMetric(each/one, "of-one-upstream")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func sinkProcess(b *testing.B) (addr string) {
	b.Helper()
	child := exec.Command(os.Args[0], "-test.run=^TestSinkForBench$")
	child.Env = append(os.Environ(), sinkForBench+"=1")
	in, err := child.StdinPipe()
	require.NoError(b, err)
	out, err := child.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, child.Start())
	b.Cleanup(func() { _ = in.Close(); _ = child.Wait() })
	lines := bufio.NewScanner(out)
	require.True(b, lines.Scan())
	return strings.TrimPrefix(lines.Text(), "listening ")
}

func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func benchReadings(seed, n int) []*pb.Reading {
	f := func(x int) *float64 { y := float64(x); return &y }
	at := timestamppb.Now()
	out := make([]*pb.Reading, n)
	for i := range out {
		k := seed*n + i
		out[i] = &pb.Reading{
			Engine: fmt.Sprintf("engine-%d", i), Incarnation: 1_700_000_000_000_000, Sequence: uint64(k), Time: at, Good: at, Reachable: true, Kind: "vllm",
			Running: f(k % 100), Waiting: f(0), KvUsage: f(k % 128), Slots: f(256), KvTokens: f(450_000),
			GenerationTokens: f(k * 50), PromptTokens: f(k * 200), Preemptions: f(0), PrefixHits: f(k * 100), PrefixQueries: f(k * 200),
		}
	}
	return out
}
