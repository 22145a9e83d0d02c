package table

import (
	"slices"
	"strings"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/latency"
)

// Table is a valid view, sorted and numbered. A row is (cluster, model); its
// arcs are the engines of Serving(model), in that order. Arrays by arc have
// ArcCount elements, those of row (c, m) at Row(c, m) and on. Read-only once
// made.
type Table struct {
	View     *fleet.View
	Clusters []string
	Models   []string // served, or asked for
	Regions  []string // those with engines
	Engines  []*fleet.Engine
	Region   []int32         // by engine
	Curve    []latency.Model // by engine
	Cap      []float64       // by engine, requests/s

	Demand [][fleet.NumPriorities]float64 // by row: c*len(Models)+m, requests/s
	Rate   []float64                      // by row: all priorities

	distance []float64 // c*len(Regions)+r
	start    []int32   // by model: where its engines begin in serving
	serving  []int32
	begin    []int32 // by engine: where its models begin in serves
	serves   []int32
}

// New numbers a valid view.
func New(view *fleet.View) *Table {
	t := &Table{View: view}
	t.addEngines()
	for i := range view.Clusters {
		t.Clusters = append(t.Clusters, view.Clusters[i].Name)
	}
	slices.Sort(t.Clusters)
	clusters := numbers(t.Clusters)
	models := t.addModels()
	t.addDistances(clusters)

	rows := len(t.Clusters) * len(t.Models)
	t.Demand = make([][fleet.NumPriorities]float64, rows)
	t.Rate = make([]float64, rows)
	for _, d := range view.Demands {
		t.Demand[t.RowIndex(clusters[d.Cluster], models[d.Model])][d.Priority] = d.Rate
	}
	for i, d := range t.Demand {
		for _, rate := range d {
			t.Rate[i] += rate
		}
	}
	return t
}

func (t *Table) addEngines() {
	view := t.View
	t.Engines = make([]*fleet.Engine, len(view.Engines))
	for i := range view.Engines {
		t.Engines[i] = &view.Engines[i]
	}
	slices.SortFunc(t.Engines, func(a, b *fleet.Engine) int { return strings.Compare(a.Name, b.Name) })
	n := len(t.Engines)
	t.Region, t.Curve, t.Cap = make([]int32, n), make([]latency.Model, n), make([]float64, n)
	seen := map[string]bool{}
	for i, e := range t.Engines {
		t.Curve[i] = latency.New(e.Profile)
		t.Cap[i] = t.Curve[i].Capacity()
		if !seen[e.Region] {
			seen[e.Region] = true
			t.Regions = append(t.Regions, e.Region)
		}
	}
	slices.Sort(t.Regions)
	regions := numbers(t.Regions)
	for i, e := range t.Engines {
		t.Region[i] = regions[e.Region]
	}
}

func (t *Table) addModels() map[string]int32 {
	for _, e := range t.Engines {
		t.Models = append(t.Models, e.Models...)
	}
	for _, d := range t.View.Demands {
		t.Models = append(t.Models, d.Model)
	}
	slices.Sort(t.Models)
	t.Models = slices.Compact(t.Models)
	models := numbers(t.Models)

	t.start = make([]int32, len(t.Models)+1)
	for _, e := range t.Engines {
		for _, m := range e.Models {
			t.start[models[m]+1]++
		}
	}
	for m := range t.Models {
		t.start[m+1] += t.start[m]
	}
	t.serving = make([]int32, t.start[len(t.Models)])
	next := slices.Clone(t.start)
	for i, e := range t.Engines {
		for _, name := range e.Models {
			m := models[name]
			t.serving[next[m]] = int32(i)
			next[m]++
		}
	}
	t.addServes()
	return models
}

// addServes turns serving around, which sorts each engine's models.
func (t *Table) addServes() {
	t.begin = make([]int32, len(t.Engines)+1)
	for i, e := range t.Engines {
		t.begin[i+1] = t.begin[i] + int32(len(e.Models))
	}
	t.serves = make([]int32, len(t.serving))
	next := slices.Clone(t.begin)
	for m := range int32(len(t.Models)) {
		for _, e := range t.Serving(m) {
			t.serves[next[e]] = m
			next[e]++
		}
	}
}

func (t *Table) addDistances(clusters map[string]int32) {
	regions := numbers(t.Regions)
	t.distance = make([]float64, len(t.Clusters)*len(t.Regions))
	for _, d := range t.View.Distances {
		if r, ok := regions[d.Region]; ok {
			t.distance[int(clusters[d.Cluster])*len(t.Regions)+int(r)] = d.Seconds
		}
	}
}

// RowIndex is the index of a row in Demand and Rate.
func (t *Table) RowIndex(c, m int32) int { return int(c)*len(t.Models) + int(m) }

// Row is where the arcs of row (c, m) begin in an array by arc.
func (t *Table) Row(c, m int32) int { return int(c)*len(t.serving) + int(t.start[m]) }

// ArcCount is the number of arcs of all rows.
func (t *Table) ArcCount() int { return len(t.Clusters) * len(t.serving) }

// Serving lists the engines that serve model m, ascending.
func (t *Table) Serving(m int32) []int32 { return t.serving[t.start[m]:t.start[m+1]] }

// Serves lists the models of engine e, ascending.
func (t *Table) Serves(e int32) []int32 { return t.serves[t.begin[e]:t.begin[e+1]] }

// Distance is the network time in seconds from cluster c to region r.
func (t *Table) Distance(c, r int32) float64 { return t.distance[int(c)*len(t.Regions)+int(r)] }

// Farthest is the greatest distance in seconds from any cluster to region r.
func (t *Table) Farthest(r int32) float64 {
	far := 0.0
	for c := range t.Clusters {
		far = max(far, t.Distance(int32(c), r))
	}
	return far
}

// Network is the network time in seconds from cluster c to engine e.
func (t *Table) Network(c, e int32) float64 {
	return t.Distance(c, t.Region[e]) + t.Engines[e].Offset
}

func numbers(sorted []string) map[string]int32 {
	n := make(map[string]int32, len(sorted))
	for i, s := range sorted {
		n[s] = int32(i)
	}
	return n
}
