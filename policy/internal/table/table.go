package table

import (
	"slices"
	"strings"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/latency"
)

// Table is a valid view, sorted and numbered. A row is (cluster, model); its
// arcs are the engines of Serving(model), in that order. Arrays by arc have
// ArcCount elements, those of row (c, m) at Row(c, m) and on. Read-only for all
// but Update.
//
// A place is a set of engines of one region that are equally far from every
// cluster: the region itself, but for engines with distances of their own. A
// group is what serves a model at a place, and a cell is a group as seen from one
// cluster.
type Table struct {
	View     *fleet.View
	Clusters []string
	Models   []string // served, or asked for
	Engines  []*fleet.Engine
	Place    []int32         // by engine
	Places   int             // number of places
	Curve    []latency.Model // by engine: what its latency is worth
	Cap      []float64       // by engine, work/s, whatever its ramp
	top      []float64       // by engine: the most that a request is worth at the cap, seconds

	// What a request of each model asks: Work, and what that holds of each Resource,
	// by unit of work.
	Work  []float64
	Holds [Resources][]float64
	// Limits are the engines' limits on what is held, where that depends on the mixture
	// of models; 0 where Cap includes them, or no mixture comes near.
	Limits [Resources][]float64
	Own    []float64            // by element of Serving: fleet.OwnLatency, seconds
	Owns   [][]fleet.OwnLatency // by engine
	plain  []bool               // by engine: its curve is that of the seconds themselves
	worth  [][2]float64         // by model: of a second before and after the first token

	Demand [][fleet.NumPriorities]float64 // by row: c*len(Models)+m, requests/s
	Rate   []float64                      // by row: all priorities

	// GroupStart says where each model's groups begin; one more at the end.
	GroupStart []int32
	// GroupPlace is the place of each group, ascending within a model.
	GroupPlace []int32
	// GroupOf is the group of each element of Serving, by ServingStart and on.
	GroupOf []int32

	distance []float64 // c*Places+place
	start    []int32   // by model: where its engines begin in serving
	serving  []int32
	begin    []int32 // by engine: where its models begin in serves
	serves   []int32
	at       []int32 // by element of serves: the engine's place in serving

	memory memory
}

// Resource is what requests hold of an engine.
type Resource int

// The resources.
const (
	Tokens Resource = iota
	Slots

	Resources = 2
)

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
	t.setModels()
	t.setCurves()
	t.addPlaces(clusters)
	t.addGroups()

	rows := len(t.Clusters) * len(t.Models)
	t.Demand = make([][fleet.NumPriorities]float64, rows)
	t.Rate = make([]float64, rows)
	t.remember(clusters, models)
	t.setDemand()
	return t
}

func (t *Table) setDemand() {
	for i := range t.View.Demands {
		d := &t.View.Demands[i]
		t.Demand[t.memory.demands[i].row][d.Priority] = d.Rate
	}
	for i, d := range t.Demand {
		t.Rate[i] = 0
		for _, rate := range d {
			t.Rate[i] += rate
		}
	}
}

func (t *Table) addEngines() {
	view := t.View
	t.Engines = make([]*fleet.Engine, len(view.Engines))
	for i := range view.Engines {
		t.Engines[i] = &view.Engines[i]
	}
	slices.SortFunc(t.Engines, func(a, b *fleet.Engine) int { return strings.Compare(a.Name, b.Name) })
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
	t.at = make([]int32, len(t.serving))
	next := slices.Clone(t.begin)
	for m := range int32(len(t.Models)) {
		for j, e := range t.Serving(m) {
			t.serves[next[e]] = m
			t.at[next[e]] = t.start[m] + int32(j)
			next[e]++
		}
	}
}

// addGroups numbers what serves each model at each place.
func (t *Table) addGroups() {
	t.GroupStart = make([]int32, 1, len(t.Models)+1)
	t.GroupOf = make([]int32, len(t.serving))
	number := make([]int32, t.Places)
	for m := range int32(len(t.Models)) {
		for i := range number {
			number[i] = -1
		}
		serving := t.Serving(m)
		for _, e := range serving {
			number[t.Place[e]] = 0
		}
		for place, n := range number {
			if n == 0 {
				number[place] = int32(len(t.GroupPlace))
				t.GroupPlace = append(t.GroupPlace, int32(place))
			}
		}
		for j, e := range serving {
			t.GroupOf[int(t.start[m])+j] = number[t.Place[e]]
		}
		t.GroupStart = append(t.GroupStart, int32(len(t.GroupPlace)))
	}
}

// RowIndex is the index of a row in Demand and Rate.
func (t *Table) RowIndex(c, m int32) int { return int(c)*len(t.Models) + int(m) }

// Row is where the arcs of row (c, m) begin in an array by arc.
func (t *Table) Row(c, m int32) int { return int(c)*len(t.serving) + int(t.start[m]) }

// ArcCount is the number of arcs of all rows.
func (t *Table) ArcCount() int { return len(t.Clusters) * len(t.serving) }

// Groups is the number of groups of all models.
func (t *Table) Groups() int { return len(t.GroupPlace) }

// Cell is where cluster c's cells begin in an array by cluster and group.
func (t *Table) Cell(c int32) int { return int(c) * len(t.GroupPlace) }

// Serving lists the engines that serve model m, ascending.
func (t *Table) Serving(m int32) []int32 { return t.serving[t.start[m]:t.start[m+1]] }

// ServingStart is where model m's engines begin in an array by element of
// Serving, all models one after the other.
func (t *Table) ServingStart(m int32) int { return int(t.start[m]) }

// ServingCount is the length of an array by element of Serving.
func (t *Table) ServingCount() int { return len(t.serving) }

// Top is what one more request/s costs everybody at engine e's cap, in seconds.
func (t *Table) Top(e int32) float64 { return t.top[e] }

// Serves lists the models of engine e, ascending.
func (t *Table) Serves(e int32) []int32 { return t.serves[t.begin[e]:t.begin[e+1]] }

// ServesAt gives, for each model of Serves(e), where e stands in an array by
// element of Serving.
func (t *Table) ServesAt(e int32) []int32 { return t.at[t.begin[e]:t.begin[e+1]] }

// Distance is the network time in seconds from cluster c to a place.
func (t *Table) Distance(c, place int32) float64 { return t.distance[int(c)*t.Places+int(place)] }

// Farthest is the greatest distance in seconds from any cluster to a place.
func (t *Table) Farthest(place int32) float64 {
	far := 0.0
	for c := range t.Clusters {
		far = max(far, t.Distance(int32(c), place))
	}
	return far
}

// Network is the network time in seconds from cluster c to engine e.
func (t *Table) Network(c, e int32) float64 {
	return t.Distance(c, t.Place[e]) + t.Engines[e].Offset
}

func numbers(sorted []string) map[string]int32 {
	n := make(map[string]int32, len(sorted))
	for i, s := range sorted {
		n[s] = int32(i)
	}
	return n
}
