package signals

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
)

// forwarder passes reports on to sinks until the test ends.
func forwarder(t *testing.T, addrs ...string) *Forwarder {
	t.Helper()
	f := &Forwarder{Log: slog.New(slog.DiscardHandler)}
	for _, addr := range addrs {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		f.Conns = append(f.Conns, conn)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { f.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return f
}

// open waits until reports can be passed on to n upstreams.
func (f *Forwarder) open(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		k := 0
		for _, l := range f.lanes {
			if l.open {
				k++
			}
		}
		return k == n
	}, 10*time.Second, time.Millisecond)
}

// told is report n of an instance, which reads five engines, each in every fifth report.
func told(instance string, n int, padding string) *pb.ReportRequest {
	r := &pb.ReportRequest{Cluster: "c", Instance: instance, Sequence: uint64(n), Time: timestamppb.New(time.Unix(int64(n), 0)), Partial: n > 1,
		Applied: &pb.Applied{Epoch: 1, Version: uint64(n), Refused: "no"}}
	r.Readings = append(r.Readings, &pb.Reading{Engine: fmt.Sprintf("e%d", n%5), Sequence: uint64(n), Time: r.Time, Error: padding})
	return r
}

// views is what a stream of several instances' reports comes to.
type views struct {
	instances map[string]view
	sequences map[string]uint64
	count     int
}

func (v *views) add(t *testing.T, r *pb.ReportRequest) {
	if v.instances == nil {
		v.instances, v.sequences = map[string]view{}, map[string]uint64{}
	}
	if v.instances[r.Instance] == nil {
		require.False(t, r.Partial, "it begins whole")
		v.instances[r.Instance] = view{}
	}
	require.Greater(t, r.Sequence, v.sequences[r.Instance])
	require.Equal(t, "no", r.Applied.Refused)
	v.instances[r.Instance].add(t, r)
	v.sequences[r.Instance] = r.Sequence
	v.count++
	for e := range min(r.Sequence, 5) {
		n := r.Sequence - e
		require.Equal(t, n, v.instances[r.Instance][fmt.Sprintf("e%d", n%5)], "instance %s at %d", r.Instance, r.Sequence)
	}
}

// TestReportsArePassedOn: of many instances to all upstreams; one that goes away and comes back
// hears all of each, and one that is slow the newest.
func TestReportsArePassedOn(t *testing.T) {
	hold := make(chan struct{})
	steady, slow, restarted := newSink(t, "127.0.0.1:0", nil), newSink(t, "127.0.0.1:0", hold), newSink(t, "127.0.0.1:0", nil)
	defer steady.stop()
	defer slow.stop()
	f := forwarder(t, steady.addr, slow.addr, restarted.addr)
	f.open(t, 3)
	var random strings.Builder // nothing compresses it
	for source := rand.New(rand.NewPCG(1, 1)); random.Len() < 10_000; {
		fmt.Fprintf(&random, "%x", source.Uint64())
	}
	const instances, reports = 20, 60
	send := func(from, to int) {
		var wg sync.WaitGroup
		for i := range instances {
			wg.Go(func() {
				for n := from; n <= to; n++ {
					f.Handle(told(fmt.Sprint(i), n, random.String()))
				}
			})
		}
		wg.Wait()
	}
	newest := func(s *sink) *views {
		v := &views{}
		for done := 0; done < instances; {
			r := s.next(t)
			v.add(t, r)
			if r.Sequence == reports {
				done++
			}
		}
		return v
	}
	send(1, reports/2)
	restarted.stop()
	f.open(t, 2)
	send(reports/2+1, reports-1)
	restarted = newSink(t, restarted.addr, nil)
	defer restarted.stop()
	f.open(t, 3)
	send(reports, reports)
	require.Equal(t, instances, newest(restarted).count, "what was before is not kept")
	newest(steady)
	close(hold)
	require.Less(t, newest(slow).count, instances*reports*9/10, "what was not sent in time is not sent")
	require.Equal(t, uint64(instances*reports), f.Passed())
	require.Equal(t, instances, f.Instances(time.Now()))
	require.Zero(t, f.Instances(time.Now().Add(time.Hour)))
}

// TestForwardersInACircle pass each report on once.
func TestForwardersInACircle(t *testing.T) {
	end := newSink(t, "127.0.0.1:0", nil)
	defer end.stop()
	var one, two *Forwarder
	ready := make(chan struct{})
	toOne := receive(t, func(r *pb.ReportRequest) { <-ready; one.Handle(r) })
	toTwo := receive(t, func(r *pb.ReportRequest) { <-ready; two.Handle(r) })
	one, two = forwarder(t, toTwo.Target(), end.addr), forwarder(t, toOne.Target(), end.addr)
	close(ready)
	one.open(t, 2)
	two.open(t, 2)
	for n := range 100 {
		one.Handle(told("i", n+1, ""))
	}
	for seen := 0; seen < 2; { // from either
		if end.next(t).Sequence == 100 {
			seen++
		}
	}
	require.Equal(t, uint64(100), one.Passed())
	require.LessOrEqual(t, two.Passed(), uint64(100))
	require.Empty(t, end.got)
}
