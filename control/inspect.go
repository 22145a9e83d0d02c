package control

import (
	"cmp"
	"slices"
	"time"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/latency"
	"github.com/wardrop-lb/wardrop/protect"
	"github.com/wardrop-lb/wardrop/signals"
	"github.com/wardrop-lb/wardrop/tick"
)

// What Engine.State may be, beside the states that data planes find (protect.State).
const (
	EngineLive     = "live"
	EngineDead     = "dead"     // readings in a row did not reach it
	EngineDraining = "draining" // it finishes what it has
	EngineUnread   = "unread"   // no reading of it is fresh, or it is of a kind that is not read
	EngineNoModels = "no models"
)

// Engine is an engine as the control plane sees it. What is not known is absent.
type Engine struct {
	Name   string   `json:"name"`
	Region string   `json:"region"`
	URL    string   `json:"url,omitempty"`
	Models []string `json:"models"`
	Kind   string   `json:"kind"` // what it is read as, else what the configuration says
	State  string   `json:"state"`
	// Reason is why data planes found it in that state, and Left for how much longer the
	// state counts, in seconds; both are absent for other states.
	Reason string  `json:"reason,omitempty"`
	Left   float64 `json:"seconds_left,omitempty"`
	// Ramp is the part of its capacity that an engine which is still cold may get; 0 if
	// it is warm.
	Ramp     float64 `json:"ramp,omitempty"`
	Slowdown float64 `json:"slowdown,omitempty"` // times slower than its profile; 0 if it is not
	Penalty  float64 `json:"penalty,omitempty"`  // seconds
	Profile  Profile `json:"profile"`
	Load     float64 `json:"load"`               // requests/s that the plan sends, by work
	Capacity float64 `json:"capacity,omitempty"` // requests/s; 0 if the plan does not know it
	Price    float64 `json:"price,omitempty"`    // seconds

	Reading *EngineReading `json:"reading,omitempty"`
}

// Profile is what plans take an engine for.
type Profile struct {
	Source     string  `json:"source"` // configured, learned or guessed
	T0         float64 `json:"t0_seconds,omitempty"`
	Saturation float64 `json:"saturation,omitempty"` // requests/s
	// Doubt is the relative standard error of what is learned; 0 of what is configured, 1
	// where nothing is known yet.
	Doubt float64 `json:"doubt,omitempty"`
}

// EngineReading is the newest reading of an engine.
type EngineReading struct {
	Cluster  string   `json:"cluster"` // of the data plane that read it
	Instance string   `json:"instance"`
	Tried    float64  `json:"tried_seconds"`         // since the last attempt
	Age      *float64 `json:"age_seconds,omitempty"` // of the values
	InBand   bool     `json:"in_band,omitempty"`     // some are what it said in an answer since
	Error    string   `json:"error,omitempty"`       // why the last attempt gave nothing
	Failures uint32   `json:"failures,omitempty"`    // attempts since the last that gave something
	Faults   *Faults  `json:"faults,omitempty"`

	Running  *float64 `json:"running,omitempty"`
	Waiting  *float64 `json:"waiting,omitempty"`
	KVUsage  *float64 `json:"kv_usage,omitempty"` // 0..1
	KVTokens *float64 `json:"kv_tokens,omitempty"`
	Slots    *float64 `json:"slots,omitempty"`
	// PrefixHits and PrefixQueries are counts of prompt tokens since the engine began.
	PrefixHits    *float64 `json:"prefix_hits,omitempty"`
	PrefixQueries *float64 `json:"prefix_queries,omitempty"`
}

// Faults counts what was wrong with an engine's answers since it is read.
type Faults struct {
	Failed    uint64 `json:"failed"` // attempts without a signal
	Truncated uint64 `json:"truncated"`
	Spoilt    uint64 `json:"spoilt"` // series that came without a finite number
	Redirects uint64 `json:"redirects"`
}

// Engines lists the engines of the configuration in force, by name.
func (c *Control) Engines(now time.Time) []Engine {
	cfg, state := c.inForce(now), c.State()
	planes := c.reports.live(now)
	readings, marks := newestReadings(planes, now), tick.Marks(planes, now)
	out := make([]Engine, 0, len(cfg.Engines))
	for i := range cfg.Engines {
		e := engineOf(&cfg.Engines[i], readings[cfg.Engines[i].Name])
		e.mark(marks[e.Name])
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b Engine) int { return cmp.Compare(a.Name, b.Name) })
	if state != nil {
		addPlan(out, state)
	}
	return out
}

// reading is a reading and how old it is.
type reading struct {
	*pb.Reading
	cluster, instance string
	since             time.Duration // the report came, and its sender had made it by then
	tried             time.Duration
}

