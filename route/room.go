package route

import "slices"

// full tells whether a target holds all that this data plane may send there.
func (t *Target) full() bool { return t.Limit > 0 && float64(t.Flight.requests.Load()) >= t.Limit }

// Take charges the pick's first engine. If that is full, the next of the sequence
// that is well and has room takes its place. It reports false when there is none;
// the pick is then as it was and nothing is charged.
//
// A prefix whose engine is full has its cache there. Where most of the row is full it goes nowhere
// else: every engine would compute what only one of them has to, and a
// row that is full because its caches are cold would never get them warm.
func (r *Row) Take(p *Pick, work, now int64) (Charge, bool) {
	if p.trace != nil {
		p.trace.tries()
	}
	c, ok := r.take(p, work, now)
	if ok && p.learn {
		r.places.put(p.place, engineID(r.targets[p.order[0]].Engine.Name))
	}
	return c, ok
}

func (r *Row) take(p *Pick, work, now int64) (Charge, bool) {
	if c, ok := r.charge(p, p.order[0], work, now, false); ok {
		return c, true
	}
	if p.home && r.crowded(p.trace) {
		return Charge{}, false
	}
	next := *p
	for {
		i, ok := r.Next(&next)
		if !ok {
			return r.takeAny(p, work, now)
		}
		if c, ok := r.takeAt(p, i, work, now); ok {
			return c, true
		}
	}
}

// charge takes a place at a target, unless that is full, or failing where that matters.
func (r *Row) charge(p *Pick, i int32, work, now int64, well bool) (c Charge, ok bool) {
	t, state, n := &r.targets[i], Full, int64(0)
	if well && t.Flight.PassedOver() {
		state, n = Failing, t.Flight.Requests()
	} else if c, n, ok = t.Flight.charge(work, now, t.Limit); ok {
		state = Within
	}
	if p.trace != nil {
		was := p.trace.see(Look{Kind: LookCharge, Target: i, InFlight: n, Bound: float32(t.Limit), State: state})
		if ok = was.State == Within; !ok {
			c.Release()
		}
	}
	return c, ok
}

// crowdedPart is the part of a row's room beyond which most of it is full. From a half to
// nine tenths it makes little difference.
const crowdedPart = 0.7

// crowded tells whether most of what a data plane may have in the row it has.
func (r *Row) crowded(trace *Trace) bool {
	is := r.mostFull()
	if trace != nil {
		l := Look{Kind: LookCrowded, Target: -1}
		if is {
			l.State = Full
		}
		is = trace.see(l).State == Full
	}
	return is
}

func (r *Row) mostFull() bool {
	inside, room := 0.0, 0.0
	for i := range r.targets {
		t := &r.targets[i]
		if t.Weight < weightFloor {
			continue
		}
		if t.Limit == 0 {
			return false
		}
		inside += float64(t.Flight.requests.Load())
		room += t.Limit
	}
	return inside >= crowdedPart*room
}

// TakeNext names another engine for a picked request, as Next does, and charges
// it; those that are full are left out.
func (r *Row) TakeNext(p *Pick, work, now int64) (target int, c Charge, ok bool) {
	for {
		i, ok := r.Next(p)
		if !ok {
			return 0, Charge{}, false
		}
		if c, ok := r.charge(p, int32(i), work, now, false); ok {
			return i, c, true
		}
	}
}

// takeAt charges an engine that is well and has room, and makes it the pick's
// first.
func (r *Row) takeAt(p *Pick, i int, work, now int64) (Charge, bool) {
	c, ok := r.charge(p, int32(i), work, now, true)
	if ok {
		p.order[0], p.n = int32(i), 1
		p.Spilled++
		p.Remembered = false
	}
	return c, ok
}

// takeAny looks at every engine, once those of the sequence are full: the fastest
// that has room.
func (r *Row) takeAny(p *Pick, work, now int64) (Charge, bool) {
	for {
		best := -1
		for i := range r.targets {
			t := &r.targets[i]
			if !t.full() && !t.Flight.PassedOver() && (best < 0 || t.Predicted < r.targets[best].Predicted) {
				best = i
			}
		}
		if p.trace != nil {
			best = int(p.trace.see(Look{Kind: LookAny, Target: int32(best)}).Target)
		}
		if best < 0 {
			return Charge{}, false
		}
		// Another request may have taken the room in between: then look again.
		if c, ok := r.takeAt(p, best, work, now); ok {
			return c, true
		}
	}
}

// Prefer makes an engine the pick's first, if the row has it and it is well.
func (r *Row) Prefer(p *Pick, engine string) {
	i := int32(slices.IndexFunc(r.targets, func(t Target) bool { return t.Engine.Name == engine && !t.Flight.PassedOver() }))
	if p.trace != nil {
		i = p.trace.see(Look{Kind: LookStored, Target: i}).Target
		p.trace.chosen()
	}
	if i >= 0 {
		p.Remembered = p.Remembered && p.order[0] == i
		p.order[0], p.n = i, 1
	}
}
