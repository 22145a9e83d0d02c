package enginemodel

import "time"

// sequence is a request in the engine.
type sequence struct {
	Request
	done    int // tokens generated
	context int // tokens in the KV cache
	target  int // tokens that must be in the KV cache before the next token comes out
	chunk   int // tokens computed in the step at hand
	blocks  int // blocks held, those of its prefix left out
	shared  int // blocks of its prefix, which it may share with others
	known   int // those of them that were there when it joined the batch
	cached  int // prompt tokens that were in the cache when it first joined the batch
	leaf    int32
	joined  bool // the batch, at some time

	// Of Fast alone. While a sequence decodes, its context is base + the clock.
	handle int32
	base   int
	last   int // the clock after the step that gives its last token; 0 unless it decodes
	place  uint64

	ready      time.Duration // when it leaves the frontend
	in         *list         // the list that holds it, nil in the batch
	prev, next *sequence
}

// reset makes s the sequence of a request that arrives at now.
func (s *sequence) reset(r Request, p *Params, now time.Duration) {
	*s = sequence{Request: r, target: r.Prompt, ready: now + seconds(p.Frontend), handle: s.handle}
	if p.NoPrefixCache {
		s.Prefix = nil
	}
}

// event says that s has got its latest token.
func (s *sequence) event(at time.Duration) Event {
	e := Event{ID: s.ID, At: at, Token: s.done, Last: s.done == s.Output}
	if s.done == 1 {
		e.Cached = s.cached
	}
	return e
}

// schedule plans a step: who computes how many tokens. Those in the batch come
// first, in the order they joined, so that a stream that has begun keeps going;
// what is left of the step's tokens goes to newcomers. It gives the step's
// seconds.
func (e *Engine) schedule() float64 {
	budget := e.params.MaxStepTokens
	preempted := false
	for i := 0; i < len(e.running); i++ {
		s := e.running[i]
		s.chunk = min(s.target-s.context, budget)
		if s.chunk == 0 {
			continue
		}
		for !e.grow(s) {
			preempted = true
			if e.preempt() == s {
				break
			}
		}
		budget -= s.chunk
	}
	// Who has just been pushed out would come back at once and be pushed out again.
	for !preempted && budget > 0 && len(e.running) < e.params.MaxBatch {
		s := e.admit()
		if s == nil {
			break
		}
		s.chunk = min(s.target-s.context, budget)
		budget -= s.chunk
	}
	return e.cost()
}

// grow gets a sequence the blocks for its chunk; false when there are too few.
func (e *Engine) grow(s *sequence) bool {
	need := blocks(s.context+s.chunk, e.params.BlockSize) - s.shared - s.blocks
	if need <= 0 {
		return true
	}
	if need > e.pool.free {
		return false
	}
	e.pool.take(need)
	s.blocks += need
	return true
}

// preempt pushes the newest of the batch back to the head of the queue. Its
// blocks are lost: what it had computed is computed again, unless it is of a prefix
// and still in the cache when it comes back.
func (e *Engine) preempt() *sequence {
	last := len(e.running) - 1
	s := e.running[last]
	e.running[last] = nil
	e.running = e.running[:last]
	e.pool.release(s, s.context)
	s.context, s.chunk = 0, 0
	s.target = s.Prompt + s.done
	e.waiting.pushFront(s)
	e.gauges.Preemptions++
	return s
}

// admit moves the head of the queue into the batch if the blocks for its whole
// prompt are free or in the cache.
func (e *Engine) admit() *sequence {
	s := e.waiting.front
	if s == nil {
		return nil
	}
	if !e.pool.admit(s, reserve(&e.params, len(e.running))) {
		return nil
	}
	e.waiting.remove(s)
	e.running = append(e.running, s)
	e.gauges.joined(s)
	return s
}

// reserve is how many blocks a newcomer must leave to those already running, lest it
// be pushed out by their next tokens: a hundredth of all.
func reserve(p *Params, running int) int {
	if running == 0 {
		return 0
	}
	return p.Blocks / 100
}

// joined counts what of a sequence's prompt was there when it first joins the batch.
func (g *Gauges) joined(s *sequence) {
	if s.joined {
		return
	}
	s.joined, s.cached = true, s.context
	if len(s.Prefix) > 0 {
		g.PrefixQueries += uint64(s.Prompt)
		g.PrefixHits += uint64(s.cached)
	}
}

// cost is the seconds of the step that was planned.
func (e *Engine) cost() float64 {
	prefill, context, working := 0, 0, 0
	for _, s := range e.running {
		if s.chunk == 0 {
			continue
		}
		working++
		context += s.context
		if s.context < s.Prompt || s.chunk > 1 {
			prefill += s.chunk
		}
	}
	p := &e.params
	return p.Base + p.PerRequest*float64(working) + p.PerContextToken*float64(context) +
		p.PerPrefillToken*float64(max(0, prefill-p.FreePrefillTokens))
}
