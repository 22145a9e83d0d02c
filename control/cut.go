package control

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

// cut makes one snapshot per cluster of a plan. Every configured engine stands
// in the engine table, dead ones too: somebody must notice when they are back.
func cut(c *config.Config, plan *fleet.Plan, view *fleet.View) []*fleet.Snapshot {
	table, index := engineTable(c, view)
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
			s.Rows = append(s.Rows, cutRow(plan, r, index))
		}
	}
	for _, s := range out {
		slices.SortFunc(s.Rows, func(a, b fleet.SnapshotRow) int { return cmp.Compare(a.Model, b.Model) })
	}
	return out
}

func cutRow(plan *fleet.Plan, r *fleet.Row, index map[string]int32) fleet.SnapshotRow {
	row := fleet.SnapshotRow{Model: r.Model, Shed: r.Shed}
	load, capacity := 0.0, 0.0
	var spare []fleet.Target
	for _, a := range r.Arcs {
		e := &plan.Engines[a.Engine]
		t := fleet.Target{Engine: index[e.Name], Weight: a.Weight, Network: a.Network, Predicted: a.Network + e.Latency}
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

// engineTable lists the configured engines by name, each with the cluster that
// reads its signals: the nearest.
func engineTable(c *config.Config, view *fleet.View) ([]fleet.SnapshotEngine, map[string]int32) {
	capacity := map[string]float64{}
	for _, e := range c.View().Engines {
		capacity[e.Name] = latency.New(e.Profile).Capacity()
	}
	table := make([]fleet.SnapshotEngine, 0, len(c.Engines))
	for _, e := range c.Engines {
		table = append(table, fleet.SnapshotEngine{
			Name: e.Name, Region: e.Region, URL: e.URL, Kind: e.Kind,
			Capacity: capacity[e.Name], Collector: nearest(c, e.Region),
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

// same reports whether two cuts route alike: whatever a data plane uses is
// equal, only when they were made differs.
func same(a, b []*fleet.Snapshot) bool {
	return slices.EqualFunc(a, b, func(x, y *fleet.Snapshot) bool {
		return x.Cluster == y.Cluster && slices.Equal(x.Engines, y.Engines) &&
			slices.EqualFunc(x.Rows, y.Rows, func(r, s fleet.SnapshotRow) bool {
				return r.Model == s.Model && r.Shed == s.Shed && slices.EqualFunc(r.Targets, s.Targets, func(t, u fleet.Target) bool {
					return t.Engine == u.Engine && t.Weight == u.Weight
				})
			})
	})
}
