package certify

import (
	"fmt"
	"math"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/latency"
)

// limits are figures of an engine's limits beside its cap: on tokens, on slots.
type limits [2]float64

var limitNames = [...]string{"tokens", "slots"}

// asks is what a request of a model asks of an engine.
type asks struct {
	work          float64
	holds         limits // token-seconds, slot-seconds
	first, decode float64
}

// setAsks reads the models' figures, and forgets the engines' curves where these
// have changed.
func (c *Checker) setAsks() {
	x := &c.index
	if len(c.asks) != len(x.models) {
		c.asks = make([]asks, len(x.models))
	}
	for m, name := range x.models {
		var model fleet.Model
		for i := range c.view.Models {
			if c.view.Models[i].Name == name {
				model = c.view.Models[i]
			}
		}
		now := asks{work: model.Load(), holds: limits{model.TokenSeconds, model.SlotSeconds}}
		now.first, now.decode = model.Worth()
		if c.asks[m] != now {
			c.asks[m] = now
			c.forget()
		}
	}
}

// forget makes all engines be described anew: an engine's number, or what it serves,
// may be another, though the profile there is the same.
func (c *Checker) forget() {
	for i := range c.engine {
		c.engine[i].known = false
	}
}

// describe works out an engine's curve, cap and limits; models are those it serves.
func (c *Checker) describe(e *engine, models []int32) {
	p := e.view.Profile
	first, decode := c.worth(models)
	e.known, e.profile, e.curve = true, p, latency.Weighted(p, first, decode)
	compute := e.curve.Capacity()
	e.full, e.limits = compute, limits{}
	for r, limit := range [...]float64{p.Tokens, p.Slots} {
		if limit == 0 {
			continue
		}
		least, most := c.asks[models[0]].holds[r]/c.asks[models[0]].work, 0.0
		for _, m := range models {
			rate := c.asks[m].holds[r] / c.asks[m].work
			least, most = min(least, rate), max(most, rate)
		}
		switch {
		case most*compute <= limit: // nothing can break it
		case least == most: // it is one on the load
			e.full = min(e.full, limit/most)
		default:
			e.limits[r] = limit
		}
	}
	e.top = e.curve.At(e.full).Slope
}

// worth is what a second before and after the first token is worth to models in the
// mean.
func (c *Checker) worth(models []int32) (first, decode float64) {
	a, same := &c.asks[models[0]], true
	for _, m := range models {
		b := &c.asks[m]
		first += b.first / float64(len(models))
		decode += b.decode / float64(len(models))
		same = same && a.first == b.first && a.decode == b.decode
	}
	if same {
		return a.first, a.decode
	}
	return first, decode
}

// own is what the time of a model's request, alone in the engine, is worth beyond
// the mean of the engine's models.
func (c *Checker) own(e *engine, models []int32, m int32) float64 {
	if len(models) == 1 {
		return 0
	}
	first, decode := c.worth(models)
	a, p := &c.asks[m], &e.profile
	return a.work * ((a.first-first)*p.FirstToken + (a.decode-decode)*(p.T0-p.FirstToken))
}

// owned checks what an engine says its models' requests are worth beyond the mean.
func (c *Checker) owned(e *engine, p *fleet.EngineLoad, models []int32) error {
	for _, m := range models {
		said := 0.0
		for _, o := range p.Own {
			if o.Model == c.index.models[m] {
				said = o.Seconds
			}
		}
		if own := c.own(e, models, m); !near(said, own, figureTolerance*math.Abs(own)) {
			return fmt.Errorf("own latency of %q is recorded as %v, is %v", c.index.models[m], said, own)
		}
	}
	return nil
}

// setCosts works out what one more request of a model costs at an engine, by the
// recorded terms.
func (c *Checker) setCosts() {
	x := &c.index
	c.cost = sized(c.cost, len(x.group))
	for m, targets := range x.targets {
		a := &c.asks[m]
		for j, n := range targets {
			e := &c.engine[n]
			cost := a.work*e.price + e.view.Penalty + e.view.Offset + c.own(e, x.serves[n], int32(m))
			for r, price := range e.limit {
				cost += price * a.holds[r]
			}
			c.cost[int(x.start[m])+j] = cost
		}
	}
}

// asked checks what a row says that its requests ask.
func (c *Checker) asked(r *fleet.Row, m int) error {
	a := &c.asks[m]
	for _, f := range [...]struct {
		name         string
		said, wanted float64
	}{{"work", r.Work, a.work}, {"token_seconds", r.TokenSeconds, a.holds[0]}, {"slot_seconds", r.SlotSeconds, a.holds[1]}} {
		if !near(f.said, f.wanted, figureTolerance*f.wanted) {
			return fmt.Errorf("%s is recorded as %v, is %v", f.name, f.said, f.wanted)
		}
	}
	return nil
}
