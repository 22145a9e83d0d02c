package control

import (
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/latency"
	"github.com/wardrop-lb/wardrop/store"
)

// signalled is a control plane over two data planes whose reports are as a steady fleet's
// are, but for what is wrong with them.
type signalled struct {
	t      *testing.T
	l      *leader
	at     time.Time
	random *rand.Rand
	sent   uint64
	counts map[string]uint64 // requests, by cluster

	lose    float64                            // the part of the reports that is lost
	clock   map[string]time.Duration           // by which clocks are wrong, by cluster
	reading func(engine string, r *pb.Reading) // spoils a reading
}

func newSignalled(t *testing.T) *signalled {
	return &signalled{
		t: t, l: &leader{Control: newControl(t, parse(t, file), &store.Memory{}, ""), epoch: 1}, at: now,
		random: rand.New(rand.NewPCG(1, 1)), counts: map[string]uint64{}, clock: map[string]time.Duration{}, reading: func(string, *pb.Reading) {},
	}
}

// ticks goes on for so many ticks of two seconds, with four reports of each data plane in each,
// and gives the weights after the last.
func (s *signalled) ticks(n int) map[string]float64 {
	for range n {
		for range 4 {
			s.at = s.at.Add(500 * time.Millisecond)
			s.report("a", 100, "near")
			s.report("c", 40, "far")
		}
		s.l.tick(s.at)
	}
	return s.weights()
}

func (s *signalled) report(cluster string, rate float64, reads string) {
	s.sent++
	s.counts[cluster] += uint64(rate / 2)
	if s.random.Float64() < s.lose {
		return
	}
	own := timestamppb.New(s.at.Add(s.clock[cluster]))
	p := fleet.Profile{T0: 0.2, UMax: 125, Batch: 200, Kappa: 0.9}
	running, waiting := latency.New(p).Phi(70), 0.0
	x := &pb.Reading{Engine: reads, Kind: "vllm", Reachable: true, Time: own, Good: own, Incarnation: 7, Running: &running, Waiting: &waiting}
	s.reading(reads, x)
	s.l.reports.add(&pb.ReportRequest{
		Cluster: cluster, Instance: cluster, Sequence: s.sent, Time: own, Partial: s.sent > 2, Readings: []*pb.Reading{x},
		Demands: []*pb.Demand{{Model: "demo", Priority: uint32(fleet.Standard), Rate: rate, Count: s.counts[cluster], Window: 10}},
	}, s.at)
}

// weights are those of the snapshots that were cut, by cluster and engine.
func (s *signalled) weights() map[string]float64 {
	out := map[string]float64{}
	for _, x := range s.l.snapshots {
		for _, row := range x.Rows {
			for _, target := range row.Targets {
				out[x.Cluster+" "+x.Engines[target.Engine].Name] = target.Weight
			}
		}
	}
	return out
}

// TestFaultsOfSignalsMoveNoWeights: what is wrong with the signals and not with the fleet is
// no reason to move traffic.
func TestFaultsOfSignalsMoveNoWeights(t *testing.T) {
	for name, fault := range map[string]func(*signalled){
		"half of the reports lost": func(s *signalled) { s.lose = 0.5 },
		"a renamed metric": func(s *signalled) {
			s.reading = func(_ string, r *pb.Reading) { r.Running, r.Waiting = nil, nil }
		},
		"a page that says nothing": func(s *signalled) {
			s.reading = func(_ string, r *pb.Reading) { r.Error, r.Failures, r.Running, r.Waiting = "garbage", 9, nil, nil }
		},
		"clocks that jump half a minute apart": func(s *signalled) { s.clock["a"], s.clock["c"] = 15*time.Second, -15*time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSignalled(t)
			before := s.ticks(20)
			require.Positive(t, before["a near"])
			fault(s)
			for range 30 {
				require.Equal(t, before, s.ticks(1))
			}
			s.lose, s.clock, s.reading = 0, map[string]time.Duration{}, func(string, *pb.Reading) {}
			require.Equal(t, before, s.ticks(10))
		})
	}
}

// TestClocksApart: data planes whose clocks have always been apart give the plan that others do.
func TestClocksApart(t *testing.T) {
	s := newSignalled(t)
	s.clock["a"], s.clock["c"] = 15*time.Second, -15*time.Second
	require.Equal(t, newSignalled(t).ticks(20), s.ticks(20))
}

// TestRestartMovesWhatItMust: an engine that was restarted gets a tenth of its capacity more in
// each tick; no more than that is missing is moved, and all of it comes back.
func TestRestartMovesWhatItMust(t *testing.T) {
	s := newSignalled(t)
	before := maps.Clone(s.ticks(20))
	capacity := latency.New(fleet.Profile{T0: 0.2, UMax: 125, Batch: 200, Kappa: 0.9}).Capacity()
	s.reading = func(engine string, r *pb.Reading) {
		if engine == "near" {
			r.Incarnation = 8
		}
	}
	for tick := 1; tick <= 10; tick++ {
		w := s.ticks(1)
		room := capacity * float64(tick) / 10
		// Where not to refuse anybody takes more than the ramp allows, that counts more.
		assert.GreaterOrEqual(t, w["a near"]+0.03, min(before["a near"], room/100), "tick %d", tick)
		assert.LessOrEqual(t, w["a near"], before["a near"]+1e-9, "tick %d", tick)
	}
	s.ticks(10)
	require.InDelta(t, before["a near"], s.weights()["a near"], 0.05)
}
