package baseline

import (
	"math"

	"github.com/wardrop-lb/wardrop/sim"
)

// regions sums up engines by where they are.
type regions struct {
	of  []int // by engine
	all []region
}

// region is what a request's cluster finds in a region, of engines that it may go to.
type region struct {
	engines int
	load    float64 // requests
	slots   float64
	far     float64 // seconds, of the nearest engine
}

func newRegions(f *sim.Fleet) *regions {
	g := &regions{}
	names := map[string]int{}
	for _, e := range f.Engines {
		i, ok := names[e.Region]
		if !ok {
			i = len(names)
			names[e.Region] = i
			g.all = append(g.all, region{})
		}
		g.of = append(g.of, i)
	}
	return g
}

// sum looks at the candidates; load says how many requests are in an engine.
func (g *regions) sum(f *sim.Fleet, cluster int, candidates []int, load func(e int) float64) {
	for i := range g.all {
		g.all[i] = region{far: math.Inf(1)}
	}
	for _, e := range candidates {
		x := &g.all[g.of[e]]
		x.engines++
		x.load += load(e)
		x.slots += float64(f.Engines[e].Slots)
		x.far = min(x.far, f.Distance[cluster][e])
	}
}

// least gives the region with engines of least cost, -1 when none has a finite one.
func (g *regions) least(cost func(x *region) float64) int {
	best, lowest := -1, math.Inf(1)
	for i := range g.all {
		if x := &g.all[i]; x.engines > 0 {
			if c := cost(x); c < lowest {
				best, lowest = i, c
			}
		}
	}
	return best
}

// full is the part of its capacity from which on waterfall counts a region as full.
const full = 0.8

// newWaterfall is Google's waterfall by region, the default of its service load
// balancing policy: a request goes to the nearest region that has engines and
// capacity, and what is beyond spills into the next; within a region all engines are
// loaded evenly. When every region is full, all exceed their capacity by the same
// part. https://cloud.google.com/load-balancing/docs/service-lb-policy and
// .../tutorials/about-capacity-optimization-with-global-lb
//
// Parameter: the target utilisation, 0.8 as there. Utilisation is requests in the
// engines, as their newest readings and the cluster's own requests since have it, over
// what fits in their batches; Google's is a rate or the CPU's. Evenly means by a
// cluster's own requests for each slot.
func newWaterfall(b *base) rule {
	f := b.Fleet()
	g := newRegions(f)
	return rule{pick: func(r *sim.Request, candidates []int) int {
		g.sum(f, r.Cluster, candidates, func(e int) float64 { return b.load(r.Cluster, e) })
		chosen := g.least(func(x *region) float64 {
			if x.load >= full*x.slots {
				return math.Inf(1)
			}
			return x.far
		})
		if chosen < 0 {
			chosen = g.least(func(x *region) float64 { return x.load / x.slots })
		}
		return b.least(r, candidates, func(e int) float64 {
			if g.of[e] != chosen {
				return math.Inf(1)
			}
			return b.own(r.Cluster, e) / float64(f.Engines[e].Slots)
		})
	}}
}
