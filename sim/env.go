package sim

import (
	"math/rand/v2"
	"time"

	"github.com/wardrop-lb/wardrop/enginemodel"
)

// env is what a router sees of a world.
type env struct{ w *world }

func (e *env) Now() time.Duration                 { return e.w.now }
func (e *env) Fleet() *Fleet                      { return e.w.fleet }
func (e *env) Random() *rand.Rand                 { return e.w.random }
func (e *env) After(d time.Duration, call func()) { e.w.After(d, call) }
func (e *env) Drained(engine int) bool            { return e.w.engines[engine].drained }
func (e *env) Abort(r *Request)                   { e.w.abort(r) }
func (e *env) Reading(cluster, engine int) (Reading, bool) {
	return e.w.signals.reading(e.w, cluster, engine)
}

// Up asks the last reading that was tried: one that came says yes, one that could not
// be had says no.
func (e *env) Up(cluster, engine int) bool { return e.w.signals.up(e.w, cluster, engine) }

func (e *env) Probe(cluster, engine int, answer func(Reading)) {
	w := e.w
	way := time.Duration(0.5e9 * w.fleet.Distance[cluster][engine])
	w.After(way, func() {
		x := &w.engines[engine]
		if x.down || x.hung {
			return
		}
		g := x.model.Gauges(x.clock(w.now))
		r := readingOf(x, w.now, &g)
		w.After(way, func() { answer(r) })
	})
}

// signals holds each engine's last readings, for clusters see them late.
type signals struct {
	interval time.Duration
	random   *rand.Rand
	rings    [][]record // by engine
	at       int        // where the next goes
	downs    int        // records of engines that were down, among all
}

// record is a reading, or that there was none to be had.
type record struct {
	Reading
	taken bool // there is one
	lost  bool // it reaches nobody
	down  bool

	failures uint32 // in a row
}

func readingOf(e *engine, now time.Duration, g *enginemodel.Gauges) Reading {
	return Reading{
		At: now, Running: g.Running, Waiting: g.Waiting, KVUsage: g.KVUsage,
		Tokens: g.GenerationTokens + g.PromptTokens, Incarnation: e.started,
	}
}

func (s *signals) reset(w *world, seed uint64) {
	s.interval = time.Duration(w.scenario.Signals.Interval)
	s.random = rand.New(rand.NewPCG(seed, 1<<60))
	farthest := 0.0
	for _, row := range w.fleet.Distance {
		for _, d := range row {
			farthest = max(farthest, d)
		}
	}
	depth := int((time.Duration(w.scenario.Signals.Delay)+time.Duration(farthest*1e9))/s.interval) + 3
	if w.scenario.Signals.Loss > 0 {
		depth += 16
	}
	s.rings = make([][]record, len(w.engines))
	for i := range s.rings {
		s.rings[i] = make([]record, depth)
	}
}

func (s *signals) sample(w *world) {
	if len(s.rings) == 0 {
		return
	}
	for i := range w.engines {
		e := &w.engines[i]
		r := &s.rings[i][s.at]
		if r.down {
			s.downs--
		}
		if e.down {
			s.downs++
		}
		*r = record{taken: true, down: e.down, Reading: Reading{At: w.now}}
		before := s.rings[i][(s.at+len(s.rings[i])-1)%len(s.rings[i])]
		if loss := w.scenario.Signals.Loss; loss > 0 {
			r.lost = s.random.Float64() < loss
		}
		if !e.down && !e.hung {
			g := e.model.Gauges(e.clock(w.now))
			r.Reading = readingOf(e, w.now, &g)
		} else if !e.down { // it answers, and says what it said before
			r.Reading = before.Reading
			r.At = w.now
		}
		if e.down {
			r.failures = before.failures + 1
		}
	}
	s.at = (s.at + 1) % len(s.rings[0])
}

// newest finds the last record that has reached a cluster.
func (s *signals) newest(w *world, cluster, engine int) *record {
	late := time.Duration(w.scenario.Signals.Delay) + time.Duration(0.5e9*w.fleet.Distance[cluster][engine])
	ring := s.rings[engine]
	for i := 1; i <= len(ring); i++ {
		r := &ring[(s.at-i+2*len(ring))%len(ring)]
		if r.taken && !r.lost && r.At+late <= w.now {
			return r
		}
	}
	return nil
}

func (s *signals) reading(w *world, cluster, engine int) (Reading, bool) {
	r := s.newest(w, cluster, engine)
	if r == nil || r.down {
		return Reading{}, false
	}
	return r.Reading, true
}

func (s *signals) up(w *world, cluster, engine int) bool {
	if s.downs == 0 {
		return true
	}
	r := s.newest(w, cluster, engine)
	return r == nil || !r.down
}
