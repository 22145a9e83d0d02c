package certify

import (
	"math"
	"slices"
	"strings"

	"github.com/wardrop-lb/wardrop/fleet"
)

// index is what a view says beyond its figures: who serves what, and from how
// far. Engines, clusters and models are numbered by name. A target is an engine
// as one of those that serve a model; a group is what serves a model from one
// region and is equally far from every cluster; a cell is a group as seen from a
// cluster.
type index struct {
	known    bool
	copied   fleet.View // the names and distances that the index was made of
	clusters []string
	models   []string
	order    []int32   // by engine number: position in the view
	targets  [][]int32 // by model: engines, ascending
	serves   [][]int32 // by engine: models, ascending
	start    []int32   // by model: number of its first target
	group    []int32   // by target
	first    []int32   // by group: its first engine
	groups   []int32   // by model: number of its first group; one more at the end
	distance []float64 // cluster*len(first)+group, seconds
	far      []float64 // by engine: greatest distance from any cluster, seconds
	part     []int32   // by engine: its component
	parts    int
	row      []int32 // by demand's position: cluster*len(models)+model
}

// use makes the index fit the view, and says whether it did already.
func (x *index) use(view *fleet.View) bool {
	if x.known && x.fits(view) {
		return true
	}
	*x = index{known: true}
	x.copied = fleet.View{
		Clusters: slices.Clone(view.Clusters), Engines: slices.Clone(view.Engines),
		Demands: slices.Clone(view.Demands), Distances: slices.Clone(view.Distances),
	}
	for i := range x.copied.Engines {
		x.copied.Engines[i].Models = slices.Clone(view.Engines[i].Models)
	}
	for i := range view.Engines {
		x.order = append(x.order, int32(i))
	}
	slices.SortFunc(x.order, func(a, b int32) int { return strings.Compare(view.Engines[a].Name, view.Engines[b].Name) })
	for i := range view.Clusters {
		x.clusters = append(x.clusters, view.Clusters[i].Name)
	}
	for i := range view.Engines {
		x.models = append(x.models, view.Engines[i].Models...)
	}
	for i := range view.Demands {
		x.models = append(x.models, view.Demands[i].Model)
	}
	slices.Sort(x.clusters)
	slices.Sort(x.models)
	x.models = slices.Compact(x.models)
	x.setTargets(view)
	x.setDistances(view)
	x.setParts()
	return false
}

// fits compares all that the index was made of.
func (x *index) fits(view *fleet.View) bool {
	was := &x.copied
	return slices.EqualFunc(view.Clusters, was.Clusters, func(a, b fleet.Cluster) bool { return a.Name == b.Name }) &&
		slices.Equal(view.Distances, was.Distances) && x.demandsFit(view) && x.enginesFit(view)
}

func (x *index) demandsFit(view *fleet.View) bool {
	if len(view.Demands) != len(x.copied.Demands) {
		return false
	}
	for i := range view.Demands {
		a, b := &view.Demands[i], &x.copied.Demands[i]
		if a.Model != b.Model || a.Cluster != b.Cluster {
			return false
		}
	}
	return true
}

func (x *index) enginesFit(view *fleet.View) bool {
	if len(view.Engines) != len(x.copied.Engines) {
		return false
	}
	for i := range view.Engines {
		a, b := &view.Engines[i], &x.copied.Engines[i]
		if a.Name != b.Name || a.Region != b.Region || !slices.Equal(a.Models, b.Models) {
			return false
		}
	}
	return true
}

func (x *index) setTargets(view *fleet.View) {
	model := map[string]int{}
	for i, m := range x.models {
		model[m] = i
	}
	cluster := map[string]int{}
	for i, c := range x.clusters {
		cluster[c] = i
	}
	x.targets = make([][]int32, len(x.models))
	for n, at := range x.order {
		for _, m := range view.Engines[at].Models {
			x.targets[model[m]] = append(x.targets[model[m]], int32(n))
		}
	}
	x.serves = make([][]int32, len(x.order))
	for m, targets := range x.targets {
		for _, n := range targets {
			x.serves[n] = append(x.serves[n], int32(m))
		}
	}
	for _, d := range view.Demands {
		x.row = append(x.row, int32(cluster[d.Cluster]*len(x.models)+model[d.Model]))
	}
}

// setDistances finds how far each engine is from each cluster, and groups each
// model's engines by that.
func (x *index) setDistances(view *fleet.View) {
	type pair struct{ cluster, to string }
	region, single := map[pair]float64{}, map[pair]float64{}
	apart := map[string]bool{}
	for _, d := range view.Distances {
		if d.Engine != "" {
			single[pair{d.Cluster, d.Engine}] = d.Seconds
			apart[d.Engine] = true
			continue
		}
		region[pair{d.Cluster, d.Region}] = d.Seconds
	}
	columns := map[string][]float64{} // region or engine -> seconds by cluster
	column := func(e *fleet.Engine) []float64 {
		key := "region " + e.Region
		if apart[e.Name] {
			key = "engine " + e.Name
		}
		if columns[key] == nil {
			all := make([]float64, 0, len(x.clusters))
			for _, c := range x.clusters {
				s, ok := single[pair{c, e.Name}]
				if !ok {
					s = region[pair{c, e.Region}]
				}
				all = append(all, s)
			}
			columns[key] = all
		}
		return columns[key]
	}
	var distances [][]float64 // by group
	for m := range x.models {
		x.start = append(x.start, int32(len(x.group)))
		x.groups = append(x.groups, int32(len(x.first)))
		byRegion := map[string][]int32{}
		for _, n := range x.targets[m] {
			e := &view.Engines[x.order[n]]
			far := column(e)
			at := slices.IndexFunc(byRegion[e.Region], func(g int32) bool { return slices.Equal(distances[g], far) })
			if at < 0 {
				at = len(byRegion[e.Region])
				byRegion[e.Region] = append(byRegion[e.Region], int32(len(x.first)))
				x.first = append(x.first, n)
				distances = append(distances, far)
			}
			x.group = append(x.group, byRegion[e.Region][at])
		}
	}
	x.groups = append(x.groups, int32(len(x.first)))
	x.distance = make([]float64, len(x.clusters)*len(x.first))
	for g, far := range distances {
		for c, s := range far {
			x.distance[c*len(x.first)+g] = s
		}
	}
	for _, at := range x.order {
		most := 0.0
		for _, s := range column(&view.Engines[at]) {
			most = math.Max(most, s)
		}
		x.far = append(x.far, most)
	}
}

// setParts finds the components of engines joined by models.
func (x *index) setParts() {
	x.part = make([]int32, len(x.order))
	members := map[int32][]int32{}
	for i := range x.part {
		x.part[i] = int32(i)
		members[int32(i)] = []int32{int32(i)}
	}
	for _, targets := range x.targets {
		for _, n := range targets {
			mine, other := x.part[n], x.part[targets[0]]
			if mine == other {
				continue
			}
			if len(members[mine]) > len(members[other]) {
				mine, other = other, mine
			}
			for _, j := range members[mine] {
				x.part[j] = other
			}
			members[other] = append(members[other], members[mine]...)
			delete(members, mine)
		}
	}
	number := map[int32]int32{}
	for i, p := range x.part {
		n, ok := number[p]
		if !ok {
			n = int32(len(number))
			number[p] = n
		}
		x.part[i] = n
	}
	x.parts = len(number)
}
