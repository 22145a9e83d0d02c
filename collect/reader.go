package collect

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/signals"
)

// readers is how many instances read an engine.
const readers = 2

// Options is what a Reader is made of.
type Options struct {
	// Member is the cluster that the instance belongs to, or what fleet.Collectors names.
	Member   string
	Instance string
	Interval time.Duration // between two readings of an engine
	Timeout  time.Duration // of one
	// Transport reaches the engines; Read, if set, gets what each attempt came to.
	Transport http.RoundTripper
	Read      func(signals.State)
	Registry  prometheus.Registerer
	Log       *slog.Logger
}

// Reader reads the engines that fall to an instance. Follow and Readings are one
// goroutine's, the rest is safe for concurrent use.
type Reader struct {
	options Options
	scraper *signals.Scraper
	metrics *metrics

	engines []fleet.SnapshotEngine // of the snapshot that is followed
	planes  []string
}

// New makes a reader of no engines. It stops by Close.
func New(o Options) *Reader {
	r := &Reader{options: o}
	r.metrics = newMetrics(r, o.Registry)
	r.scraper = signals.NewScraper(context.Background(), signals.Options{
		Interval: o.Interval, Timeout: o.Timeout, Transport: o.Transport,
		Report: func(st signals.State) {
			r.metrics.count(st)
			if o.Read != nil {
				o.Read(st)
			}
		},
	})
	return r
}

// Close ends all readings.
func (r *Reader) Close() { r.scraper.Close() }

// InBand takes in what an engine said of itself in the head of an answer.
func (r *Reader) InBand(engine, report string, at time.Time) {
	outcome := "ok"
	values, err := signals.ParseORCA(report)
	if err != nil {
		outcome = "failed"
	} else if !r.scraper.InBand(engine, values, at) {
		outcome = "late"
	}
	r.metrics.inBand.WithLabelValues(outcome).Inc()
}

// Follow reads the engines that fall to the instance by a snapshot. It returns their
// names, and whether that is news.
func (r *Reader) Follow(s *fleet.Snapshot) (read map[string]bool, changed bool) {
	if slices.Equal(r.planes, s.Planes) && slices.EqualFunc(r.engines, s.Engines, fleet.SnapshotEngine.Equal) {
		return nil, false
	}
	r.engines, r.planes = s.Engines, s.Planes
	read = map[string]bool{}
	var targets []signals.Target
	for i := range s.Engines {
		e := &s.Engines[i]
		if e.Collector != r.options.Member || e.URL == "" || !r.mine(e.Name) {
			continue
		}
		t := signals.Target{Engine: e.Name, URL: e.URL, Kind: e.Kind, MetricsURL: e.Metrics, Names: signals.NewNames(e.Names)}
		// What a newer control plane knows to say is read by newer instances; the
		// others must not suffer for it.
		if _, err := signals.NewAdapter(t); err != nil {
			r.options.Log.Debug("engine not read", "engine", e.Name, "error", err)
			continue
		}
		targets = append(targets, t)
		read[e.Name] = true
	}
	if err := r.scraper.Set(targets); err != nil {
		r.options.Log.Warn("some engines cannot be read", "error", err)
	}
	r.metrics.forget(targets)
	return read, true
}

// mine says whether an engine is this instance's to read. One that is not among the snapshot's
// instances, because it has just started or the control plane is away, reads all.
func (r *Reader) mine(engine string) bool {
	if !slices.Contains(r.planes, r.options.Instance) {
		return true
	}
	own, before := weight(engine, r.options.Instance), 0
	for _, p := range r.planes {
		if w := weight(engine, p); cmp.Or(cmp.Compare(w, own), cmp.Compare(p, r.options.Instance)) > 0 {
			before++
		}
	}
	return before < readers
}

func weight(engine, instance string) uint64 {
	d := xxhash.New()
	_, _ = d.WriteString(instance)
	_, _ = d.WriteString("\x00" + engine)
	return d.Sum64()
}

// Readings encodes the newest state of every engine that has been read since the last
// call, or of all.
func (r *Reader) Readings(all bool) []*pb.Reading {
	states := r.scraper.Collect()
	if all {
		states = r.scraper.States()
	}
	out := make([]*pb.Reading, 0, len(states))
	for _, st := range states {
		out = append(out, encode(st))
	}
	return out
}
func encode(st signals.State) *pb.Reading {
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
