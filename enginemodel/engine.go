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
	ErrPrefix    = errors.New("a prefix's blocks end one after the other, within the prompt")
)

// Request is what an engine needs to know of a request. IDs are the driver's;
// one may be used again once its request has left the engine.
type Request struct {
	ID     uint64
	Prompt int // tokens, at least 1
	Output int // tokens that will be generated, at least 1

	// Prefix is what the prompt may have in common with others', from its beginning;
	// it may cover only part. Ends ascend and are at most Prompt. The slice is shared:
	// nobody modifies it while the request is in the engine.
	Prefix []Block
}

// Event says that a request got a token.
type Event struct {
	ID     uint64
	At     time.Duration
	Token  int  // which one, from 1
	Cached int  // prompt tokens that were in the cache; set on the first token
	Last   bool // the request is finished and has left the engine
}

// First says whether this is the request's first token.
func (e Event) First() bool { return e.Token == 1 }

// Gauges is the engine's state at one instant; counters grow from 0.
type Gauges struct {
	Running int     // requests in the batch
	Waiting int     // requests in the queue, those still in the frontend left out
	KVUsage float64 // fraction of the blocks that requests in the batch hold, 0..1

	PromptTokens     uint64 // of requests whose prompt has been computed, each counted once
	GenerationTokens uint64
	Preemptions      uint64
	Finished         uint64
	Cancelled        uint64
	Steps            uint64

	// Of requests that have a Prefix and have joined the batch, each counted once.
	PrefixQueries uint64 // prompt tokens
	PrefixHits    uint64 // those of them that were in the cache
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
	pool     pool
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
	return &Engine{params: p, slowdown: 1, pool: newPool(p), requests: map[uint64]*sequence{}}, nil
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

// check reports why a request cannot be served.
func (p *Params) check(r *Request) error {
	if r.Prompt < 1 || r.Output < 1 {
		return ErrEmpty
	}
	if r.Prompt > p.MaxTokens()-r.Output {
		return fmt.Errorf("%w: %d tokens of at most %d", ErrTooLong, r.Prompt+r.Output, p.MaxTokens())
	}
	last := 0
	for _, b := range r.Prefix {
		if b.End <= last || b.End > r.Prompt {
			return ErrPrefix
		}
		last = b.End
	}
	return nil
}

// Add puts a request into the engine at now. It fails with ErrTooLong,
// ErrDuplicate, ErrEmpty or ErrPrefix and then changes nothing.
func (e *Engine) Add(r Request, now time.Duration) error {
	if err := e.params.check(&r); err != nil {
		return err
	}
	if e.requests[r.ID] != nil {
		return ErrDuplicate
	}
	s := e.spare.popFront()
	if s == nil {
		s = &sequence{}
	}
	s.reset(r, &e.params, now)
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
	computed := s.context
	if e.stepping {
		computed += s.chunk // the step goes on
	}
	e.forget(s, computed)
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
		events = append(events, s.event(e.until))
		if s.done < s.Output {
			stay = append(stay, s)
			continue
		}
		e.gauges.Finished++
		e.forget(s, s.context)
	}
	clear(e.running[len(stay):])
	e.running = stay
	return events
}

// Gauges gives the engine's state.
func (e *Engine) Gauges() Gauges {
	g := e.gauges
	g.Running, g.Waiting = len(e.running), e.waiting.len
	g.KVUsage = e.pool.used()
	return g
}

// forget drops a sequence that is in no list any more, computed tokens of which are
// in the KV cache.
func (e *Engine) forget(s *sequence, computed int) {
	delete(e.requests, s.ID)
	e.pool.release(s, computed)
	s.Prefix = nil
	e.spare.pushBack(s)
}

// longest is the most seconds that anything takes: 63 years, so that times stay below
// Never.
const longest = 2e9

func seconds(s float64) time.Duration {
	return time.Duration(math.Round(min(s, longest) * float64(time.Second)))
}
