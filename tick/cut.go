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
// replicas is the number of data planes of a cluster, between which the limits
// of its work in flight are divided.
func Cut(c *config.Config, plan *fleet.Plan, replicas map[string]int) []*fleet.Snapshot {
	table, index := engineTable(c, plan)
	crowds := crowdsOf(c)
	byCluster := map[string]*fleet.Snapshot{}
	out := make([]*fleet.Snapshot, 0, len(c.Clusters))
	for _, cl := range c.Clusters {
		s := &fleet.Snapshot{Cluster: cl.Name, Engines: table, Rows: []fleet.SnapshotRow{}}
		byCluster[cl.Name] = s
		out = append(out, s)
	}
	for i := range plan.Rows {
		r := &plan.Rows[i]
		if s := byCluster[r.Cluster]; s != nil && len(r.Arcs) > 0 {
			row := cutRow(plan, r, index, crowds)
			setLimits(plan, r, &row, table, crowds, max(replicas[r.Cluster], 1))
			s.Rows = append(s.Rows, row)
		}
	}
	for _, s := range out {
		slices.SortFunc(s.Rows, func(a, b fleet.SnapshotRow) int { return cmp.Compare(a.Model, b.Model) })
	}
	return out
}

func cutRow(plan *fleet.Plan, r *fleet.Row, index map[string]int32, crowds map[string]crowd) fleet.SnapshotRow {
	row := fleet.SnapshotRow{Model: r.Model, Shed: r.Shed}
	load, capacity := 0.0, 0.0
	var spare []fleet.Target
	work := fleet.Model{Work: r.Work}.Load()
	for _, a := range r.Arcs {
		e := &plan.Engines[a.Engine]
		t := fleet.Target{Engine: index[e.Name], Weight: a.Weight, Network: a.Network, Predicted: a.Network + work*min(e.Seconds, crowds[e.Name].seconds)}
		if a.Weight == 0 {
			spare = append(spare, t)
			continue
		}
		load, capacity = load+e.Load, capacity+e.Capacity
		row.Targets = append(row.Targets, t)
	}
	if capacity > 0 {
		row.Utilisation = load / capacity
	}
	slices.SortStableFunc(spare, func(a, b fleet.Target) int { return cmp.Compare(a.Predicted, b.Predicted) })
	row.Targets = append(row.Targets, spare[:min(len(spare), fallbacksPerRow)]...)
	slices.SortFunc(row.Targets, func(a, b fleet.Target) int { return cmp.Compare(a.Engine, b.Engine) })
	return row
}

// Crowding is how many times the requests that an engine holds at its capacity
// may be there before data planes stop sending more: a plan is exceeded by that
// much only when it is wrong.
const Crowding = 3

// LeastLimit is the least limit of a target, in requests: a data plane must always
// be able to try.
const LeastLimit = 4

// crowd is what an engine holds at its capacity.
type crowd struct {
	requests float64 // in the engine
	capacity float64 // requests/s
	seconds  float64 // that a request of work 1 then takes: beyond, no prediction is worth anything
}

func crowdsOf(c *config.Config) map[string]crowd {
	out := make(map[string]crowd, len(c.Engines))
	for _, e := range c.Engines {
		m := latency.New(e.Fleet().Profile)
		out[e.Name] = crowd{m.Phi(m.Capacity()), m.Capacity(), m.Latency(m.Capacity())}
	}
	return out
}

// setLimits says how many requests a data plane may have at each engine of a row:
// a few times what the engine holds at its capacity, divided between the rows
// that use it by their part of its load.
func setLimits(plan *fleet.Plan, r *fleet.Row, row *fleet.SnapshotRow, table []fleet.SnapshotEngine, crowds map[string]crowd, replicas int) {
	part, work := map[string]float64{}, fleet.Model{Work: r.Work}.Load()
	for _, a := range r.Arcs {
		if e := plan.Engines[a.Engine]; e.Load > 0 {
			part[e.Name] = min(1, a.Weight*r.Admitted()*work/e.Load)
		} else {
			part[e.Name] = 1 // nobody uses it: whoever must may
		}
	}
	for i := range row.Targets {
		t := &row.Targets[i]
		name := table[t.Engine].Name
		c := crowds[name]
		held := c.requests + c.capacity/work*t.Network
		t.Limit = max(LeastLimit, math.Ceil(Crowding*held*part[name]/float64(replicas)))
	}
}

// engineTable lists the configured engines by name, each with the cluster that
// reads its signals: the nearest.
func engineTable(c *config.Config, plan *fleet.Plan) ([]fleet.SnapshotEngine, map[string]int32) {
	planned := make(map[string]float64, len(plan.Engines))
	for _, e := range plan.Engines {
		planned[e.Name] = e.Capacity
	}
	table := make([]fleet.SnapshotEngine, 0, len(c.Engines))
	for _, e := range c.Engines {
		capacity, ok := planned[e.Name]
		if !ok { // it is away: what it would have
			capacity = latency.New(e.Fleet().Profile).Capacity()
		}
		table = append(table, fleet.SnapshotEngine{
			Name: e.Name, Region: e.Region, URL: e.URL, Kind: e.Kind, Protocol: e.Protocol,
			Capacity: capacity, Collector: nearest(c, e.Region),
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
// fractions. Predictions, limits and utilisation follow the load from tick to tick
// and make no new version.
func Same(a, b []*fleet.Snapshot) bool {
	return slices.EqualFunc(a, b, func(x, y *fleet.Snapshot) bool {
		return x.Cluster == y.Cluster && slices.Equal(x.Engines, y.Engines) &&
			slices.EqualFunc(x.Rows, y.Rows, func(r, s fleet.SnapshotRow) bool {
				return r.Model == s.Model && r.Shed == s.Shed && slices.EqualFunc(r.Targets, s.Targets, func(t, u fleet.Target) bool {
					return t.Engine == u.Engine && t.Weight == u.Weight
				})
			})
	})
}
