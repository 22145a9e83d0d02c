package baseline

import (
	"math"
	"slices"
	"time"

	"github.com/wardrop-lb/wardrop/sim"
)

// Prequal's parameters.
const (
	poolSize     = 16          // m
	probeRate    = 3           // r_probe: probes for each request
	removeRate   = 1           // r_remove: probes removed for each request
	probeAge     = time.Second // older ones are dropped
	reuseSlack   = 1           // delta in the reuse budget
	fewestProbes = 2           // with fewer in the pool, any engine is taken
	rifWindow    = 128         // of the last probes' requests in flight
	failuresMax  = 3           // in a row; then the engine is shunned
	shunFor      = 10 * time.Second
)

// hotQuantile is Q_RIF: engines are hot above this quantile of requests in flight.
var hotQuantile = math.Pow(2, -0.25)

// newPrequal is Prequal (Wydrowski, Kleinberg, Rumble and Archer, Load is not what you
// should balance, NSDI 2024, https://arxiv.org/abs/2312.10172), one for each cluster
// and model. Each request sends 3 probes to engines at random, whose answers serve
// later requests from a pool of 16: an answer is used up to
// max(1, (1+delta) / ((1-m/n) r_probe - r_remove)) times, replaced by the engine's next,
// dropped after a second, and one of the pool is removed with every request, the oldest
// and the worst in turn. Answers with more requests in flight (RIF) than the 0.84
// quantile of the last 128 are hot. The engine is that of least latency among the cold,
// or of least RIF when all are hot; its RIF in the pool then counts one more.
//
// RIF is running plus waiting as the engine answers. Its estimate of latency an engine
// cannot give: it is the median of the cluster's own requests to the engine in the last
// minute, at the nearest RIF, network and all; an engine without any counts as fast, to
// be tried. The paper's guard against sinkholing is not specified: an engine that
// failed three times in a row is not probed for 10 s. Probes while there are no
// requests are left out. The paper's parameters are for a hundred engines: with six or
// fewer the quantile lies among the busiest engine's own answers, which are then often
// cold.
func newPrequal(b *base) rule {
	f := b.Fleet()
	p := &prequal{base: b}
	for range f.Clusters {
		p.pools = append(p.pools, make([]pool, len(f.Models)))
		p.engines = append(p.engines, make([]*history, len(f.Engines)))
	}
	p.may = make([]bool, len(f.Engines))
	return rule{pick: p.pick, done: p.done}
}

type prequal struct {
	*base
	pools   [][]pool     // by cluster and model
	engines [][]*history // by cluster and engine; nil before the first request
	may     []bool       // by engine, while picking
	order   []int
}

// pool is the answers that a cluster has for a model.
type pool struct {
	probes []probe // oldest first
	rifs   []int   // of the last answers, a ring
	next   int
	sorted []int // the same
	worst  bool  // the next to be removed is the worst, not the oldest
}

type probe struct {
	engine  int
	at      time.Duration
	rif     int
	latency float64 // seconds, estimated
	uses    int     // left
}

// tag is what a request was sent with.
type tag struct{ rif int }

func (p *prequal) pick(r *sim.Request, candidates []int) int {
	o := &p.pools[r.Cluster][r.Model]
	for _, e := range candidates {
		p.may[e] = true
	}
	now := p.Now()
	o.probes = slices.DeleteFunc(o.probes, func(x probe) bool { return now-x.at > probeAge || !p.may[x.engine] })
	for _, e := range candidates {
		p.may[e] = false
	}
	p.probe(r, candidates)
	i := -1
	if len(o.probes) >= min(fewestProbes, len(candidates)) {
		i = o.best()
	}
	if i < 0 {
		e := p.any(candidates)
		r.State = tag{p.inFlight[r.Cluster][e]}
		return e
	}
	x := &o.probes[i]
	e := x.engine
	r.State = tag{x.rif}
	x.rif++
	if x.uses--; x.uses <= 0 {
		o.probes = slices.Delete(o.probes, i, i+1)
	}
	for range removeRate {
		o.remove()
	}
	return e
}

// probe asks some engines.
func (p *prequal) probe(r *sim.Request, candidates []int) {
	p.order = append(p.order[:0], candidates...)
	cluster, model := r.Cluster, r.Model
	budget := p.budget(len(candidates))
	for range min(probeRate, len(p.order)) {
		i := p.Random().IntN(len(p.order))
		e := p.order[i]
		p.order[i] = p.order[len(p.order)-1]
		p.order = p.order[:len(p.order)-1]
		if h := p.engines[cluster][e]; h != nil && h.shunned > p.Now() {
			continue
		}
		p.Probe(cluster, e, func(x sim.Reading) {
			rif := x.Running + x.Waiting
			p.pools[cluster][model].add(probe{e, p.Now(), rif, p.latency(cluster, e, rif), budget})
		})
	}
}

