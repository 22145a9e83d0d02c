package baseline

import (
	"github.com/wardrop-lb/wardrop/sim"
)

// newSkyWalker is SkyWalker (Xia, Mao, Kerney et al., EuroSys 2026,
// https://arxiv.org/abs/2505.24095): a balancer in each region pushes a request only to
// engines that have none pending, that is waiting to join the batch (selective
// pushing). Among these of its own region it takes the one that was sent the longest
// beginning of the prompt, of several the least loaded. When none of its own has room,
// the request goes to the nearest region where one has, whose balancer picks in the
// same way.
//
// An engine has room if its newest reading, as late as the scenario's, has none
// waiting and what the cluster sent since fits beside those running. A cluster's own
// region is its nearest with engines. What an engine was sent is known to its region's
// balancer alone, from whichever cluster it came, and is bounded by the engine's cache.
// The original holds a request back while nobody has room; a router under simulation
// cannot, so that it then goes at once where it would if all had room.
func newSkyWalker(b *base) rule {
	f := b.Fleet()
	s := &skyWalker{base: b, regions: newRegions(f), index: newPrefixIndex(f, cacheBlocks(f)), loads: make([]float64, len(f.Engines))}
	return rule{pick: s.pick, sent: func(r *sim.Request, e int) { s.index.add(e, r.Prefix) }}
}

type skyWalker struct {
	*base
	regions *regions
	index   *prefixIndex
	loads   []float64 // by engine, while picking
	room    []int
}

func (s *skyWalker) pick(r *sim.Request, candidates []int) int {
	s.room = s.room[:0]
	for _, e := range candidates {
		s.loads[e] = s.load(r.Cluster, e)
		x, _ := s.Reading(r.Cluster, e)
		if x.Waiting == 0 && s.loads[e] < float64(s.Fleet().Engines[e].Slots) {
			s.room = append(s.room, e)
		}
	}
	if len(s.room) == 0 {
		s.room = append(s.room, candidates...)
	}
	chosen := s.nearest(r, s.room)
	best, longest := -1, -1
	for _, e := range s.room {
		if s.regions.of[e] != chosen {
			continue
		}
		n := s.index.match(e, r.Prefix)
		if n > longest || n == longest && s.loads[e] < s.loads[best] {
			best, longest = e, n
		}
	}
	return best
}

// nearest is the nearest region that has one of the engines.
func (s *skyWalker) nearest(r *sim.Request, engines []int) int {
	s.regions.sum(s.Fleet(), r.Cluster, engines, func(e int) float64 { return s.loads[e] })
	return s.regions.least(func(x *region) float64 { return x.far })
}

// newGorgo is GORGO (Ricci Toniolo, Dinesh and Thorstenson,
// https://arxiv.org/abs/2602.11688): each request goes to the engine of least
//
//	RTT + rate * (prompt tokens that it was not sent before) + rate * (queued tokens)
//
// where queued are the prompts that were sent to the engine and not answered in full,
// cached or not. It is a central proxy: there is one index and one count of tokens for
// all clusters, to which this one's requests get without a detour.
//
// Parameters: all weights 1, their default, before the online tuning that the paper
// adds; rate is the engine's own seconds for a prompt token, which the original
// measures. The index is bounded by the engine's cache.
func newGorgo(b *base) rule {
	f := b.Fleet()
	index := newPrefixIndex(f, cacheBlocks(f))
	queued := make([]int, len(f.Engines))
	return rule{
		pick: func(r *sim.Request, candidates []int) int {
			return b.least(r, candidates, func(e int) float64 {
				uncached := r.Prompt - index.tokens(e, r.Prefix)
				return f.Distance[r.Cluster][e] + f.Engines[e].Prefill*float64(uncached+queued[e])
			})
		},
		sent: func(r *sim.Request, e int) {
			index.add(e, r.Prefix)
			queued[e] += r.Prompt
		},
		done: func(r *sim.Request, _ sim.Outcome) { queued[r.Engine] -= r.Prompt },
	}
}
