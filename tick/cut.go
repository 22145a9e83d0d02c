package tick

import (
	"cmp"
	"math"
	"slices"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/latency"
)

// fallbacksPerRow is how many engines of no weight a row names for bad days.
const fallbacksPerRow = 8

// Cut makes one snapshot per cluster of a plan. Every configured engine stands
// in the engine table, dead ones too: somebody must notice when they are back.
// members are the data planes of each cluster (Members), between which the limits
// of its work in flight are divided; a cluster that it does not name is taken for one
// with an unknown number.
//
// Limits rest on the profiles of the view that the plan was made of.
func Cut(c *config.Config, view *fleet.View, plan *fleet.Plan, members map[string][]string) []*fleet.Snapshot {
	table, index := engineTable(c, plan, members)
	engines := cutEngines(view, plan, index)
	byCluster := map[string]*fleet.Snapshot{}
	out := make([]*fleet.Snapshot, 0, len(c.Clusters))
	for _, cl := range c.Clusters {
		s := &fleet.Snapshot{Cluster: cl.Name, Replicas: len(members[cl.Name]), Planes: members[cl.Name], Engines: table, Rows: []fleet.SnapshotRow{}}
		byCluster[cl.Name] = s
		out = append(out, s)
	}
	for i := range plan.Rows {
		r := &plan.Rows[i]
		if s := byCluster[r.Cluster]; s != nil && len(r.Arcs) > 0 {
			s.Rows = append(s.Rows, cutRow(plan, r, engines, leastPart/float64(len(plan.Rows)), max(len(members[r.Cluster]), 1)))
		}
	}
	for _, s := range out {
		slices.SortFunc(s.Rows, func(a, b fleet.SnapshotRow) int { return cmp.Compare(a.Model, b.Model) })
	}
	return append(out, cutCollectors(c, table, members)...)
}

