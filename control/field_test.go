package control

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/policy"
	"github.com/wardrop-lb/wardrop/store"
	"github.com/wardrop-lb/wardrop/tick"
)

// Tests named TestField_NN hold what makes a failure of other routers impossible
// here; the number is the case's in the project's catalogue of field failures,
// docs/failures.md. They stand in the package where the behaviour lives.

// readingsOf is a report with a reading of each engine.
func readingsOf(readings ...*pb.Reading) tick.Report {
	return reported(func(r *pb.ReportRequest) { r.Readings = readings })
}

// TestField_21_QueuesSteerNoWeights: gauges that swing from empty to full and back
// move nothing; no threshold turns them into a rate.
func TestField_21_QueuesSteerNoWeights(t *testing.T) {
	c := parse(t, file)
	l := &leader{Control: newControl(t, c, &store.Memory{}, ""), epoch: 1}
	l.tick(now)
	first := l.snapshots
	for i := range 20 {
		running, waiting := 200.0*float64(i%2), 500.0*float64((i+1)%2)
		r := readingsOf(
			&pb.Reading{Engine: "near", Reachable: true, Running: &running, Waiting: &waiting, Time: timestamppb.New(now)},
			&pb.Reading{Engine: "far", Reachable: true, Running: &waiting, Waiting: &running, Time: timestamppb.New(now)})
		r.Sequence = uint64(i + 2)
		l.reports.add(r.ReportRequest, now)
		l.tick(now.Add(time.Duration(i) * 10 * time.Millisecond))
		require.Equal(t, uint64(1), l.State().Plan.Version)
		require.True(t, tick.Same(first, l.snapshots))
	}
}

// TestField_31_AllStaleKeepsServing: no reading for however long, by any clock.
func TestField_31_AllStaleKeepsServing(t *testing.T) {
	c := parse(t, file)
	l := &leader{Control: newControl(t, c, &store.Memory{}, ""), epoch: 1}
	for _, age := range []time.Duration{0, tick.ReadingLease, time.Minute, 240 * time.Hour} {
		v := tick.View(c, []tick.Report{readingsOf(
			&pb.Reading{Engine: "near", Failures: 1000, Time: timestamppb.New(now.Add(-age - tick.ReadingLease))},
			&pb.Reading{Engine: "far", Failures: 1000, Time: timestamppb.New(now.Add(-age - tick.ReadingLease))})}, now)
		require.Equal(t, []string{"near", "far"}, names(v))
	}
	l.tick(now.Add(time.Hour)) // and none at all
	for _, s := range l.snapshots {
		require.NoError(t, s.Validate())
		require.NotEmpty(t, s.Rows)
	}
}

// TestField_32_StaleIsNotOverloaded: an old reading of a crowded engine changes
// nothing that a fresh one of an idle engine would not.
func TestField_32_StaleIsNotOverloaded(t *testing.T) {
	c := parse(t, file)
	busy, idle := 10_000.0, 0.0
	old := readingsOf(&pb.Reading{Engine: "near", Reachable: true, Waiting: &busy, KvUsage: &busy, Time: timestamppb.New(now.Add(-time.Hour))})
	fresh := readingsOf(&pb.Reading{Engine: "near", Reachable: true, Waiting: &idle, KvUsage: &idle, Time: timestamppb.New(now)})
	require.Equal(t, tick.View(c, []tick.Report{fresh}, now), tick.View(c, []tick.Report{old}, now))
	failed := readingsOf(&pb.Reading{Engine: "near", Failures: 9, Time: timestamppb.New(now.Add(-time.Hour))})
	require.Equal(t, []string{"near", "far"}, names(tick.View(c, []tick.Report{failed}, now)), "nor is it dead")
}

// TestField_28_ADeadEngineComesBack: nothing but a reading that reaches it is
// needed, nor does its absence from the plan keep readers away.
func TestField_28_ADeadEngineComesBack(t *testing.T) {
	c := parse(t, file)
	dead := readingsOf(&pb.Reading{Engine: "near", Failures: 3600, Time: timestamppb.New(now)})
	v := tick.View(c, []tick.Report{dead}, now)
	require.Equal(t, []string{"far"}, names(v))
	for _, s := range tick.Cut(c, v, policy.ByCapacity(v), nil) {
		require.Equal(t, "near", s.Engines[1].Name, "it stays in the table of those that are read")
		require.NotEmpty(t, s.Engines[1].Collector)
	}
	back := readingsOf(&pb.Reading{Engine: "near", Reachable: true, Time: timestamppb.New(now)})
	require.Equal(t, []string{"near", "far"}, names(tick.View(c, []tick.Report{back}, now)))
}

func TestField_68_DrainingGetsNoWeight(t *testing.T) {
	c := parse(t, file)
	c.Engines[0].Drain = true
	for _, s := range tick.Cut(c, tick.View(c, nil, now), policy.ByCapacity(tick.View(c, nil, now)), nil) {
		for _, r := range s.Rows {
			for _, target := range r.Targets {
				require.NotEqual(t, "near", s.Engines[target.Engine].Name, "not even as a fallback")
			}
		}
	}
}

// troubled is a store that leads once and then is in trouble.
type troubled struct {
	store.Memory
	asked int
}

func (s *troubled) Lead(context.Context, uint64) (store.Term, error) {
	if s.asked++; s.asked > 1 {
		return store.Term{}, errors.New("no quorum")
	}
	return store.Term{Epoch: 1}, nil
}
func (s *troubled) Close() error { return errors.New("no quorum") }

// TestField_71_TheStoreIsNotOnTheWay: a leader plans and publishes without asking
// it again.
func TestField_71_TheStoreIsNotOnTheWay(t *testing.T) {
	st := &troubled{}
	c := newControl(t, parse(t, file), st, "")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	for _, cluster := range []string{"a", "c"} {
		c.reports.add(&pb.ReportRequest{Cluster: cluster, Instance: cluster, Sequence: 1, Time: timestamppb.Now()}, time.Now())
	}
	go func() { done <- c.Run(ctx) }()
	var last time.Time
	ticks := 0
	require.Eventually(t, func() bool {
		if s := c.State(); s != nil && s.Published != last {
			last = s.Published
			ticks++
		}
		return ticks == 5
	}, 10*time.Second, time.Millisecond)
	require.Empty(t, done, "it goes on")
	cancel()
	require.NoError(t, <-done)
	require.Equal(t, 1, st.asked)
}
