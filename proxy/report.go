package proxy

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/protect"
)

// report says everything that this data plane knows at an instant; of readings what is new.
func (p *DataPlane) report(now time.Time) *pb.ReportRequest {
	p.sequence++
	r := &pb.ReportRequest{
		Cluster: p.cluster, Instance: p.instance, Sequence: p.sequence, Time: timestamppb.New(now),
		Distances: p.prober.report(now), Applied: &pb.Applied{},
	}
	r.Applied.Epoch, r.Applied.Version, r.Applied.Refused = p.subscriber.Applied()
	r.Readings = p.readings(false)
	p.memory.report(r, now)
	return r
}

// allReadings gives what is known of all engines that are read.
func (p *DataPlane) allReadings() []*pb.Reading { return p.readings(true) }

// readings has the engines read that fall to this data plane, and gives what is new of
// them, or all.
func (p *DataPlane) readings(all bool) []*pb.Reading {
	s := p.Snapshot()
	if s == nil {
		return nil
	}
	if read, changed := p.reader.Follow(s); changed {
		p.memory.readNow(read)
	}
	return p.reader.Readings(all)
}

// readNow notes which engines are read: what the others say in their answers nobody would
// hear.
func (m *memory) readNow(read map[string]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, e := range m.engines {
		if !read[name] {
			e.inBand.tells.Store(false)
		}
	}
}

// report adds demand, observations, penalties and marks.
func (m *memory) report(r *pb.ReportRequest, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, s := range m.models {
		for k := range s.demand {
			if d := s.demand[k].report(now); d.Count+d.Retries > 0 {
				d.Model, d.Priority = name, uint32(k)
				r.Demands = append(r.Demands, d)
			}
		}
	}
	for _, s := range m.seen {
		rate, total, _ := s.attempts.rate(now)
		wait := s.firstByte.seconds(now)
		s.rate.store(rate)
		s.wait.store(wait)
		if total == 0 {
			continue
		}
		r.Observations = append(r.Observations, &pb.Observation{
			Engine: s.engine, Model: s.model, Requests: total, Failed: s.failures.total.Load(),
			Rate: rate, FirstByte: wait, InFlight: float64(s.flight.Requests()),
			Ended: s.ended.Load(), Spent: s.spent.seconds(now),
		})
	}
	for name, e := range m.engines {
		if p := e.outlier.Penalty(now.UnixNano()); p > 0 {
			r.Penalties = append(r.Penalties, &pb.Penalty{Engine: name, Seconds: p})
		}
		if m := e.life.Mark(now.UnixNano()); m.State != protect.Live {
			r.Marks = append(r.Marks, &pb.Mark{
				Engine: name, State: m.State.String(), Reason: m.Reason, Own: m.Own,
				SecondsLeft: time.Duration(m.Until - now.UnixNano()).Seconds(),
			})
		}
	}
	slices.SortFunc(r.Observations, func(a, b *pb.Observation) int {
		return strings.Compare(a.Model+"\x00"+a.Engine, b.Model+"\x00"+b.Engine)
	})
}

func (f *flow) report(now time.Time) *pb.Demand {
	rate, total, seconds := f.rate(now)
	return &pb.Demand{
		Rate: rate, Count: total, Window: seconds, Retries: f.retries.Load(), Cancelled: f.cancelled.Load(),
		PromptTokens: f.prompt.Load(), OutputTokens: f.output.Load(), CachedTokens: f.cached.Load(),
		Samples: f.samples.Load(), Estimated: f.estimated.Load(),
	}
}

func (c *collector) collectDemand(ch chan<- prometheus.Metric, model string, s *modelState) {
	for k := range fleet.NumPriorities {
		priority := fleet.Priority(k).String()
		ch <- prometheus.MustNewConstMetric(descDemand, prometheus.CounterValue, float64(s.demand[k].total.Load()), model, priority)
		f := &s.demand[k]
		ch <- prometheus.MustNewConstMetric(descRetried, prometheus.CounterValue, float64(f.retries.Load()), model, priority)
		for of, n := range map[string]uint64{"prompt": f.prompt.Load(), "cached": f.cached.Load(), "output": f.output.Load()} {
			ch <- prometheus.MustNewConstMetric(descTokens, prometheus.CounterValue, float64(n), model, priority, of)
		}
		ch <- prometheus.MustNewConstMetric(descShed, prometheus.CounterValue, float64(s.shed[k].total.Load()), model, priority)
	}
}
