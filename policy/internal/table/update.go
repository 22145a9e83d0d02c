package table

import (
	"math"
	"slices"

	"github.com/wardrop-lb/wardrop/fleet"
)

// memory is the view as it was numbered, by position in its slices. It holds
// copies: a caller may well change a view in place between two ticks.
type memory struct {
	clusters  []string
	engines   []engineMemory
	distances []distanceMemory
	demands   []demandMemory
	models    []fleet.Model
}

type engineMemory struct {
	name, region string
	models       []string
	profile      fleet.Profile
	at           int32 // the table's number
}

type distanceMemory struct{ fleet.Distance }

type demandMemory struct {
	cluster, model string
	priority       fleet.Priority
	row            int32
}

func (t *Table) remember(clusters, models map[string]int32) {
	v, m := t.View, &t.memory
	for i := range v.Clusters {
		m.clusters = append(m.clusters, v.Clusters[i].Name)
	}
	for i := range v.Engines {
		e := &v.Engines[i]
		at, _ := t.number(e.Name)
		m.engines = append(m.engines, engineMemory{e.Name, e.Region, slices.Clone(e.Models), e.Profile, at})
	}
	m.models = slices.Clone(v.Models)
	for i := range v.Distances {
		m.distances = append(m.distances, distanceMemory{v.Distances[i]})
	}
	for i := range v.Demands {
		d := &v.Demands[i]
		row := t.RowIndex(clusters[d.Cluster], models[d.Model])
		m.demands = append(m.demands, demandMemory{d.Cluster, d.Model, d.Priority, int32(row)})
	}
}

// Update renumbers nothing: it takes in a view that differs from the last one in
// demand, profiles and other figures of engines alone, without allocating, and
// says whether it could. Such a view is valid when it returns true. Otherwise
// the table is of no more use.
func (t *Table) Update(view *fleet.View) bool {
	m := &t.memory
	if len(view.Clusters) != len(m.clusters) || len(view.Engines) != len(m.engines) ||
		len(view.Distances) != len(m.distances) || len(view.Models) != len(m.models) || len(view.Demands) != len(m.demands) {
		return false
	}
	for i := range view.Clusters {
		if view.Clusters[i].Name != m.clusters[i] {
			return false
		}
	}
	for i := range view.Distances {
		if view.Distances[i] != m.distances[i].Distance {
			return false
		}
	}
	for i := range view.Demands {
		d, was := &view.Demands[i], &m.demands[i]
		if d.Priority != was.priority || d.Model != was.model || d.Cluster != was.cluster || !figure(d.Rate) {
			return false
		}
	}
	t.View = view
	anew, ok := t.updateModels(view)
	if !ok {
		return false
	}
	for i := range view.Engines {
		if !t.updateEngine(&view.Engines[i], &m.engines[i]) {
			return false
		}
	}
	if anew { // not before, for the last view's engines may hold anything by now
		t.setCurves()
	}
	t.setDemand()
	return true
}

// updateModels takes in the models' figures, and says whether these make the engines'
// curves anew.
func (t *Table) updateModels(view *fleet.View) (anew, ok bool) {
	was := t.memory.models
	if slices.Equal(view.Models, was) {
		return false, true
	}
	for i := range view.Models {
		if view.Models[i].Name != was[i].Name || view.Models[i].Validate() != nil {
			return false, false
		}
	}
	copy(was, view.Models)
	t.setModels()
	return true, true
}

func (t *Table) updateEngine(e *fleet.Engine, was *engineMemory) bool {
	if e.Name != was.name || e.Region != was.region || !slices.Equal(e.Models, was.models) ||
		!figure(e.Offset) || !figure(e.Penalty) || !figure(e.Weight) || !(e.Ramp >= 0 && e.Ramp <= 1) {
		return false
	}
	t.Engines[was.at] = e
	if e.Profile != was.profile {
		if e.Profile.Validate() != nil {
			return false
		}
		was.profile = e.Profile
		t.setCurve(int(was.at), e)
	}
	return true
}

// figure says whether x is finite and at least 0.
func figure(x float64) bool { return x >= 0 && x <= math.MaxFloat64 }
