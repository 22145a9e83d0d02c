package enginemodel

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Never is the time at which nothing happens.
const Never = time.Duration(math.MaxInt64)

// Errors of Add.
var (
	ErrTooLong   = errors.New("the request does not fit in the engine's KV cache")
	ErrDuplicate = errors.New("a request with this id is in the engine")
	ErrEmpty     = errors.New("a request needs at least one prompt token and one output token")
)

// Request is what an engine needs to know of a request. IDs are the driver's;
// one may be used again once its request has left the engine.
type Request struct {
	ID     uint64
	Prompt int // tokens, at least 1
	Output int // tokens that will be generated, at least 1
}

// Event says that a request got a token.
type Event struct {
	ID    uint64
	Token int  // which one, from 1
	Last  bool // the request is finished and has left the engine
}

// First says whether this is the request's first token.
func (e Event) First() bool { return e.Token == 1 }

// Gauges is the engine's state at one instant; counters grow from 0.
type Gauges struct {
	Running int     // requests in the batch
	Waiting int     // requests in the queue, those still in the frontend left out
	KVUsage float64 // fraction of the blocks in use, 0..1

	PromptTokens     uint64 // of requests whose prompt has been computed, each counted once
	GenerationTokens uint64
	Preemptions      uint64
	Finished         uint64
	Cancelled        uint64
	Steps            uint64
}

// Engine is one engine. Drive it so:
//
//	until, working := e.Begin(now)
//	// working: at until, call e.End, hand out the events, Begin again.
//	// not working: nothing happens before until, unless a request is added.
//
// Add and Cancel may be called at any time, between Begin and End too.
type Engine struct {
	params   Params
	slowdown float64

	requests map[uint64]*sequence
	arriving list // in the frontend, by arrival
	waiting  list
	running  []*sequence // in the order they joined the batch
	free     int         // blocks
	stepping bool
	until    time.Duration
	spare    list // sequences to use again
	gauges   Gauges
}

// New makes an engine; the error is that of Params.Validate.
func New(p Params) (*Engine, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return &Engine{params: p, slowdown: 1, free: p.Blocks, requests: map[uint64]*sequence{}}, nil
}

// Params gives the engine's parameters.
func (e *Engine) Params() Params { return e.params }

// SetSlowdown makes every step from the next on take factor times as long.
// Factors that are not above 0 and finite are taken as 1.
func (e *Engine) SetSlowdown(factor float64) {
	if !(factor > 0) || math.IsInf(factor, 0) {
		factor = 1
	}
	e.slowdown = factor
}

// Add puts a request into the engine at now. It fails with ErrTooLong,
// ErrDuplicate or ErrEmpty and then changes nothing.
func (e *Engine) Add(r Request, now time.Duration) error {
	if r.Prompt < 1 || r.Output < 1 {
		return ErrEmpty
	}
	if r.Prompt > e.params.MaxTokens()-r.Output {
		return fmt.Errorf("%w: %d tokens of at most %d", ErrTooLong, r.Prompt+r.Output, e.params.MaxTokens())
	}
	if e.requests[r.ID] != nil {
		return ErrDuplicate
	}
	s := e.spare.popFront()
	if s == nil {
		s = &sequence{}
	}
	*s = sequence{Request: r, target: r.Prompt, ready: now + seconds(e.params.Frontend)}
	e.requests[r.ID] = s
	if e.params.Frontend > 0 {
		e.arriving.pushBack(s)
	} else {
		e.waiting.pushBack(s)
	}
	return nil
}

// Cancel takes a request out of the engine, wherever it is, and frees what it
// held; no event of it follows. It reports whether the request was there.
func (e *Engine) Cancel(id uint64) bool {
	s := e.requests[id]
	if s == nil {
		return false
	}
	if s.in != nil {
		s.in.remove(s)
	} else {
		for i, r := range e.running {
			if r == s {
				e.running = append(e.running[:i], e.running[i+1:]...)
				break
			}
		}
	}
	e.forget(s)
	e.gauges.Cancelled++
	return true
}

// Begin starts a step at now. While working it gives the time at which the step
// ends, and gives it again if called before End. Otherwise nothing is to be
// done before the time it gives, which is Never when the engine is empty.
func (e *Engine) Begin(now time.Duration) (until time.Duration, working bool) {
	if e.stepping {
		return e.until, true
	}
	for s := e.arriving.front; s != nil && s.ready <= now; s = e.arriving.front {
		e.waiting.pushBack(e.arriving.popFront())
	}
	cost := e.schedule()
	if len(e.running) == 0 {
		if s := e.arriving.front; s != nil {
			return s.ready, false
		}
		return Never, false
	}
	e.stepping = true
	e.until = now + max(seconds(cost*e.slowdown), 1)
	return e.until, true
}

// End finishes the step that Begin started and appends its events to events, in
// the order in which the requests joined the batch. Without a step it does
// nothing.
func (e *Engine) End(events []Event) []Event {
	if !e.stepping {
		return events
	}
	e.stepping = false
	e.gauges.Steps++
	stay := e.running[:0]
	for _, s := range e.running {
		s.context += s.chunk
		if s.chunk == 0 || s.context < s.target {
			stay = append(stay, s)
			continue
		}
		if s.done == 0 {
			e.gauges.PromptTokens += uint64(s.Prompt)
		}
		s.done++
		s.target = s.context + 1
		e.gauges.GenerationTokens++
		events = append(events, Event{ID: s.ID, Token: s.done, Last: s.done == s.Output})
		if s.done < s.Output {
			stay = append(stay, s)
			continue
		}
		e.gauges.Finished++
		e.forget(s)
	}
	clear(e.running[len(stay):])
	e.running = stay
	return events
}

// Gauges gives the engine's state.
func (e *Engine) Gauges() Gauges {
	g := e.gauges
	g.Running, g.Waiting = len(e.running), e.waiting.len
	g.KVUsage = 1 - float64(e.free)/float64(e.params.Blocks)
	return g
}

// forget drops a sequence that is in no list any more.
func (e *Engine) forget(s *sequence) {
	delete(e.requests, s.ID)
	e.free += s.blocks
	s.blocks = 0
	e.spare.pushBack(s)
}

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * float64(time.Second))) }
