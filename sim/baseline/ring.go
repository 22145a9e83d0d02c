package baseline

import (
	"cmp"
	"slices"

	"github.com/wardrop-lb/wardrop/enginemodel"
	"github.com/wardrop-lb/wardrop/sim"
)

// The parameters of consistent hashing with bounded loads.
const (
	replication = 256
	loadFactor  = 1.25
)

// newHashBounded is KubeAI's PrefixHash, consistent hashing with bounded loads
// (Mirrokni, Thorup and Zadimoghaddam, 2016): a ring with 256 points for each engine;
// the engine is that of the first point from the key's hash on whose requests in flight
// are at most 1.25 times the mean that this request makes.
// https://www.kubeai.org/concepts/load-balancing
//
// Parameters: replication 256, meanLoadFactor 125 %. KubeAI's key is the first 100
// characters of the first message that a user wrote, which stays the same throughout a
// conversation: here the session, or the first block beyond what all of the cluster's
// requests for the model begin with, which is the system's prompt. A request without
// either has a key of its own.
func newHashBounded(b *base) rule {
	f := b.Fleet()
	var rings [][]point
	for _, serving := range f.Serving {
		rings = append(rings, newRing(f, serving))
	}
	common := make([][]beginning, len(f.Clusters))
	for i := range common {
		common[i] = make([]beginning, len(f.Models))
	}
	may := make([]bool, len(f.Engines))
	return rule{pick: func(r *sim.Request, candidates []int) int {
		total := 0
		for _, e := range candidates {
			may[e] = true
			total += b.inFlight[r.Cluster][e]
		}
		limit := loadFactor * float64(total+1) / float64(len(candidates))
		chosen := onRing(rings[r.Model], ringKey(&common[r.Cluster][r.Model], r), func(e int) bool {
			return may[e] && b.own(r.Cluster, e) <= limit
		})
		for _, e := range candidates {
			may[e] = false
		}
		return chosen
	}}
}

// point is one of an engine's places on a ring.
type point struct {
	hash   uint64
	engine int
}

func newRing(f *sim.Fleet, serving []int) []point {
	ring := make([]point, 0, replication*len(serving))
	for _, e := range serving {
		h := uint64(0)
		for _, c := range []byte(f.Engines[e].Name) {
			h = mix(h ^ uint64(c))
		}
		for i := range uint64(replication) {
			ring = append(ring, point{mix(h + i*0x9e3779b97f4a7c15), e})
		}
	}
	slices.SortFunc(ring, func(x, y point) int {
		return cmp.Or(cmp.Compare(x.hash, y.hash), cmp.Compare(x.engine, y.engine))
	})
	return ring
}

// onRing is the engine of the first point from a hash on that fits. One does: an engine
// with the least load has at most the mean.
func onRing(ring []point, hash uint64, fits func(e int) bool) int {
	from, _ := slices.BinarySearchFunc(ring, hash, func(p point, h uint64) int { return cmp.Compare(p.hash, h) })
	for i := range ring {
		if e := ring[(from+i)%len(ring)].engine; fits(e) {
			return e
		}
	}
	return ring[from%len(ring)].engine
}

// beginning is what all prompts of a model began with so far.
type beginning struct {
	known  bool
	hashes []uint64
}

// take shortens it to what this prompt has of it, too, and gives its length in blocks.
func (x *beginning) take(blocks []enginemodel.Block) int {
	if !x.known {
		x.known = true
		for _, b := range blocks {
			x.hashes = append(x.hashes, b.Hash)
		}
	}
	n := 0
	for n < len(x.hashes) && n < len(blocks) && x.hashes[n] == blocks[n].Hash {
		n++
	}
	x.hashes = x.hashes[:n]
	return n
}

// ringKey is what a request is hashed by.
func ringKey(common *beginning, r *sim.Request) uint64 {
	switch {
	case r.Session != 0:
		return mix(r.Session)
	case len(r.Prefix) == 0:
		return mix(r.ID)
	}
	return mix(r.Prefix[min(common.take(r.Prefix), len(r.Prefix)-1)].Hash)
}
