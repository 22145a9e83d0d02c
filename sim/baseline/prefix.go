package baseline

import (
	"math"

	"github.com/wardrop-lb/wardrop/sim"
)

// The endpoint picker's scorers and their weights, and how much of a prompt it looks
// at.
const (
	queueWeight     = 2
	kvWeight        = 2
	prefixWeight    = 3
	maxPrefixBlocks = 256
)

// newEndpointPicker is the endpoint picker of the Gateway API Inference Extension and
// of llm-d, at the defaults of its chart: an engine's score is the sum of queue-scorer
// (2: 1 for the shortest queue among the candidates, 0 for the longest),
// kv-cache-utilization-scorer (2: the unused part) and prefix-cache-scorer (3: the part
// of the prompt's blocks that were sent there before), and the highest score wins,
// equals at random. One for each cluster, over all engines of the model; it knows no
// distance. https://github.com/kubernetes-sigs/gateway-api-inference-extension,
// pkg/epp/scheduling
//
// Parameters: blocks of 64 tokens, llm-d's least; at most 256 of a prompt; for each
// engine as many as its cache has, which the picker learns from the engine (autoTune).
// An engine without a reading scores as one that is idle, as there. Readings are as
// late as the scenario's, where the original reads every 50 ms, and like it this adds
// nothing of its own to them.
func newEndpointPicker(b *base) rule {
	f := b.Fleet()
	var index []*prefixIndex
	for range f.Clusters {
		index = append(index, newPrefixIndex(f, cacheBlocks(f)))
	}
	var queue, score []float64
	return rule{
		pick: func(r *sim.Request, candidates []int) int {
			blocks := r.Prefix[:min(len(r.Prefix), maxPrefixBlocks)]
			queue, score = queue[:0], score[:0]
			shortest, longest := math.Inf(1), math.Inf(-1)
			for _, e := range candidates {
				x, _ := b.Reading(r.Cluster, e)
				q := float64(x.Waiting)
				shortest, longest = min(shortest, q), max(longest, q)
				s := kvWeight * (1 - x.KVUsage)
				if len(blocks) > 0 {
					s += prefixWeight * float64(index[r.Cluster].match(e, blocks)) / float64(len(blocks))
				}
				queue, score = append(queue, q), append(score, s)
			}
			for i := range score {
				if longest > shortest {
					score[i] += queueWeight * (longest - queue[i]) / (longest - shortest)
				}
			}
			return candidates[b.highest(score)]
		},
		sent: func(r *sim.Request, e int) {
			index[r.Cluster].add(e, r.Prefix[:min(len(r.Prefix), maxPrefixBlocks)])
		},
	}
}

// highest is the place of the highest score; of several any.
func (b *base) highest(score []float64) int {
	best, equals := 0, 0
	for i, s := range score {
		switch {
		case i == 0 || s > score[best]:
			best, equals = i, 1
		case s == score[best]:
			if equals++; b.Random().IntN(equals) == 0 {
				best = i
			}
		}
	}
	return best
}

// The thresholds of cache-aware routing.
const (
	balanceAbs     = 32
	balanceRel     = 1.1
	cacheThreshold = 0.5
	// treeBlocks bounds what a cluster remembers of an engine: max_tree_size of 2^26
	// characters, at 4 a token.
	treeBlocks = 1 << 26 / 4 / blockTokens
)

// newCacheAware is cache_aware of smg (sgl-model-gateway, sglang-router): when the
// router's own requests in flight are out of balance, that is max-min > 32 and
// max > 1.1 min, the least loaded engine; else the engine that was sent the longest
// beginning of the prompt, if that is more than half of the prompt, and otherwise the
// least loaded, of several the one that has been sent the fewest. The prompt is
// remembered for the engine in every case.
// https://github.com/lightseekorg/smg, docs/concepts/routing/cache-aware.md
//
// Parameters: balance_abs_threshold 32, balance_rel_threshold 1.1, cache_threshold 0.5,
// max_tree_size 2^26 characters for each engine. The tree is of blocks instead of
// characters, and forgets as it goes instead of every two minutes. An engine that comes
// back empty is still believed to have what it was sent, as there.
func newCacheAware(b *base) rule {
	f := b.Fleet()
	var index []*prefixIndex
	var processed [][]int // by cluster and engine
	for range f.Clusters {
		index = append(index, newPrefixIndex(f, func(int) int { return treeBlocks }))
		processed = append(processed, make([]int, len(f.Engines)))
	}
	least := func(r *sim.Request, candidates []int) int {
		best := candidates[0]
		for _, e := range candidates[1:] {
			x, y := b.inFlight[r.Cluster][e], b.inFlight[r.Cluster][best]
			if x < y || x == y && processed[r.Cluster][e] < processed[r.Cluster][best] {
				best = e
			}
		}
		return best
	}
	return rule{
		pick: func(r *sim.Request, candidates []int) int {
			low, high := math.Inf(1), 0.0
			for _, e := range candidates {
				low, high = min(low, b.own(r.Cluster, e)), max(high, b.own(r.Cluster, e))
			}
			if len(r.Prefix) == 0 || high-low > balanceAbs && high > balanceRel*low {
				return least(r, candidates)
			}
			e, tokens := longestMatch(index[r.Cluster], r, candidates)
			if float64(tokens) > cacheThreshold*float64(r.Prompt) {
				return e
			}
			return least(r, candidates)
		},
		sent: func(r *sim.Request, e int) {
			processed[r.Cluster][e]++
			index[r.Cluster].add(e, r.Prefix)
		},
	}
}

// longestMatch finds the engine that was sent most of the prompt's beginning. Of
// several it is always the same for one beginning, as the original's is.
func longestMatch(x *prefixIndex, r *sim.Request, candidates []int) (engine, tokens int) {
	engine, longest := candidates[0], 0
	for _, e := range candidates {
		n := x.match(e, r.Prefix)
		if n > longest || n == longest && n > 0 && rank(r.Prefix[n-1].Hash, e) < rank(r.Prefix[n-1].Hash, engine) {
			engine, longest = e, n
		}
	}
	if longest > 0 {
		tokens = r.Prefix[longest-1].End
	}
	return engine, tokens
}

func rank(hash uint64, engine int) uint64 { return mix(hash ^ mix(uint64(engine)+1)) }
