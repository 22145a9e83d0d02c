package tick

import (
	"cmp"
	"slices"
	"time"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
)

const (
	// ReadingLease is how long an engine's reading counts. An older one says
	// nothing: stale is not dead.
	ReadingLease = 15 * time.Second
	// deadAfter is how many readings in a row must fail to reach an engine
	// before it is taken for dead.
	deadAfter = 2
	// settled is the window a measured rate must cover before it replaces the
	// expected one.
	settled = 3 * time.Second
)

// Report is what a data plane said, and when it came.
type Report struct {
	*pb.ReportRequest
	Received time.Time
}

// Member is the cluster that the report is of, or what fleet.Collectors names.
func (r Report) Member() string {
	if r.Collects != "" {
		return fleet.Collectors(r.Collects)
	}
	return r.Cluster
}

// instant is when a report was made, by its maker's clock and by ours.
type instant struct{ own, ours time.Time }

func (r Report) instant() instant { return instant{r.Time.AsTime(), r.Received} }

// clockJump is by how much the time between two reports may differ by either clock: more is no
// delay on the way but a clock that was set.
const clockJump = 2 * time.Second

// since is the seconds between two reports of one maker, 0 where they cannot be told: by
// its own clock, which knows of no delays, unless that was set meanwhile.
func (m instant) since(before instant) float64 {
	own, ours := m.own.Sub(before.own), m.ours.Sub(before.ours)
	if own <= 0 || own-ours > clockJump || ours-own > clockJump {
		own = ours
	}
	return max(0, own.Seconds())
}

// View joins the configured fleet with what the data planes report. It is a
// function of its arguments alone.
func View(c *config.Config, planes []Report, now time.Time) *fleet.View {
	v := c.View()
	v.Time = now
	v.Demands = demands(c, planes)
	v.Distances = distances(v.Distances, planes, now)
	v.Engines = engines(c, v.Engines, planes, now)
	return v
}

// Members lists the instances that report, sorted: the data planes of each cluster, and the
// collectors of each region by fleet.Collectors.
func Members(planes []Report) map[string][]string {
	out := map[string][]string{}
	for _, p := range planes {
		out[p.Member()] = append(out[p.Member()], p.Instance)
	}
	for _, list := range out {
		slices.Sort(list)
	}
	return out
}

// plausible refuses what no measurement gives: NaN, infinities, negative numbers,
// and those so small that arithmetic with them is not exact.
func plausible(x float64) bool { return x == 0 || x >= 1e-9 && x < 1e9 }

// demands adds up what the replicas of each cluster measured. Until they have
// measured for a while the expected demand counts, if it is more. What no engine
// serves is left out: a data plane reports a model that a reload took away until
// it has the next snapshot, and one of another version may report anything.
func demands(c *config.Config, planes []Report) []fleet.Demand {
	served := map[string]bool{}
	for _, e := range c.Engines {
		for _, m := range e.Models {
			served[m] = true
		}
	}
	rates := map[Source]float64{}
	window := map[string]time.Duration{} // longest of each cluster
	for _, p := range planes {
		for _, d := range p.Demands {
			if d.Priority >= fleet.NumPriorities || !served[d.Model] || c.ClusterByName(p.Cluster) == nil {
				continue
			}
			if plausible(d.Rate) {
				rates[Source{p.Cluster, d.Model, fleet.Priority(d.Priority)}] += d.Rate
			}
			window[p.Cluster] = max(window[p.Cluster], time.Duration(d.Window*float64(time.Second)))
		}
	}
	for _, d := range c.View().Demands {
		key := Source{d.Cluster, d.Model, d.Priority}
		if window[d.Cluster] < settled {
			rates[key] = max(rates[key], d.Rate)
		}
	}
	out := make([]fleet.Demand, 0, len(rates))
	for k, rate := range rates {
		out = append(out, fleet.Demand{Cluster: k.Cluster, Model: k.Model, Priority: k.Priority, Rate: rate})
	}
	slices.SortFunc(out, func(a, b fleet.Demand) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Model, b.Model), cmp.Compare(a.Priority, b.Priority))
	})
	return out
}

