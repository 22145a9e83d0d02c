package baseline

import (
	"slices"
	"time"

	"github.com/wardrop-lb/wardrop/sim"
)

// The parameters of latency feedback.
const (
	feedbackEvery = 5 * time.Second
	feedbackKeep  = 0.5  // of a weight at an update
	feedbackLeast = 0.02 // of the mean weight
	failedLatency = 30.0 // seconds that a failed attempt counts as
)

// newFeedback is weights by measured latency, which gateways have in many forms: every
// 5 s an engine's weight becomes half of what it was and half of the inverse of the mean
// latency of the cluster's requests that it answered since, over the inverses of the
// others; requests go to engines at random by their weights. Bifrost recomputes its
// weights every 5 s from errors, latency and load
// (https://docs.getbifrost.ai, adaptive load balancing); higress' cluster_metrics takes
// the least mean of the last 100, and litellm's latency-based routing the least of a
// window.
//
// Parameters: the interval, 5 s; the smoothing, one half; a weight of at least 2 % of
// the mean, so that a slow engine is measured again; a failed attempt counts as 30 s,
// one that the client gave up as the time until then. An engine of which nothing came
// back keeps its weight.
func newFeedback(b *base) rule {
	f := b.Fleet()
	all := make([][]latencies, len(f.Clusters)) // by cluster and model
	for i := range all {
		for _, serving := range f.Serving {
			all[i] = append(all[i], newLatencies(serving))
		}
	}
	var update func()
	update = func() {
		b.After(feedbackEvery, update)
		for i := range all {
			for m := range all[i] {
				all[i][m].update()
			}
		}
	}
	b.After(feedbackEvery, update)
	return rule{
		pick: func(r *sim.Request, candidates []int) int {
			return all[r.Cluster][r.Model].draw(candidates, b.Random().Float64())
		},
		done: func(r *sim.Request, o sim.Outcome) {
			latency := (b.Now() - r.Sent).Seconds()
			if o == sim.Failed || o == sim.Unreachable {
				latency = failedLatency
			}
			all[r.Cluster][r.Model].record(r.Engine, latency)
		},
	}
}

// latencies is what a cluster has measured of a model's engines since the last update,
// and the weights that it goes by, whose mean is 1.
type latencies struct {
	serving []int // the engines, ascending
	seen    []answers
	weights []float64
	drawn   []float64
}

type answers struct {
	n     int
	total float64 // seconds
}

func newLatencies(serving []int) latencies {
	l := latencies{serving: serving, seen: make([]answers, len(serving))}
	for range serving {
		l.weights = append(l.weights, 1)
	}
	return l
}

// draw takes one of the candidates, which are some of those serving and ascending, too.
func (l *latencies) draw(candidates []int, part float64) int {
	l.drawn = l.drawn[:0]
	sum, i := 0.0, 0
	for _, e := range candidates {
		for l.serving[i] != e {
			i++
		}
		sum += l.weights[i]
		l.drawn = append(l.drawn, l.weights[i])
	}
	part *= sum
	for i, e := range candidates {
		if part -= l.drawn[i]; part < 0 {
			return e
		}
	}
	return candidates[len(candidates)-1]
}

func (l *latencies) record(engine int, latency float64) {
	i, _ := slices.BinarySearch(l.serving, engine)
	l.seen[i].n++
	l.seen[i].total += max(latency, 1e-6)
}

func (l *latencies) update() {
	inverse, n := 0.0, 0
	for _, x := range l.seen {
		if x.n > 0 {
			inverse += float64(x.n) / x.total
			n++
		}
	}
	if n == 0 {
		return
	}
	sum := 0.0
	for i, x := range l.seen {
		if x.n > 0 {
			relative := float64(x.n) / x.total * float64(n) / inverse
			l.weights[i] = feedbackKeep*l.weights[i] + (1-feedbackKeep)*relative
		}
		sum += l.weights[i]
	}
	for i := range l.weights {
		l.weights[i] = max(feedbackLeast, l.weights[i]*float64(len(l.weights))/sum)
	}
	clear(l.seen)
}