// budget is how often an answer is used, rounded up or down at random so that the mean
// is right. Where new answers replace old ones faster than these are removed, nothing
// else bounds it.
func (p *prequal) budget(engines int) int {
	rate := (1-float64(poolSize)/float64(engines))*probeRate - removeRate
	if rate <= 0 {
		return math.MaxInt
	}
	return int(max(1, (1+reuseSlack)/rate) + p.Random().Float64())
}

func (o *pool) add(x probe) {
	o.probes = slices.DeleteFunc(o.probes, func(y probe) bool { return y.engine == x.engine })
	if len(o.probes) == poolSize {
		o.probes = slices.Delete(o.probes, 0, 1)
	}
	o.probes = append(o.probes, x)
	if len(o.rifs) < rifWindow {
		o.rifs = append(o.rifs, x.rif)
	} else {
		i, _ := slices.BinarySearch(o.sorted, o.rifs[o.next])
		o.sorted = slices.Delete(o.sorted, i, i+1)
		o.rifs[o.next] = x.rif
		o.next = (o.next + 1) % rifWindow
	}
	i, _ := slices.BinarySearch(o.sorted, x.rif)
	o.sorted = slices.Insert(o.sorted, i, x.rif)
}

// hot says whether so many requests in flight are many.
func (o *pool) hot(rif int) bool {
	n := len(o.sorted)
	return rif > o.sorted[min(n-1, int(hotQuantile*float64(n)))]
}

// best is the probe by the hot-cold lexicographic rule.
func (o *pool) best() int {
	return o.first(func(x, y *probe) bool {
		switch hotX, hotY := o.hot(x.rif), o.hot(y.rif); {
		case hotX != hotY:
			return hotY
		case hotX || x.latency == y.latency:
			return x.rif < y.rif
		}
		return x.latency < y.latency
	})
}

// remove takes the oldest or the worst probe away: the hot one of most requests in
// flight, or when none is hot that of most latency.
func (o *pool) remove() {
	if len(o.probes) == 0 {
		return
	}
	i := 0
	if o.worst {
		i = o.first(func(x, y *probe) bool {
			switch hotX, hotY := o.hot(x.rif), o.hot(y.rif); {
			case hotX != hotY:
				return hotX
			case hotX:
				return x.rif > y.rif
			}
			return x.latency > y.latency
		})
	}
	o.worst = !o.worst
	o.probes = slices.Delete(o.probes, i, i+1)
}

func (o *pool) first(before func(x, y *probe) bool) int {
	best := 0
	for i := range o.probes {
		if before(&o.probes[i], &o.probes[best]) {
			best = i
		}
	}
	return best
}

func (p *prequal) done(r *sim.Request, o sim.Outcome) {
	if o == sim.Cancelled {
		return
	}
	h := p.engines[r.Cluster][r.Engine]
	if h == nil {
		h = &history{}
		p.engines[r.Cluster][r.Engine] = h
	}
	if o == sim.Answered {
		h.failures = 0
		h.record(sample{p.Now(), r.State.(tag).rif, (p.Now() - r.Sent).Seconds()})
		return
	}
	if h.failures++; h.failures >= failuresMax {
		h.shunned = p.Now() + shunFor
	}
	own := &p.pools[r.Cluster][r.Model]
	own.probes = slices.DeleteFunc(own.probes, func(x probe) bool { return x.engine == r.Engine })
}

// How many samples a history has, how many of these an estimate is made of, and how
// old they may be.
const (
	samplesMax = 32
	samplesFor = 9
	sampleAge  = time.Minute
)

// history is what a cluster has seen of an engine.
type history struct {
	samples  []sample // a ring
	next     int
	failures int // in a row
	shunned  time.Duration
}

type sample struct {
	at      time.Duration
	rif     int
	latency float64 // seconds
}

func (h *history) record(x sample) {
	if len(h.samples) < samplesMax {
		h.samples = append(h.samples, x)
		return
	}
	h.samples[h.next] = x
	h.next = (h.next + 1) % samplesMax
}

// latency is the median of requests that met about so many others.
func (p *prequal) latency(cluster, engine, rif int) float64 {
	h := p.engines[cluster][engine]
	if h == nil {
		return 0
	}
	var store [samplesMax]sample
	near := store[:0]
	for _, x := range h.samples {
		if p.Now()-x.at <= sampleAge {
			near = append(near, x)
		}
	}
	if len(near) == 0 {
		return 0
	}
	away := func(x sample) int { return max(x.rif-rif, rif-x.rif) }
	slices.SortFunc(near, func(x, y sample) int { return away(x) - away(y) })
	near = near[:min(samplesFor, len(near))]
	slices.SortFunc(near, func(x, y sample) int {
		if x.latency < y.latency {
			return -1
		}
		return 1
	})
	return near[len(near)/2].latency
}