// Measurement is a distance that data planes measured.
type Measurement struct {
	Seconds float64
	Age     time.Duration // how long ago it was measured last
}

// Measured gives the distances that a cluster's replicas measured, the least of
// each, by cluster and region.
func Measured(planes []Report, now time.Time) map[[2]string]Measurement {
	measured := map[[2]string]Measurement{}
	for _, p := range planes {
		for _, d := range p.Distances {
			key := [2]string{p.Cluster, d.Region}
			if old, ok := measured[key]; plausible(d.Seconds) && (!ok || d.Seconds < old.Seconds) {
				measured[key] = Measurement{d.Seconds, now.Sub(p.Received) + time.Duration(max(0, min(d.Age, 1e6))*float64(time.Second))}
			}
		}
	}
	return measured
}

// distances replaces configured distances by measured ones.
func distances(configured []fleet.Distance, planes []Report, now time.Time) []fleet.Distance {
	measured := Measured(planes, now)
	out := slices.Clone(configured)
	for i := range out {
		if m, ok := measured[[2]string{out[i].Cluster, out[i].Region}]; ok && out[i].Engine == "" {
			out[i].Seconds = m.Seconds
		}
	}
	return out
}

// engines leaves out the dead and draining ones, and those that data planes found to
// serve nobody, and sets penalties. A model that
// would be left with none keeps them all: routing to where it may fail is better
// than nowhere.
func engines(c *config.Config, configured []fleet.Engine, planes []Report, now time.Time) []fleet.Engine {
	penalties := map[string]float64{}
	for _, p := range planes {
		for _, x := range p.Penalties {
			if plausible(x.Seconds) {
				penalties[x.Engine] = max(penalties[x.Engine], x.Seconds)
			}
		}
	}
	away := map[string]bool{}
	newest := Readings(planes, now)
	for name, r := range newest {
		away[name] = Dead(r)
	}
	for name, m := range Marks(planes, now) {
		away[name] = away[name] || m.State.TakesNothing()
	}
	for _, e := range c.Engines {
		away[e.Name] = away[e.Name] || e.Drain
	}
	alive := map[string]bool{} // models
	for _, e := range configured {
		for _, m := range e.Models {
			alive[m] = alive[m] || !away[e.Name]
		}
	}
	out := make([]fleet.Engine, 0, len(configured))
	for _, e := range configured {
		needed := slices.ContainsFunc(e.Models, func(m string) bool { return !alive[m] })
		if !away[e.Name] || needed {
			e.Penalty, e.Busy = penalties[e.Name], busy(newest[e.Name], e.Profile.Batch)
			out = append(out, e)
		}
	}
	return out
}

// Dead says whether a reading within its lease is that of a dead engine.
func Dead(r *pb.Reading) bool { return !r.Reachable && r.Failures >= deadAfter }

// busy is the requests in an engine over those that fit, -1 when no signal says.
func busy(r *pb.Reading, batch float64) float64 {
	if r == nil || r.Running == nil || !plausible(r.GetRunning()+r.GetWaiting()) {
		return -1
	}
	return (r.GetRunning() + r.GetWaiting()) / batch
}

// Readings gives the newest reading of each engine that is within its lease. The
// age is counted from when the report came, so that clocks that differ between
// machines do not matter.
func Readings(planes []Report, now time.Time) map[string]*pb.Reading {
	newest := map[string]*pb.Reading{}
	age := map[string]time.Duration{}
	for _, p := range planes {
		for _, r := range p.Readings {
			old := now.Sub(p.Received) + max(0, p.Time.AsTime().Sub(r.Time.AsTime()))
			if known, ok := age[r.Engine]; old <= ReadingLease && (!ok || old < known) {
				newest[r.Engine], age[r.Engine] = r, old
			}
		}
	}
	return newest
}
