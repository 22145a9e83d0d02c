package sim

import (
	"fmt"
	"time"

	"github.com/wardrop-lb/wardrop/enginemodel"
)

// Target is a fleet that is not simulated. Its methods are called by Play's, return at
// once, and keep nothing that they are given.
type Target interface {
	// Send brings a request to its cluster. Play.Reply tells what came of it.
	Send(r *Request)
	// Leave says that a request's client has gone: nobody waits for its reply.
	Leave(id uint64)
	// Change lets an event begin or end at an engine.
	Change(engine int, e *Event, begins bool)
	// Load is how many requests are in an engine, and how many wait for it.
	Load(engine int) (running, waiting int)
}

// Reply is what came of a request. Times are since the play's start.
type Reply struct {
	// Outcome is Answered, or anything else for a failure; Refused says that no engine
	// has seen the request.
	Outcome Outcome
	Refused bool
	// Engine has answered, after so many attempts.
	Engine   int
	Attempts int

	FirstToken, Finished time.Duration
	Cached               int // prompt tokens that the engine had in its cache
}

// Play is a scenario's clients and events for a fleet that is not simulated: the same
// requests at the same times, and the same measures of what comes of them. Signals and
// distances are the fleet's own. It reads no clock and is for one goroutine.
type Play struct {
	w    *world
	open map[uint64]*Request // sent, and no reply yet
}

// Playable says what in a scenario only a simulator can do; nil when there is nothing.
func (s *Scenario) Playable() error {
	for i := range s.Events {
		if s.Events[i].Control != "" {
			return fmt.Errorf("events[%d]: only a simulator can take the control plane away", i)
		}
	}
	return nil
}

// NewPlay begins a scenario at time 0. One that is not Playable is an error.
func NewPlay(s *Scenario, target Target, seed uint64) (*Play, error) {
	if err := s.Playable(); err != nil {
		return nil, err
	}
	p := &Play{open: map[uint64]*Request{}}
	w, err := newWorld(s, Options{Seed: seed}, &played{target, p})
	if err != nil {
		return nil, err
	}
	p.w = w
	w.begin()
	return p, nil
}

// Params is what the i-th engine of the scenario's configuration is made of.
func (s *Scenario) Params(i int) enginemodel.Params { return s.paramsOf(&s.Config.Engines[i]) }

// Fleet says what the indices of requests and events mean.
func (p *Play) Fleet() *Fleet { return p.w.fleet }

// Next is when something happens next; false after the scenario's end.
func (p *Play) Next() (at time.Duration, ok bool) {
	if len(p.w.queue) == 0 || p.w.queue[0].at >= time.Duration(p.w.scenario.Duration) {
		return 0, false
	}
	return p.w.queue[0].at, true
}

// Advance lets everything happen that is due.
func (p *Play) Advance(now time.Duration) {
	for at, ok := p.Next(); ok && at <= now; at, ok = p.Next() {
		e, _ := p.w.take()
		p.w.handle(&e)
	}
}

// Reply takes in what came of a request. One that nobody waits for any more is left
// out.
func (p *Play) Reply(id uint64, x Reply) {
	r := p.open[id]
	if r == nil {
		return
	}
	delete(p.open, id)
	w := p.w
	w.now = max(w.now, x.Finished)
	r.Engine, r.Attempts = x.Engine, x.Attempts
	r.FirstToken, r.Finished, r.Cached = x.FirstToken, x.Finished, x.Cached
	w.measure.tried(r, x.Attempts-1)
	switch {
	case x.Outcome == Answered:
		w.finish(r)
	case x.Refused:
		w.measure.shed(r)
		w.again(r)
	default:
		w.measure.failed(r)
		w.again(r)
	}
}

// Result is what was measured until a time. Partial says that this is not all.
func (p *Play) Result(name string, until time.Duration, partial bool) *Result {
	return p.w.result(name, min(until, time.Duration(p.w.scenario.Duration)), partial)
}

// played is a target in the place of a world's routers and engines.
type played struct {
	Target
	play *Play
}

func (t *played) send(r *Request) {
	t.play.open[r.ID] = r
	r.Engine = 0 // on its way to whoever it will be
	t.play.w.measure.tried(r, 1)
	t.play.w.measure.prompt(r)
	t.Send(r)
}

func (t *played) withdraw(r *Request) {
	delete(t.play.open, r.ID)
	t.Leave(r.ID)
}
