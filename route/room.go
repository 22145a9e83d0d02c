package route

// full tells whether a target holds all that this data plane may send there.
func (t *Target) full() bool { return t.Limit > 0 && float64(t.Flight.requests.Load()) >= t.Limit }

// Fit makes sure that the pick's first engine has room: if it is full, the next of
// the sequence that is well and has room takes its place. It reports false when
// there is none; the pick is then as it was.
func (r *Row) Fit(p *Pick) bool {
	if !r.targets[p.order[0]].full() {
		return true
	}
	next := *p
	for {
		i, ok := r.Next(&next)
		if !ok {
			return r.fitAnywhere(p)
		}
		if t := &r.targets[i]; !t.full() && !t.Flight.PassedOver() {
			p.order[0], p.n = int32(i), 1
			p.Spilled++
			return true
		}
	}
}

// fitAnywhere looks at every engine, once those of the sequence are full.
func (r *Row) fitAnywhere(p *Pick) bool {
	best := int32(-1)
	for i := range r.targets {
		t := &r.targets[i]
		if !t.full() && !t.Flight.PassedOver() && (best < 0 || t.Predicted < r.targets[best].Predicted) {
			best = int32(i)
		}
	}
	if best < 0 {
		return false
	}
	p.order[0], p.n = best, 1
	p.Spilled++
	return true
}

// Prefer makes an engine the pick's first, if the row has it and it is well.
func (r *Row) Prefer(p *Pick, engine string) {
	for i := range r.targets {
		if t := &r.targets[i]; t.Engine.Name == engine && !t.Flight.PassedOver() {
			p.order[0], p.n = int32(i), 1
			return
		}
	}
}
