package baseline

import (
	"github.com/wardrop-lb/wardrop/sim"
)

// roundRobin takes each cluster's engines in turn: the default of Kubernetes' IPVS, of
// Envoy, and of the production stack of vLLM.
func roundRobin(b *base) rule {
	return rule{pick: func(r *sim.Request, candidates []int) int {
		turn := &b.turn[r.Cluster][r.Model]
		*turn++
		return candidates[*turn%len(candidates)]
	}}
}

// random takes any engine with equal chances: a Kubernetes service, litellm's
// simple-shuffle.
func random(b *base) rule {
	return rule{pick: func(_ *sim.Request, candidates []int) int { return b.any(candidates) }}
}

// leastRequest is the router's own least number of requests in flight: SkyServe's
// least_load, smg's and litellm's least-busy.
func leastRequest(b *base) rule {
	return rule{pick: func(r *sim.Request, candidates []int) int {
		return b.least(r, candidates, func(e int) float64 { return b.own(r.Cluster, e) })
	}}
}

// twoChoices is the better of two at random by the router's own requests in flight:
// Mitzenmacher, The Power of Two Choices (2001); Envoy's LEAST_REQUEST at its default
// choice_count of 2, which like this draws both from all, so that they may be one.
func twoChoices(b *base) rule {
	return rule{pick: func(r *sim.Request, candidates []int) int {
		x, y := b.any(candidates), b.any(candidates)
		if b.own(r.Cluster, y) < b.own(r.Cluster, x) {
			return y
		}
		return x
	}}
}

// nearest is the engine of least distance, whatever its load, as DNS by geography and
// anycast have it; of several as near the one with fewest of the cluster's requests.
func nearest(b *base) rule {
	return rule{pick: func(r *sim.Request, candidates []int) int {
		far := b.Fleet().Distance[r.Cluster]
		return b.least(r, candidates, func(e int) float64 { return far[e]*1e6 + b.own(r.Cluster, e) })
	}}
}
