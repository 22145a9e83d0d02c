package sim

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/protect"
	"github.com/wardrop-lb/wardrop/route"
)

// plane is one cluster's data plane.
type plane struct {
	w          *wardrop
	cluster    int
	name       string
	version    uint64 // of the plan that it routes by
	router     *route.Router
	flights    *route.Flights
	models     []*planeModel // by model
	engines    []planeEngine // by engine
	index      map[string]int
	prefix     route.Prefix
	popularity []*route.Popularity // by model
}

type planeModel struct {
	budget  *protect.RetryBudget
	demand  [fleet.NumPriorities]float64 // requests so far
	samples []demandSample               // oldest first
	usual   float64                      // tokens of a usual request
	typical protect.Typical
}

type demandSample struct {
	at    time.Duration
	total [fleet.NumPriorities]float64
}

// planeEngine is what a data plane keeps of an engine.
type planeEngine struct {
	outlier protect.Outlier
	waiting []*carried    // those without a first token
	since   time.Duration // when the first of them began to wait
	beat    time.Duration // the last sign of life
	tokens  uint64        // as last read

	sent []sent // by model; nil before the first attempt
}

// sent is what went to an engine for one model: attempts so far, and those in flight.
type sent struct {
	attempts, inFlight int
	failed             int           // of the attempts
	spent              time.Duration // by those that ended
	begun              time.Duration // the sum of when those in flight were sent
}

func (p *plane) apply(s *fleet.Snapshot) {
	p.version = s.Version
	p.router = route.NewCoarse(s, p.flights, p.w.config.Proxy.Bound, p.router)
	for i, name := range p.w.w.fleet.Models {
		row := p.router.Row(name)
		if row == nil {
			continue
		}
		if n := len(row.Targets()); p.popularity[i] == nil || !p.popularity[i].Fits(n) {
			p.popularity[i] = route.NewPopularity(n)
		}
	}
}

// report says what the data plane measured.
func (p *plane) report() *pb.ReportRequest {
	now := p.w.Now()
	r := &pb.ReportRequest{Cluster: p.name, Instance: p.name, Time: timestamppb.New(wall(now)), Applied: &pb.Applied{}}
	for i, m := range p.models {
		rates, seconds := m.rates(now)
		for k, rate := range rates {
			if m.demand[k] > 0 {
				r.Demands = append(r.Demands, &pb.Demand{
					Model: p.w.w.fleet.Models[i], Priority: uint32(k), Rate: rate, Count: uint64(m.demand[k]), Window: seconds,
				})
			}
		}
	}
	for i := range p.engines {
		e := &p.engines[i]
		for m, s := range e.sent {
			if s.attempts > 0 {
				r.Observations = append(r.Observations, &pb.Observation{
					Engine: p.w.w.fleet.Engines[i].Name, Model: p.w.w.fleet.Models[m], Requests: uint64(s.attempts), Failed: uint64(s.failed), InFlight: float64(s.inFlight),
					Ended: uint64(s.attempts - s.inFlight), Spent: (s.spent + time.Duration(s.inFlight)*now - s.begun).Seconds(),
				})
			}
		}
		if s := e.outlier.Penalty(nanos(now)); s > 0 {
			r.Penalties = append(r.Penalties, &pb.Penalty{Engine: p.w.w.fleet.Engines[i].Name, Seconds: s})
		}
		if p.w.cuts != nil && p.collects(i) {
			if x := p.reading(i); x != nil {
				r.Readings = append(r.Readings, x)
			}
		}
	}
	return r
}

// collects says whether the engine is this cluster's to read.
func (p *plane) collects(engine int) bool {
	name := p.w.w.fleet.Engines[engine].Name
	table := p.w.cuts[0].Engines
	low, high := 0, len(table)
	for low < high {
		if mid := (low + high) / 2; table[mid].Name < name {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low < len(table) && table[low].Collector == p.name
}

func (p *plane) reading(engine int) *pb.Reading {
	x := p.w.w.signals.newest(p.w.w, p.cluster, engine)
	if x == nil {
		return nil
	}
	out := &pb.Reading{Engine: p.w.w.fleet.Engines[engine].Name, Reachable: !x.down, Failures: x.failures, Time: timestamppb.New(wall(x.At))}
	if !x.down {
		running, waiting, kv := float64(x.Running), float64(x.Waiting), x.KVUsage
		out.Running, out.Waiting, out.KvUsage, out.Incarnation = &running, &waiting, &kv, x.Incarnation
	}
	return out
}

// rates are requests/s over the window, and the seconds it covers.
func (m *planeModel) rates(now time.Duration) (rates [fleet.NumPriorities]float64, seconds float64) {
	m.samples = append(m.samples, demandSample{now, m.demand})
	for len(m.samples) > 2 && now-m.samples[1].at >= demandWindow {
		m.samples = m.samples[1:]
	}
	first := m.samples[0]
	if seconds = (now - first.at).Seconds(); seconds > 0 {
		for k := range rates {
			rates[k] = (m.demand[k] - first.total[k]) / seconds
		}
	}
	return rates, seconds
}

// sizeOf is a request's expected tokens beside a usual one's, and its work: those, and
// as many again as a usual one has.
func (m *planeModel) sizeOf(r *Request) (size float64, work int64) {
	tokens := float64(r.Prompt + usualOutput)
	if m.usual == 0 {
		m.usual = tokens
	}
	m.usual += (min(tokens, 4*m.usual) - m.usual) / 64
	return max(1, tokens/m.usual), int64(tokens + m.usual)
}

// key is the affinity key's hash, or a random one where there is no key.
// Depth is how many blocks of the prompt make it.
func (p *plane) key(r *Request, row *route.Row, now int64) (h uint64, source route.KeySource, depth int) {
	model := row.Model
	if r.Session != 0 {
		return route.HashKey(route.KeySession, model, fmt.Appendf(nil, "%d", r.Session)), route.KeySession, 0
	}
	if len(r.Prefix) > 0 {
		p.prefix.Reset()
		for _, b := range r.Prefix {
			p.prefix.AddHash(b.Hash)
		}
		h, depth := p.popularity[r.Model].Key(&p.prefix, len(row.Targets()), now)
		return route.HashPrefix(model, h), route.KeyPrefix, depth
	}
	return p.w.Random().Uint64(), route.KeyNone, 0
}

func (p *plane) sweepEngine(i int) {
	e := &p.engines[i]
	if len(e.waiting) == 0 {
		return
	}
	now := p.w.Now()
	if x, ok := p.w.Reading(p.cluster, i); ok && x.Tokens != e.tokens {
		e.tokens, e.beat = x.Tokens, now
	}
	c := e.waiting[0]
	silence := now - max(e.since, e.beat)
	limit := protect.Patience(time.Duration(p.w.config.Proxy.StallAfter), c.row.Targets()[c.target].Predicted)
	if silence < limit {
		return
	}
	p.w.passOver(p, c.row, c.target, i, protect.Stalled)
	for _, c := range append([]*carried(nil), e.waiting...) {
		c.stalled = true
		p.w.Abort(c.request)
	}
}
