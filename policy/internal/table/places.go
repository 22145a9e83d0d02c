package table

import (
	"math"
	"slices"
	"strings"
)

// addPlaces finds the places: regions by name, and after them what lies apart in
// them, in the order of its first engines.
func (t *Table) addPlaces(clusters map[string]int32) {
	var regions []string
	seen := map[string]bool{}
	for _, e := range t.Engines {
		if !seen[e.Region] {
			seen[e.Region] = true
			regions = append(regions, e.Region)
		}
	}
	slices.Sort(regions)
	region := numbers(regions)
	far := make([][]float64, len(regions)) // by region and cluster
	for r := range far {
		far[r] = make([]float64, len(t.Clusters))
	}
	own := map[int32][]float64{} // by engine and cluster, NaN where the region's counts
	for i := range t.View.Distances {
		d := &t.View.Distances[i]
		c := clusters[d.Cluster]
		if d.Engine == "" {
			if r, ok := region[d.Region]; ok {
				far[r][c] = d.Seconds
			}
			continue
		}
		if e, ok := t.number(d.Engine); ok {
			if own[e] == nil {
				own[e] = slices.Repeat([]float64{math.NaN()}, len(t.Clusters))
			}
			own[e][c] = d.Seconds
		}
	}
	t.Place = make([]int32, len(t.Engines))
	apart := map[int32][]int32{} // by region: places with distances of their own
	for i, e := range t.Engines {
		r := region[e.Region]
		t.Place[i] = r
		column := own[int32(i)]
		if column == nil {
			continue
		}
		for c := range column {
			if math.IsNaN(column[c]) {
				column[c] = far[r][c]
			}
		}
		if !slices.Equal(column, far[r]) {
			far = t.placeApart(i, r, column, far, apart)
		}
	}
	t.Places = len(far)
	t.distance = make([]float64, len(t.Clusters)*len(far))
	for p := range far {
		for c := range t.Clusters {
			t.distance[c*len(far)+p] = far[p][c]
		}
	}
}

// placeApart puts an engine where others of its region are as far from
// everywhere, or at a place of its own.
func (t *Table) placeApart(engine int, region int32, column []float64, far [][]float64, apart map[int32][]int32) [][]float64 {
	for _, p := range apart[region] {
		if slices.Equal(column, far[p]) {
			t.Place[engine] = p
			return far
		}
	}
	t.Place[engine] = int32(len(far))
	apart[region] = append(apart[region], t.Place[engine])
	return append(far, column)
}

// number finds an engine by its name.
func (t *Table) number(name string) (int32, bool) {
	low, high := 0, len(t.Engines)
	for low < high {
		mid := (low + high) / 2
		if strings.Compare(t.Engines[mid].Name, name) < 0 {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return int32(low), low < len(t.Engines) && t.Engines[low].Name == name
}
