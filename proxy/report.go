package proxy

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/signals"
)

// report says everything that this data plane knows at an instant.
func (p *DataPlane) report(now time.Time) *pb.ReportRequest {
	p.sequence++
	r := &pb.ReportRequest{
		Cluster: p.cluster, Instance: p.instance, Sequence: p.sequence, Time: timestamppb.New(now),
		Distances: p.prober.report(now), Applied: &pb.Applied{},
	}
	r.Applied.Epoch, r.Applied.Version, r.Applied.Refused = p.subscriber.Applied()
	p.reportReadings(r)
	p.memory.report(r, now)
	return r
}

// reportReadings sets the scraper's targets to the engines that this cluster
// collects, and reports their newest state.
func (p *DataPlane) reportReadings(r *pb.ReportRequest) {
	s := p.Snapshot()
	if s == nil {
		return
	}
	if s != p.readBy {
		p.setTargets(s)
		p.readBy = s
	}
	for _, st := range p.scraper.States() {
		r.Readings = append(r.Readings, encodeReading(st))
	}
}

// setTargets has the engines read that this cluster collects.
func (p *DataPlane) setTargets(s *fleet.Snapshot) {
	var targets []signals.Target
	for i := range s.Engines {
		e := &s.Engines[i]
		if e.Collector != p.cluster || e.URL == "" {
			if s := p.memory.knownEngine(e.Name); s != nil {
				s.inBand.tells.Store(false) // nobody would hear it
			}
			continue
		}
		t := signals.Target{Engine: e.Name, URL: e.URL, Kind: e.Kind, MetricsURL: e.Metrics, Names: signals.NewNames(e.Names)}
		// What a newer control plane knows to say is read by a newer data plane; the
		// others must not suffer for it.
		if _, err := signals.NewAdapter(t); err != nil {
			p.log.Debug("engine not read", "engine", e.Name, "error", err)
			continue
		}
		targets = append(targets, t)
	}
	if err := p.scraper.Set(targets); err != nil {
		p.log.Warn("some engines cannot be read", "error", err)
	}
	p.metrics.reading.forget(targets)
}

func encodeReading(st signals.State) *pb.Reading {
	f := st.Faults
	out := &pb.Reading{
		Engine: st.Engine, Reachable: st.Reachable, Error: st.Err, Failures: uint32(st.Failures), Time: timestamppb.New(st.Attempt), Kind: st.Kind,
	}
	if f != (signals.Faults{}) {
		out.Faults = &pb.Faults{Failed: f.Failed, Truncated: f.Truncated, Spoilt: f.Spoilt, Redirects: f.Redirects}
	}
	if g := st.Signal; g != nil {
		out.Incarnation, out.Sequence, out.Good = g.Incarnation, g.Sequence, timestamppb.New(g.Time)
		out.InBand = !g.InBand.IsZero()
		out.Running, out.Waiting, out.KvUsage, out.Slots = optional(g.Running), optional(g.Waiting), optional(g.KVUsage), optional(g.Slots)
		out.GenerationTokens, out.PromptTokens, out.Preemptions = optional(g.GenerationTokens), optional(g.PromptTokens), optional(g.Preemptions)
		out.KvTokens, out.PrefixHits, out.PrefixQueries = optional(g.KVTokens), optional(g.PrefixHits), optional(g.PrefixQueries)
	}
	return out
}

func optional(o signals.Opt) *float64 {
	if !o.Known {
		return nil
	}
	return &o.Value
}

// report adds demand, observations and penalties.
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
