package signals

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
)

// sink is an upstream of the signal path on a real socket.
type sink struct {
	addr   string
	server *grpc.Server
	done   chan struct{}
	got    chan *pb.ReportRequest
	hold   chan struct{} // while it is not nil, a report is handled when this gives something
}

func newSink(t testing.TB, addr string, hold chan struct{}) *sink {
	t.Helper()
	s := &sink{done: make(chan struct{}), got: make(chan *pb.ReportRequest, 10_000), hold: hold}
	l, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	// Windows are small, so that one who does not read is soon noticed.
	s.server = grpc.NewServer(grpc.InitialWindowSize(65536), grpc.InitialConnWindowSize(65536))
	pb.RegisterSignalsServer(s.server, &Receiver{Handle: func(r *pb.ReportRequest) {
		if s.hold != nil {
			<-s.hold
		}
		s.got <- r
	}})
	s.addr = l.Addr().String()
	go func() { defer close(s.done); _ = s.server.Serve(l) }()
	return s
}

func (s *sink) stop() { s.server.Stop(); <-s.done }

func (s *sink) next(t testing.TB) *pb.ReportRequest {
	t.Helper()
	select {
	case r := <-s.got:
		return r
	case <-time.After(10 * time.Second):
		t.Fatal("no report came")
		return nil
	}
}

// source makes reports: reading i of n is new in report i, i+n, ...; padding makes them large.
type source struct {
	built, whole atomic.Int64
	n            int
	padding      string
}

func (s *source) reading(i int64) *pb.Reading {
	return &pb.Reading{Engine: fmt.Sprintf("e%d", i%int64(s.n)), Sequence: uint64(i), Error: s.padding}
}

func (s *source) build(now time.Time) *pb.ReportRequest {
	i := s.built.Add(1)
	return &pb.ReportRequest{
		Instance: "i", Sequence: uint64(i), Time: timestamppb.New(now), Demands: []*pb.Demand{{Model: "m", Count: uint64(i)}},
		Readings: []*pb.Reading{s.reading(i)},
	}
}

func (s *source) all() (out []*pb.Reading) {
	s.whole.Add(1)
	for i := max(1, s.built.Load()-int64(s.n)+1); i <= s.built.Load(); i++ {
		out = append(out, s.reading(i))
	}
	return out
}

// run reports to sinks until the test ends.
func (s *source) run(t testing.TB, interval time.Duration, sinks ...*sink) {
	t.Helper()
	r := &Reporter{Interval: interval, Build: s.build, Readings: s.all, Log: slog.New(slog.DiscardHandler)}
	for _, x := range sinks {
		conn, err := grpc.NewClient(x.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		r.Conns = append(r.Conns, conn)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { r.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// view is what the reports of one stream come to.
type view map[string]uint64

func (v view) add(t testing.TB, r *pb.ReportRequest) {
	if !r.Partial {
		clear(v)
	}
	for _, x := range r.Readings {
		require.GreaterOrEqual(t, x.Sequence, v[x.Engine])
		v[x.Engine] = x.Sequence
	}
}

// TestEveryUpstreamHearsAll: each stream begins with a whole report and misses nothing after it;
// what is reported is made once for all of them.
func TestEveryUpstreamHearsAll(t *testing.T) {
	one, two := newSink(t, "127.0.0.1:0", nil), newSink(t, "127.0.0.1:0", nil)
	defer one.stop()
	defer two.stop()
	s := &source{n: 5}
	s.run(t, time.Millisecond, one, two)
	for _, x := range []*sink{one, two} {
		v, last := view{}, uint64(0)
		for i := range 100 {
			r := x.next(t)
			require.False(t, i == 0 && r.Partial, "whole at first")
			require.Greater(t, r.Sequence, last)
			require.Equal(t, r.Sequence, r.Demands[0].Count)
			v.add(t, r)
			last = r.Sequence
			for e := range min(last, 5) {
				i := last - e
				require.Equal(t, i, v[fmt.Sprintf("e%d", i%5)])
			}
		}
	}
	require.Less(t, s.whole.Load(), s.built.Load()/2, "most reports say what is new, and no more")
}

// TestAnUpstreamThatReturnsHearsAll, while the others go on.
func TestAnUpstreamThatReturnsHearsAll(t *testing.T) {
	one, two := newSink(t, "127.0.0.1:0", nil), newSink(t, "127.0.0.1:0", nil)
	defer two.stop()
	s := &source{n: 5}
	s.run(t, time.Millisecond, one, two)
	for range 10 {
		one.next(t)
	}
	one.stop()
	before := s.built.Load()
	for two.next(t).Sequence < uint64(before+20) {
	}
	one = newSink(t, one.addr, nil)
	defer one.stop()
	r := one.next(t)
	require.False(t, r.Partial)
	require.Len(t, r.Readings, 5)
}

// TestASlowUpstreamLosesNothing: one that takes its time gets the newest, whole, and no queue
// of what was before; the other is not held up.
func TestASlowUpstreamLosesNothing(t *testing.T) {
	hold := make(chan struct{})
	slow, quick := newSink(t, "127.0.0.1:0", hold), newSink(t, "127.0.0.1:0", nil)
	defer quick.stop()
	defer slow.stop()
	var random strings.Builder // nothing compresses it
	for source := rand.New(rand.NewPCG(1, 1)); random.Len() < 20_000; {
		fmt.Fprintf(&random, "%x", source.Uint64())
	}
	s := &source{n: 5, padding: random.String()}
	s.run(t, time.Millisecond, slow, quick)
	for quick.next(t).Sequence < 1000 {
	}
	close(hold)
	v, count := view{}, 0
	for {
		r := slow.next(t)
		v.add(t, r)
		count++
		for e := range min(r.Sequence, 5) {
			require.Equal(t, r.Sequence-e, v[fmt.Sprintf("e%d", (r.Sequence-e)%5)], "report %d of sequence %d", count, r.Sequence)
		}
		if r.Sequence >= 1000 {
			break
		}
	}
	require.Less(t, count, 700, "what was not sent in time is not sent")
}
