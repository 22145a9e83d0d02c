package route

// full tells whether a target holds all that this data plane may send there.
func (t *Target) full() bool { return t.Limit > 0 && float64(t.Flight.requests.Load()) >= t.Limit }

// admits tells whether a request may go to the target; to one that fails and is
// full no probe goes, for it could only wait.
func (t *Target) admits(now int64) bool {
	return !t.Flight.PassedOver() || !t.full() && t.Flight.admits(now)
}

// Take charges the pick's first engine. If that is full, the next of the sequence
// that is well and has room takes its place. It reports false when there is none;
// the pick is then as it was and nothing is charged.
//
// A prefix whose engine is full has its cache there. Where most of the row is full it goes nowhere
// else: every engine would compute what only one of them has to, and a
// row that is full because its caches are cold would never get them warm.
func (r *Row) Take(p *Pick, work, now int64) (Charge, bool) {
	c, ok := r.take(p, work, now)
	if ok && p.learn {
		r.places.put(p.place, engineID(r.targets[p.order[0]].Engine.Name))
	}
	return c, ok
}

func (r *Row) take(p *Pick, work, now int64) (Charge, bool) {
	t := &r.targets[p.order[0]]
	if c, ok := t.Flight.charge(work, now, t.Limit); ok {
		return c, true
	}
	if p.home && r.crowded() {
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

// crowdedPart is the part of a row's room beyond which most of it is full. From a half to
// nine tenths it makes little difference.
const crowdedPart = 0.7

// crowded tells whether most of what a data plane may have in the row it has.
func (r *Row) crowded() bool {
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
		t := &r.targets[i]
		if c, ok := t.Flight.charge(work, now, t.Limit); ok {
			return i, c, true
		}
	}
}

// takeAt charges an engine that is well and has room, and makes it the pick's
// first.
func (r *Row) takeAt(p *Pick, i int, work, now int64) (Charge, bool) {
	t := &r.targets[i]
	if t.Flight.PassedOver() {
		return Charge{}, false
	}
	c, ok := t.Flight.charge(work, now, t.Limit)
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
	for i := range r.targets {
		if t := &r.targets[i]; t.Engine.Name == engine && !t.Flight.PassedOver() {
			p.Remembered = p.Remembered && p.order[0] == int32(i)
			p.order[0], p.n = int32(i), 1
			return
		}
	}
}