// newestReadings gives the newest reading of each engine, however old.
func newestReadings(planes []tick.Report, now time.Time) map[string]reading {
	newest := map[string]reading{}
	for _, p := range planes {
		for _, r := range p.Readings {
			x := reading{Reading: r, cluster: p.Member(), instance: p.Instance, since: now.Sub(p.Received)}
			x.tried = x.since + max(0, p.Time.AsTime().Sub(r.Time.AsTime()))
			if old, ok := newest[r.Engine]; !ok || x.tried < old.tried {
				newest[r.Engine] = x
			}
		}
	}
	return newest
}

func engineOf(e *config.Engine, r reading) Engine {
	out := Engine{Name: e.Name, Region: e.Region, URL: e.URL, Models: e.Models, Kind: e.Kind, State: EngineUnread}
	if out.Models == nil {
		out.Models = []string{}
	}
	fresh := r.Reading != nil && r.tried <= tick.ReadingLease
	switch {
	case e.Drain:
		out.State = EngineDraining
	case fresh && tick.Dead(r.Reading):
		out.State = EngineDead
	case len(e.Models) == 0:
		out.State = EngineNoModels
	case fresh:
		out.State = EngineLive
	}
	if r.Reading == nil {
		return out
	}
	if r.Kind != "" && r.Kind != signals.KindAuto {
		out.Kind = r.Kind
	}
	out.Reading = &EngineReading{
		Cluster: r.cluster, Instance: r.instance, Tried: r.tried.Seconds(), InBand: r.InBand, Error: r.Error, Failures: r.Failures,
		Running: r.Running, Waiting: r.Waiting, KVUsage: r.KvUsage, KVTokens: r.KvTokens, Slots: r.Slots,
		PrefixHits: r.PrefixHits, PrefixQueries: r.PrefixQueries,
	}
	if f := r.Faults; f != nil {
		out.Reading.Faults = &Faults{f.Failed, f.Truncated, f.Spoilt, f.Redirects}
	}
	if r.Good != nil {
		age := (r.tried + r.Time.AsTime().Sub(r.Good.AsTime())).Seconds()
		out.Reading.Age = &age
	}
	return out
}

// mark shows what data planes found, unless more is known: that the configuration drains
// the engine, or that no reading reaches it.
func (e *Engine) mark(m tick.Mark) {
	if m.State == protect.Live || e.State != EngineLive && e.State != EngineUnread {
		return
	}
	e.State, e.Reason, e.Left = m.State.String(), m.Reason, m.Left.Seconds()
}

// addPlan adds what the plan in force makes of engines that are sorted by name.
func addPlan(engines []Engine, s *State) {
	byName := func(name string) *Engine {
		i, ok := slices.BinarySearchFunc(engines, name, func(e Engine, name string) int { return cmp.Compare(e.Name, name) })
		if !ok {
			return nil
		}
		return &engines[i]
	}
	for i := range s.View.Engines {
		v := &s.View.Engines[i]
		if e := byName(v.Name); e != nil {
			e.Ramp, e.Penalty, e.Profile = v.Ramp, v.Penalty, profileOf(v)
			if v.Slowdown > 1 {
				e.Slowdown = v.Slowdown
			}
		}
	}
	for i := range s.Plan.Engines {
		p := &s.Plan.Engines[i]
		if e := byName(p.Name); e != nil {
			e.Load, e.Capacity, e.Price = p.Load, p.Capacity, p.Price()
		}
	}
}

func profileOf(e *fleet.Engine) Profile {
	p := Profile{Source: SourceConfigured, T0: e.Profile.T0, Saturation: latency.New(e.Profile).Saturation()}
	switch {
	case e.Learn && !e.Learned:
		p = Profile{Source: SourceGuessed, Doubt: 1}
	case e.Learn:
		p.Source, p.Doubt = SourceLearned, e.Doubt
	}
	return p
}

// What Demand.Source and Distance.Source may be.
const (
	SourceMeasured   = "measured"
	SourceExpected   = "expected"   // demand that the configuration says
	SourceConfigured = "configured" // a distance or a profile that the configuration says
	SourceLearned    = "learned"    // a profile, from what the engine or others of its kind did
	SourceGuessed    = "guessed"    // a profile of which nothing is known yet
	SourceGeography  = "geography"  // a distance by the regions' coordinates
)

