package tick

import (
	"math"
	"time"

	"github.com/wardrop-lb/wardrop/fleet"
)

const (
	// demandMemory is how many seconds a rate looks back as long as nothing changes.
	demandMemory = 60
	// demandChange is the logarithm of how many times likelier than no change a change
	// must be to be believed.
	demandChange = 8
	// dispersionMemory is the time in seconds after which what was seen of burstiness counts
	// for a part 1/e.
	dispersionMemory = 300
	// dispersionMost bounds what one tick says of it: a step is no burstiness.
	dispersionMost = 25
)

// Rate estimates the rate of arrivals that come by chance: their mean since the last
// change, over a minute at most. A change is where the arrivals since some moment and
// those before it are likelier to be of two rates than of one, by the generalised
// likelihood ratio (Lorden 1971) of Poisson counts, over the dispersion of those seen: so
// a step is followed at once, and what is chance moves nothing. The zero value is ready.
type Rate struct {
	samples    []arrivals // since the last change, oldest first
	excess     float64    // of the dispersion over 1
	missed     float64    // mean relative error of the forecasts
	forecasted bool
}

type arrivals struct{ count, seconds float64 }

// Observe takes how many arrived in the seconds since the last call, 0 or a millisecond at
// least; both are finite and >= 0.
func (r *Rate) Observe(count, seconds float64) {
	if !(seconds > 0) {
		return
	}
	r.judge(count, seconds)
	r.samples = append(r.samples, arrivals{count, seconds})
	all := sumOf(r.samples)
	for len(r.samples) > 1 && all.seconds-r.samples[0].seconds >= demandMemory {
		all.count, all.seconds = all.count-r.samples[0].count, all.seconds-r.samples[0].seconds
		r.samples = r.samples[1:]
	}
	if at := r.change(all); at > 0 {
		r.samples = append(r.samples[:0], r.samples[at:]...)
	}
}

// Mean is the estimate in events/s, 0 before the first Observe. It is the forecast for the
// next tick too.
func (r *Rate) Mean() float64 {
	all := sumOf(r.samples)
	if all.seconds == 0 {
		return 0
	}
	return all.count / all.seconds
}

// Dispersion is the variance of counts over their mean, at least 1: 1 is Poisson's.
func (r *Rate) Dispersion() float64 { return 1 + r.excess }

// Missed is by which part of itself the forecast was wrong, in the mean, as to what came in
// the next tick. Chance alone makes it about 0.8 over the root of what comes in a tick.
func (r *Rate) Missed() float64 { return r.missed }

// judge compares what came with what was forecast.
func (r *Rate) judge(count, seconds float64) {
	expected := r.Mean() * seconds
	if expected < 1 {
		return
	}
	part := 1 - math.Exp(-seconds/dispersionMemory)
	square := (count - expected) * (count - expected) / expected
	r.excess = max(0, r.excess+part*(min(square, dispersionMost)-1-r.excess))
	wrong := math.Abs(count-expected) / expected
	if !r.forecasted {
		r.missed, r.forecasted = wrong, true
	}
	r.missed += part * (wrong - r.missed)
}

// change is where the likeliest change lies, 0 for nowhere.
func (r *Rate) change(all arrivals) int {
	whole, best, at := likelihood(all), demandChange*r.Dispersion(), 0
	var since arrivals
	for i := len(r.samples) - 1; i > 0; i-- {
		since.count, since.seconds = since.count+r.samples[i].count, since.seconds+r.samples[i].seconds
		before := arrivals{all.count - since.count, all.seconds - since.seconds}
		if ratio := likelihood(before) + likelihood(since) - whole; ratio > best {
			best, at = ratio, i
		}
	}
	return at
}

// likelihood is the logarithm of the greatest likelihood of a Poisson count, without what
// does not depend on how the time is parted.
func likelihood(a arrivals) float64 {
	if a.count <= 0 {
		return 0
	}
	return a.count * math.Log(a.count/a.seconds)
}

func sumOf(list []arrivals) (sum arrivals) {
	for _, a := range list {
		sum.count, sum.seconds = sum.count+a.count, sum.seconds+a.seconds
	}
	return sum
}

// rates estimates all demand. The zero value is ready.
type rates struct {
	planes map[string]*planeCounts // by instance
	known  map[Source]*Rate
}

// planeCounts is what a data plane counted when it last reported, and rates since the
// report before.
type planeCounts struct {
	at    instant
	total map[Source]float64
	rate  map[Source]float64
}

// apply replaces the view's rates, which look back for a fixed while, by what has been
// counted from tick to tick.
func (r *rates) apply(view *fleet.View, planes []Report, seconds float64) {
	counted, windows := r.count(planes), windowsOf(planes)
	next := make(map[Source]*Rate, len(view.Demands))
	for i := range view.Demands {
		d := &view.Demands[i]
		key := Source{d.Cluster, d.Model, d.Priority}
		if windows[d.Cluster] < settled {
			continue // it is still what was expected
		}
		rate := r.known[key]
		if rate == nil {
			rate = &Rate{}
			rate.Observe(d.Rate*windows[d.Cluster].Seconds(), windows[d.Cluster].Seconds())
		} else if seconds > 0 {
			rate.Observe(counted[key]*seconds, seconds)
		}
		next[key] = rate
		d.Rate = rate.Mean()
		if !plausible(d.Rate) {
			d.Rate = 0
		}
	}
	r.known = next
}

// count adds up what arrives at all data planes, requests/s.
func (r *rates) count(planes []Report) map[Source]float64 {
	sum := map[Source]float64{}
	next := make(map[string]*planeCounts, len(planes))
	for _, p := range planes {
		plane := r.planes[p.Instance]
		if plane == nil || !p.Time.AsTime().Equal(plane.at.own) {
			plane = plane.advance(p)
		}
		next[p.Instance] = plane
		for k, x := range plane.rate {
			sum[k] += x
		}
	}
	r.planes = next
	return sum
}

// advance makes rates of a report and the one before. Of a data plane that is new, or
// counts anew, they are its own.
func (p *planeCounts) advance(r Report) *planeCounts {
	out := &planeCounts{at: r.instant(), total: make(map[Source]float64, len(r.Demands)), rate: make(map[Source]float64, len(r.Demands))}
	for _, d := range r.Demands {
		if d.Priority >= fleet.NumPriorities || !plausible(d.Rate) {
			continue
		}
		key := Source{r.Cluster, d.Model, fleet.Priority(d.Priority)}
		out.total[key], out.rate[key] = float64(d.Count), d.Rate
		if p == nil {
			continue
		}
		// A model that is new has come within this time.
		seconds := out.at.since(p.at)
		if grown := out.total[key] - p.total[key]; grown >= 0 && seconds > 0 {
			out.rate[key] = grown / seconds
		}
	}
	return out
}

// windowsOf is the longest time that rates cover, by cluster.
func windowsOf(planes []Report) map[string]time.Duration {
	out := map[string]time.Duration{}
	for _, p := range planes {
		for _, d := range p.Demands {
			out[p.Cluster] = max(out[p.Cluster], time.Duration(d.Window*float64(time.Second)))
		}
	}
	return out
}
