package enginemodel

import "time"

// sequence is a request in the engine.
type sequence struct {
	Request
	done    int // tokens generated
	context int // tokens in the KV cache
	target  int // tokens that must be in the KV cache before the next token comes out
	chunk   int // tokens computed in the step at hand
	blocks  int // blocks held

	ready      time.Duration // when it leaves the frontend
	in         *list         // the list that holds it, nil in the batch
	prev, next *sequence
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
		s.chunk = min(s.target, budget)
		budget -= s.chunk
	}
	return e.cost()
}

// grow gets a sequence the blocks for its chunk; false when there are too few.
func (e *Engine) grow(s *sequence) bool {
	need := blocks(s.context+s.chunk, e.params.BlockSize) - s.blocks
	if need <= 0 {
		return true
	}
	if need > e.free {
		return false
	}
	e.free -= need
	s.blocks += need
	return true
}

// preempt pushes the newest of the batch back to the head of the queue. Its
// blocks are lost: what it had computed is computed again.
func (e *Engine) preempt() *sequence {
	last := len(e.running) - 1
	s := e.running[last]
	e.running[last] = nil
	e.running = e.running[:last]
	e.free += s.blocks
	s.blocks, s.context, s.chunk = 0, 0, 0
	s.target = s.Prompt + s.done
	e.waiting.pushFront(s)
	e.gauges.Preemptions++
	return s
}

// admit moves the head of the queue into the batch if the blocks for its whole
// prompt are free. A hundredth of the blocks is left to those already running,
// lest the newcomer be pushed out by their next tokens.
func (e *Engine) admit() *sequence {
	s := e.waiting.front
	if s == nil {
		return nil
	}
	need := blocks(s.target, e.params.BlockSize)
	reserve := e.params.Blocks / 100
	if len(e.running) == 0 {
		reserve = 0
	}
	if need > e.free-reserve {
		return nil
	}
	e.waiting.remove(s)
	e.free -= need
	s.blocks = need
	e.running = append(e.running, s)
	return s
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
