package sim

import "github.com/wardrop-lb/wardrop/enginemodel"

// happen begins or ends one of the scenario's events.
func (w *world) happen(e *Event, begins bool) {
	w.measure.note(w.now, e, begins)
	switch {
	case e.Control != "":
		w.control = !begins
	case e.Do != "":
		for _, i := range w.scenario.enginesOf(e) {
			if w.played != nil {
				w.played.Change(i, e, begins)
			} else {
				w.change(i, e, begins)
			}
		}
	default:
		for _, s := range w.sources {
			if matches(e.Cluster, w.fleet.Clusters[s.cluster].Name) {
				if begins {
					s.factor *= e.Factor
				} else {
					s.factor = 1
				}
			}
		}
	}
}

func (w *world) change(i int, event *Event, begins bool) {
	e := &w.engines[i]
	switch event.Do {
	case "down":
		e.down = begins
		if begins {
			w.crash(i)
		}
	case "drain":
		e.drained = begins
	case "hang":
		w.hang(i, begins)
	default:
		e.factor = 1
		if begins {
			e.factor = event.Factor
		}
		e.model.SetSlowdown(e.factor, e.clock(w.now))
		w.schedule(i)
	}
}

// hang stops an engine's time, or lets it go on.
func (w *world) hang(i int, begins bool) {
	e := &w.engines[i]
	if begins == e.hung {
		return
	}
	if begins {
		e.hung, e.since = true, w.now
		e.stamp++
		e.awake = false
		return
	}
	e.hung = false
	e.lost += w.now - e.since
	w.schedule(i)
}

// crash breaks everything off that is in an engine, which comes back empty.
func (w *world) crash(i int) {
	e := &w.engines[i]
	for slot, r := range w.inside {
		if r != nil && r.Engine == i {
			e.model.Cancel(uint64(slot), e.clock(w.now))
			w.vacate(r)
			w.add(event{at: w.now + w.way(r), kind: broken, sender: r, stamp: r.attempt})
		}
	}
	e.stamp++
	e.awake = false
	_, steps := e.model.(*enginemodel.Stepped)
	_ = e.start(steps)             // it could be made before
	e.lost, e.since = w.now, w.now // its clock begins anew
	e.model.SetSlowdown(e.factor, 0)
}
