package tick

import (
	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/fleet"
)

// rampTicks is how many ticks an engine that is new, came back or was restarted
// takes to its whole capacity: its cache is empty and its graphs may not be
// compiled, so that its first requests cost more than its profile says.
const rampTicks = 10

// ramps remembers how long engines have been there. The zero value takes the
// engines of its first view for warm: a new leader is no reason to move traffic.
type ramps struct {
	engines map[string]warmth
}

type warmth struct {
	incarnation uint64 // 0 when unknown
	ticks       int    // in the view, at most rampTicks
}

// apply limits the view's cold engines. Those that left the view are forgotten,
// so that they are cold when they come back.
func (r *ramps) apply(view *fleet.View, newest map[string]*pb.Reading) {
	first := r.engines == nil
	next := make(map[string]warmth, len(view.Engines))
	for i := range view.Engines {
		e := &view.Engines[i]
		w, known := r.engines[e.Name]
		incarnation := newest[e.Name].GetIncarnation()
		switch {
		case first:
			w.ticks = rampTicks
		case !known, incarnation != 0 && w.incarnation != 0 && incarnation != w.incarnation:
			w.ticks = 1
		case w.ticks < rampTicks:
			w.ticks++
		}
		if incarnation != 0 {
			w.incarnation = incarnation
		}
		if w.ticks < rampTicks {
			e.Ramp = float64(w.ticks) / rampTicks
		}
		next[e.Name] = w
	}
	r.engines = next
}
