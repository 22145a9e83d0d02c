package tick

import (
	"cmp"
	"slices"
	"strings"

	"github.com/wardrop-lb/wardrop/fleet"
)

// Planned is the plan that snapshots were cut from, as far as they tell: the weights in use
// and what is shed, for a leader that goes on from another's plan. It has the newest epoch
// and version among them; nil without snapshots.
func Planned(snapshots []*fleet.Snapshot) *fleet.Plan {
	if len(snapshots) == 0 {
		return nil
	}
	plan := &fleet.Plan{}
	names := map[string]bool{}
	for _, s := range snapshots {
		if cmp.Or(cmp.Compare(s.Epoch, plan.Epoch), cmp.Compare(s.Version, plan.Version)) >= 0 {
			plan.Epoch, plan.Version, plan.Time = s.Epoch, s.Version, s.Time
		}
		for i := range s.Engines {
			if e := &s.Engines[i]; !names[e.Name] {
				names[e.Name] = true
				plan.Engines = append(plan.Engines, fleet.EngineLoad{Name: e.Name, Capacity: e.Capacity})
			}
		}
	}
	slices.SortFunc(plan.Engines, func(a, b fleet.EngineLoad) int { return strings.Compare(a.Name, b.Name) })
	index := make(map[string]int32, len(plan.Engines))
	for i := range plan.Engines {
		index[plan.Engines[i].Name] = int32(i)
	}
	for _, s := range snapshots {
		for i := range s.Rows {
			plan.Rows = append(plan.Rows, plannedRow(s, &s.Rows[i], index))
		}
	}
	slices.SortFunc(plan.Rows, func(a, b fleet.Row) int {
		return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Model, b.Model))
	})
	return plan
}

func plannedRow(s *fleet.Snapshot, row *fleet.SnapshotRow, index map[string]int32) fleet.Row {
	out := fleet.Row{Cluster: s.Cluster, Model: row.Model, Shed: row.Shed, Arcs: make([]fleet.Arc, 0, len(row.Targets))}
	for _, t := range row.Targets {
		if t.Weight > 0 {
			out.Arcs = append(out.Arcs, fleet.Arc{Engine: index[s.Engines[t.Engine].Name], Weight: t.Weight, Network: t.Network})
		}
	}
	slices.SortFunc(out.Arcs, func(a, b fleet.Arc) int { return cmp.Compare(a.Engine, b.Engine) })
	return out
}
