package tick

import (
	"math"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/latency"
)

const (
	// burstMemory is the time in seconds over which demand must exceed capacity in the
	// mean before it is overload and no burst.
	burstMemory = 60
	// burstLoad is the part of the capacity that is planned for meanwhile.
	burstLoad = 0.99
)

// bursts tells a burst, which may wait in the engines for as long as data planes let it
// (Crowding), from overload, of which some must be refused by priority. The zero value
// is ready.
type bursts struct {
	usual map[string]float64 // by model: demand by work, a fading mean
}

// apply lowers the demand of models whose engines cannot serve it to what they can, as
// long as the engines that are there could serve the mean of the last minute. So engines
// that are lost are not taken for a burst. Models that share engines are looked at
// together.
// counted is the demand by model over a fixed while: one that follows every change has
// more than its part of what is high.
func (b *bursts) apply(view *fleet.View, counted map[string]float64, seconds float64) {
	now := demandByModel(view)
	next := make(map[string]float64, len(now))
	for m, rate := range counted {
		next[m] = rate
		if old, ok := b.usual[m]; ok {
			next[m] = rate + (old-rate)*math.Exp(-seconds/burstMemory)
		}
	}
	b.usual = next
	pools := poolsOf(view)
	for m, rate := range now {
		if p := pools[m]; p != nil {
			p.demand += rate
			p.counted += counted[m]
			p.usual += next[m]
		}
	}
	for i := range view.Demands {
		d := &view.Demands[i]
		if p := pools[d.Model]; p != nil {
			d.Rate *= p.part()
		}
	}
}

func demandByModel(view *fleet.View) map[string]float64 {
	work, out := workOf(view), map[string]float64{}
	for _, d := range view.Demands {
		out[d.Model] += work(d.Model) * d.Rate
	}
	return out
}

// workOf gives what a request of a model counts.
func workOf(view *fleet.View) func(model string) float64 {
	work := make(map[string]float64, len(view.Models))
	for _, m := range view.Models {
		work[m.Name] = m.Load()
	}
	return func(model string) float64 {
		if w, ok := work[model]; ok {
			return w
		}
		return 1
	}
}

// pool is the models that share engines, directly or by others, and those engines.
type pool struct {
	of *pool // the one that it was joined to

	capacity, demand, counted, usual float64 // requests/s, by work
}

func (p *pool) root() *pool {
	for p.of != nil {
		p = p.of
	}
	return p
}

// part is how much of the demand is planned for. Of overload it is no more than has been
// counted: a change that is followed late would refuse what does not come any more.
func (p *pool) part() float64 {
	most := burstLoad * p.capacity
	if p.demand <= most {
		return 1
	}
	if p.usual < most {
		return most / p.demand
	}
	return min(1, max(p.counted, most)/p.demand)
}

func poolsOf(view *fleet.View) map[string]*pool {
	pools := map[string]*pool{}
	for i := range view.Engines {
		e := &view.Engines[i]
		var root *pool
		for _, m := range e.Models {
			p := pools[m]
			switch {
			case p == nil && root == nil:
				root = &pool{}
				pools[m] = root
			case p == nil:
				pools[m] = root
			case root == nil:
				root = p.root()
			case p.root() != root:
				p.root().of = root
			}
		}
	}
	for m, p := range pools {
		pools[m] = p.root()
	}
	for i := range view.Engines {
		e := &view.Engines[i]
		p := pools[e.Models[0]]
		ramp := 1.0
		if e.Ramp > 0 {
			ramp = e.Ramp
		}
		p.capacity += ramp * latency.New(e.Profile).Capacity()
	}
	return pools
}