// cutCollectors makes a snapshot of engines alone for the collectors of each region that has
// some.
func cutCollectors(c *config.Config, table []fleet.SnapshotEngine, members map[string][]string) (out []*fleet.Snapshot) {
	regions := map[string]bool{}
	for _, e := range c.Engines {
		name := fleet.Collectors(e.Region)
		if !regions[name] && len(members[name]) > 0 {
			out = append(out, &fleet.Snapshot{Cluster: name, Planes: members[name], Engines: table, Rows: []fleet.SnapshotRow{}})
		}
		regions[name] = true
	}
	slices.SortFunc(out, func(a, b *fleet.Snapshot) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return out
}

// cutEngine is what a cut needs of an engine of the plan.
type cutEngine struct {
	at int32 // in the engine table
	crowd
}

func cutEngines(view *fleet.View, plan *fleet.Plan, index map[string]int32) []cutEngine {
	crowds := crowdsOf(view)
	engines := make([]cutEngine, len(plan.Engines))
	for i := range plan.Engines {
		name := plan.Engines[i].Name
		engines[i] = cutEngine{index[name], crowds[name]}
	}
	return engines
}

// cutRow names a row's engines and a few of no weight, each with how many requests a
// data plane may have there: a few times what the engine holds at its capacity,
// divided between the rows that use it by their part of its load, least at least.
func cutRow(plan *fleet.Plan, r *fleet.Row, engines []cutEngine, least float64, replicas int) fleet.SnapshotRow {
	row := fleet.SnapshotRow{Model: r.Model, Shed: r.Shed}
	load, capacity := 0.0, 0.0
	var spare [fallbacksPerRow]fleet.Target // the nearest, nearest first
	spares := 0
	work, admitted := fleet.Model{Work: r.Work}.Load(), r.Admitted()
	for _, a := range r.Arcs {
		e, c := &plan.Engines[a.Engine], &engines[a.Engine]
		t := fleet.Target{Engine: c.at, Weight: a.Weight, Network: a.Network, Predicted: a.Network + work*min(e.Seconds, c.seconds)}
		if a.Weight == 0 && spares == fallbacksPerRow && t.Predicted >= spare[spares-1].Predicted {
			continue
		}
		part := 1.0 // of an engine that nobody uses: whoever must may
		if e.Load > 0 {
			part = min(1, max(a.Weight*admitted*work/e.Load, least))
		}
		held := c.requests + c.capacity/work*t.Network
		t.Limit = max(LeastLimit, math.Ceil(Crowding*held*part/float64(replicas)))
		if a.Weight == 0 {
			spares = insert(&spare, spares, t)
			continue
		}
		load, capacity = load+e.Load, capacity+e.Capacity
		row.Targets = append(row.Targets, t)
	}
	if capacity > 0 {
		row.Utilisation = load / capacity
	}
	row.Targets = append(row.Targets, spare[:spares]...)
	slices.SortFunc(row.Targets, func(a, b fleet.Target) int { return cmp.Compare(a.Engine, b.Engine) })
	return row
}

// insert puts a target among the nearest, after those that are as near; the last falls
// out where there is no room.
func insert(spare *[fallbacksPerRow]fleet.Target, n int, t fleet.Target) int {
	i := n
	for i > 0 && spare[i-1].Predicted > t.Predicted {
		i--
	}
	if i == fallbacksPerRow {
		return n
	}
	n = min(n+1, fallbacksPerRow)
	copy(spare[i+1:n], spare[i:n-1])
	spare[i] = t
	return n
}

// Crowding is how many times the requests that an engine holds at its capacity
// may be there before data planes stop sending more: a plan is exceeded by that
// much only when it is wrong, or when a burst comes that would rather wait than be
// refused. Half of it refuses more than twice as many of a bursty trace; twice of it
// saves few, and keeps more waiting for what clients then give up.
const Crowding = 6

// leastPart is how much of an even part of an engine a row may use at least, whatever it
// sent there a tick ago: a burst may come anywhere.
const leastPart = 0.5

// LeastLimit is the least limit of a target, in requests: a data plane must always
// be able to try.
const LeastLimit = 4

// crowd is what an engine holds at its capacity.
type crowd struct {
	requests float64 // in the engine
	capacity float64 // requests/s
	seconds  float64 // that a request of work 1 then takes: beyond, no prediction is worth anything
}

func crowdsOf(view *fleet.View) map[string]crowd {
	out := make(map[string]crowd, len(view.Engines))
	for i := range view.Engines {
		e := &view.Engines[i]
		m := latency.New(e.Profile)
		out[e.Name] = crowd{m.Phi(m.Capacity()), m.Capacity(), m.Latency(m.Capacity())}
	}
	return out
}

// engineTable lists the configured engines by name, each with who reads its
// signals: its region's collectors, or the nearest cluster where there are none.
func engineTable(c *config.Config, plan *fleet.Plan, members map[string][]string) ([]fleet.SnapshotEngine, map[string]int32) {
	planned := make(map[string]float64, len(plan.Engines))
	for _, e := range plan.Engines {
		planned[e.Name] = e.Capacity
	}
	table := make([]fleet.SnapshotEngine, 0, len(c.Engines))
	collectors := map[string]string{} // by region
	for _, e := range c.Engines {
		if _, ok := collectors[e.Region]; !ok {
			collectors[e.Region] = nearest(c, e.Region)
			if own := fleet.Collectors(e.Region); len(members[own]) > 0 {
				collectors[e.Region] = own
			}
		}
		capacity, ok := planned[e.Name]
		if !ok { // it is away: what it would have
			capacity = latency.New(e.Fleet().Profile).Capacity()
		}
		table = append(table, fleet.SnapshotEngine{
			Name: e.Name, Region: e.Region, URL: e.URL, Kind: e.Kind, Protocol: e.Protocol,
			Capacity: capacity, Collector: collectors[e.Region], Metrics: e.Metrics, Names: e.Signals,
		})
	}
	slices.SortFunc(table, func(a, b fleet.SnapshotEngine) int { return cmp.Compare(a.Name, b.Name) })
	index := make(map[string]int32, len(table))
	for i := range table {
		index[table[i].Name] = int32(i)
	}
	return table, index
}

// nearest is the cluster with the least configured distance to a region; of
// several the first by name. Configured, so that it does not change from report
// to report.
func nearest(c *config.Config, region string) string {
	best, distance := "", math.Inf(1)
	for _, cl := range c.Clusters {
		d := cl.Distances[region].Seconds()
		if d < distance || d == distance && cl.Name < best {
			best, distance = cl.Name, d
		}
	}
	return best
}

// Same reports whether two cuts route alike: the same engines, weights and shed
// fractions. Predictions, limits, utilisation and replicas follow the load from tick to tick
// and make no new version.
func Same(a, b []*fleet.Snapshot) bool {
	return slices.EqualFunc(a, b, (*fleet.Snapshot).RoutesLike)
}
