package testengine

import (
	"sync/atomic"
	"time"

	"github.com/wardrop-lb/wardrop/enginemodel"
)

// maxLag is how far the model's time may fall behind. Timers are late by up to
// a millisecond; steps begin when they should have, so that the engine's speed
// does not depend on that. Beyond maxLag the machine has stood still and what
// it missed is not made up for.
const maxLag = 250 * time.Millisecond

// call is one request in the model, shared by its handler and the loop.
type call struct {
	id             uint64
	prompt, output int
	arrived        time.Time
	sleeps         uint64        // the engine's at that time
	tokens         atomic.Int64  // generated so far
	cached         atomic.Int64  // of the prompt's; set with the first token
	notify         chan struct{} // holds one: there are more tokens than before
}

// look has the handler look again.
func (c *call) look() {
	select {
	case c.notify <- struct{}{}:
	default:
	}
}

// run is the stepping goroutine.
func (s *Server) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-s.wake:
		case <-timer.C:
		}
		if wait := s.advance(); wait < enginemodel.Never {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
	}
}

// advance brings the model up to date and says how long it may be left alone.
func (s *Server) advance() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.show()
	for {
		f := s.faults.Load()
		if f.Hang || f.State == Asleep || f.Livelock && s.stepping {
			return enginemodel.Never // in a livelock the batch forms, and that is all
		}
		now := time.Since(s.epoch)
		if s.stepping {
			if s.until > now {
				return s.until - now
			}
			s.clock = s.until
			s.finishStep()
		}
		if now-s.clock > maxLag {
			s.clock = now
		}
		s.until, s.stepping = s.engine.Begin(s.clock)
		switch {
		case s.stepping:
		case s.until == enginemodel.Never:
			return enginemodel.Never
		case s.until > now:
			return s.until - now
		default:
			s.clock = s.until
		}
	}
}

func (s *Server) finishStep() {
	s.stepping = false
	s.events = s.engine.End(s.events[:0])
	for _, e := range s.events {
		c := s.calls[e.ID]
		if e.First() {
			c.cached.Store(int64(e.Cached))
			s.metrics.firstToken(time.Since(c.arrived))
		}
		c.tokens.Store(int64(e.Token))
		if e.Last {
			delete(s.calls, e.ID)
		}
		c.look()
	}
}

// show renews what the metrics page shows. A hung engine shows its last state,
// as real ones do.
func (s *Server) show() {
	if !s.faults.Load().Hang {
		s.shown = s.engine.Gauges()
	}
}

// submit puts a request into the model; the error is enginemodel's.
func (s *Server) submit(prompt, output int, prefix []enginemodel.Block) (*call, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.show()
	now := time.Now()
	at := now.Sub(s.epoch)
	if !s.stepping {
		s.clock = max(s.clock, at)
	}
	c := &call{
		id: s.lastID + 1, prompt: prompt, output: output,
		arrived: now, sleeps: s.sleeps.Load(), notify: make(chan struct{}, 1),
	}
	if err := s.engine.Add(enginemodel.Request{ID: c.id, Prompt: prompt, Output: output, Prefix: prefix}, at); err != nil {
		return nil, err
	}
	s.lastID++
	s.calls[c.id] = c
	if !s.stepping {
		s.kick()
	}
	return c, nil
}

// release takes a request out of the model if it is still there, and says
// whether it was.
func (s *Server) release(c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.show()
	delete(s.calls, c.id)
	return s.engine.Cancel(c.id)
}

// kick has the stepping goroutine look again.
func (s *Server) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
