package enginemodel

import "time"

// begin plans the steps from at on: one, if it computes prompts, or as many as the
// batch stays as it is.
func (f *Fast) begin(at time.Duration) {
	f.arrive(at)
	preempted := f.grow()
	tokens, context := f.prefill(!preempted)
	f.working = f.running.len > 0
	if !f.working {
		f.until = Never
		if s := f.arriving.front; s != nil {
			f.until = s.ready
		}
		return
	}
	p := &f.params
	f.first = min(longest, f.slowdown*(p.Base+p.PerRequest*float64(f.decoding+f.prefilling)+p.PerContextToken*float64(f.context+context)+
		p.PerPrefillToken*float64(max(0, tokens-p.FreePrefillTokens))))
	f.slope = min(longest, f.slowdown*p.PerContextToken*float64(f.decoding))
	f.since, f.steps = at, 1
	if f.prefilling == 0 && !preempted {
		f.steps = f.room(f.finishes[0].step - f.clock)
	}
	f.until = at + f.took(f.steps)
	if s := f.arriving.front; s != nil && f.waiting.len == 0 && s.ready < f.until {
		f.invite(s.ready)
	}
}

// arrive lets those into the queue that have left the frontend by at.
func (f *Fast) arrive(at time.Duration) {
	for s := f.arriving.front; s != nil && s.ready <= at; s = f.arriving.front {
		f.waiting.pushBack(f.arriving.popFront())
	}
}

// grow gives those that decode the blocks for the next step, in the order in which
// they joined the batch, and pushes out the newest while there are too few. It says
// whether it did.
func (f *Fast) grow() (preempted bool) {
	need := int(f.phase[f.clock%f.params.BlockSize])
	for need > 0 {
		got := min(need, f.pool.free)
		f.pool.take(got)
		if need -= got; need == 0 {
			break
		}
		preempted = true
		if f.preempt() {
			need-- // it was behind those that have theirs, or they would all have
		}
	}
	return preempted
}

// preempt pushes the newest of the batch back to the head of the queue, as Engine
// does, and says whether it was to get a block.
func (f *Fast) preempt() (needs bool) {
	s := f.running.back
	f.running.remove(s)
	computed := s.context
	if s.last > 0 {
		computed = s.base + f.clock
		needs = computed%f.params.BlockSize == 0
		f.finishes.remove(s.place)
		f.leave(s, 0)
	} else {
		f.prefilling--
	}
	f.pool.release(s, computed)
	s.context, s.chunk = 0, 0
	s.target = s.Prompt + s.done
	f.waiting.pushFront(s)
	f.gauges.Preemptions++
	return needs
}

// prefill spends what those that decode leave of the step's tokens: on the prompt
// that the last step has begun, then on newcomers, if any may join. It gives the
// prompt tokens to compute and the context that they read.
func (f *Fast) prefill(join bool) (tokens, context int) {
	budget := f.params.MaxStepTokens - f.decoding
	compute := func(s *sequence) {
		s.chunk = min(s.target-s.context, budget)
		budget -= s.chunk
		context += s.context
		if s.context < s.Prompt || s.chunk > 1 {
			tokens += s.chunk
		}
	}
	if f.prefilling > 0 {
		compute(f.running.back)
	}
	for join && budget > 0 && f.running.len < f.params.MaxBatch {
		s := f.waiting.front
		if s == nil || !f.pool.admit(s, reserve(&f.params, f.running.len)) {
			break
		}
		f.waiting.remove(s)
		f.running.pushBack(s)
		f.gauges.joined(s)
		s.place = f.joins
		f.joins++
		f.prefilling++
		compute(s)
	}
	return tokens, context
}