// Demand is what arrives at a cluster for a model at a priority.
type Demand struct {
	Cluster  string         `json:"cluster"`
	Model    string         `json:"model"`
	Priority fleet.Priority `json:"priority"`
	Rate     float64        `json:"rate"`   // requests/s that are expected in the next tick
	Source   string         `json:"source"` // measured or expected
	// Missed is by which part of itself the forecast for the next tick was wrong so far, in
	// the mean; Dispersion the variance of counts over their mean, 1 where arrivals come by
	// chance alone. Both are 0 while they are not known.
	Missed     float64 `json:"missed,omitempty"`
	Dispersion float64 `json:"dispersion,omitempty"`
	// DataPlanes is how many measure it; Age is that of the oldest of their reports, and
	// Window what their rates cover, in seconds.
	DataPlanes int     `json:"data_planes"`
	Age        float64 `json:"age_seconds,omitempty"`
	Window     float64 `json:"window_seconds,omitempty"`
	// Counts since the data planes started.
	Requests     uint64 `json:"requests"`
	Retries      uint64 `json:"retries"` // that clients sent again; not in Requests
	Cancelled    uint64 `json:"cancelled"`
	PromptTokens uint64 `json:"prompt_tokens"`
	OutputTokens uint64 `json:"output_tokens"`
	CachedTokens uint64 `json:"cached_tokens"` // of the prompts', those that engines had
	Samples      uint64 `json:"samples"`       // answers whose tokens are counted
	Estimated    uint64 `json:"estimated"`     // of these, by their sizes
}

// Demands lists the demand by cluster, model and priority.
func (c *Control) Demands(now time.Time) []Demand {
	planes := c.reports.live(now)
	view := tick.View(c.inForce(now), planes, now)
	out := make([]Demand, 0, len(view.Demands))
	at := map[tick.Source]int{}
	for _, d := range view.Demands {
		at[tick.Source{Cluster: d.Cluster, Model: d.Model, Priority: d.Priority}] = len(out)
		out = append(out, Demand{Cluster: d.Cluster, Model: d.Model, Priority: d.Priority, Rate: d.Rate, Source: SourceExpected})
	}
	measured := make([]float64, len(out))
	for _, p := range planes {
		for _, d := range p.Demands {
			if i, ok := at[tick.Source{Cluster: p.Cluster, Model: d.Model, Priority: fleet.Priority(d.Priority)}]; ok {
				out[i].add(d, now.Sub(p.Received))
				measured[i] += d.Rate
			}
		}
	}
	var forecasts map[tick.Source]tick.Forecast
	if s := c.state.Load(); s != nil {
		forecasts = s.Forecasts
	}
	for i := range out { // the view may have taken what was expected instead
		d := &out[i]
		if d.DataPlanes > 0 && measured[i] == d.Rate {
			d.Source = SourceMeasured
		}
		if f, ok := forecasts[tick.Source{Cluster: d.Cluster, Model: d.Model, Priority: d.Priority}]; ok && d.Source == SourceMeasured {
			d.Rate, d.Missed, d.Dispersion = f.Rate, f.Missed, f.Dispersion
		}
	}
	return out
}

// add adds what one data plane measured.
func (d *Demand) add(r *pb.Demand, age time.Duration) {
	d.DataPlanes++
	d.Age, d.Window = max(d.Age, age.Seconds()), max(d.Window, r.Window)
	d.Requests, d.Retries, d.Cancelled = d.Requests+r.Count, d.Retries+r.Retries, d.Cancelled+r.Cancelled
	d.PromptTokens, d.OutputTokens, d.CachedTokens = d.PromptTokens+r.PromptTokens, d.OutputTokens+r.OutputTokens, d.CachedTokens+r.CachedTokens
	d.Samples, d.Estimated = d.Samples+r.Samples, d.Estimated+r.Estimated
}

// Distance is the network time of a round trip from a cluster to a region, or to one
// engine there.
type Distance struct {
	Cluster string  `json:"cluster"`
	Region  string  `json:"region"`
	Engine  string  `json:"engine,omitempty"` // the one that is meant, if not all of the region
	Seconds float64 `json:"seconds"`
	Source  string  `json:"source"` // measured, configured or geography
	// Age is that of the measurement, in seconds; Configured is what counts without one.
	Age        *float64 `json:"age_seconds,omitempty"`
	Configured float64  `json:"configured"`
}

// Distances lists the distances by cluster, region and engine.
func (c *Control) Distances(now time.Time) []Distance {
	cfg, planes := c.inForce(now), c.reports.live(now)
	measured := tick.Measured(planes, now)
	out := []Distance{}
	for _, d := range cfg.View().Distances {
		x := Distance{Cluster: d.Cluster, Region: d.Region, Engine: d.Engine, Seconds: d.Seconds, Source: SourceConfigured, Configured: d.Seconds}
		if d.Engine == "" && !cfg.WrittenDistance(d.Cluster, d.Region) {
			x.Source = SourceGeography
		}
		if m, ok := measured[[2]string{d.Cluster, d.Region}]; ok && d.Engine == "" {
			age := m.Age.Seconds()
			x.Seconds, x.Source, x.Age = m.Seconds, SourceMeasured, &age
		}
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b Distance) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Region, b.Region), cmp.Compare(a.Engine, b.Engine))
	})
	return out
}
