package enginemodel

import (
	"math"
	"time"
)

// end finishes the run of steps at hand and appends its events.
func (f *Fast) end(events []Event) []Event {
	f.advance(f.steps, f.steps-1)
	for len(f.finishes) > 0 && f.finishes[0].step == f.clock {
		s := f.finishes.pop()
		f.running.remove(s)
		f.leave(s, 0)
		s.done = s.Output
		events = append(events, s.event(f.until))
		f.gauges.Finished++
		f.forget(s, s.Prompt)
	}
	if f.prefilling > 0 {
		events = f.prefilled(events)
	}
	return events
}

// prefilled lets the newest of the batch have what the step has computed of them.
func (f *Fast) prefilled(events []Event) []Event {
	s := f.running.back
	for range f.prefilling - 1 {
		s = s.prev
	}
	f.prefilling = 0
	for s != nil {
		next := s.next
		s.context += s.chunk
		if s.context < s.target {
			f.prefilling++ // the last: there were no tokens left for others
			break
		}
		if s.done == 0 {
			f.gauges.PromptTokens += uint64(s.Prompt)
		}
		s.done++
		f.gauges.GenerationTokens++
		if s.done == 1 || s.done == s.Output {
			events = append(events, s.event(f.until))
		}
		if s.done == s.Output {
			f.gauges.Finished++
			f.running.remove(s)
			f.forget(s, s.context)
		} else {
			f.decode(s)
		}
		s = next
	}
	return events
}

// decode puts a sequence with its prompt computed among those that get a token in
// every step.
func (f *Fast) decode(s *sequence) {
	s.base = s.context - f.clock
	s.last = f.clock + s.Output - s.done
	f.finishes.push(finish{step: s.last, place: s.place, s: s})
	f.decoding++
	f.context += s.context
	f.phase[f.phaseOf(s)]++
}

// leave takes a sequence from those that decode, steps into the step at hand (0 or
// 1), and sets what it holds.
func (f *Fast) leave(s *sequence, into int) {
	context := s.base + f.clock
	f.decoding--
	f.context -= context
	f.phase[f.phaseOf(s)]--
	s.blocks = blocks(context+into, f.params.BlockSize) - s.shared
	s.done = s.Output - (s.last - f.clock)
	s.last = 0
}

// phaseOf is the clock, modulo BlockSize, at which a sequence that decodes needs a
// block: when what it has fills its blocks.
func (f *Fast) phaseOf(s *sequence) int {
	p := -s.base % f.params.BlockSize
	if p < 0 {
		p += f.params.BlockSize
	}
	return p
}

// advance takes steps, the first of which has its blocks, and gives blocks to those
// after it, grown in number.
func (f *Fast) advance(steps, grown int) {
	if grown > 0 {
		f.pool.take(f.growth(f.clock+1, grown))
	}
	f.clock += steps
	f.context += steps * f.decoding
	f.gauges.Steps += uint64(steps)
	f.gauges.GenerationTokens += uint64(steps * f.decoding)
}

// growth is how many blocks those that decode need in steps from clock on.
func (f *Fast) growth(clock, steps int) int {
	size := f.params.BlockSize
	sum := steps / size * f.decoding
	at := clock % size
	for range steps % size {
		sum += int(f.phase[at])
		if at++; at == size {
			at = 0
		}
	}
	return sum
}

// room is how many of the run's steps there are blocks for, at most steps.
func (f *Fast) room(steps int) int {
	size, free := f.params.BlockSize, f.pool.free
	if (steps-1)/size*f.decoding+f.decoding <= free {
		return steps
	}
	more := min(free/f.decoding*size, steps-1) // each of the decoding needs one in size steps
	for left := free - f.growth(f.clock+1, more); more < steps-1; more++ {
		if left -= int(f.phase[(f.clock+1+more)%size]); left < 0 {
			break
		}
	}
	return more + 1
}

// endOf is when the run's n-th step ends.
func (f *Fast) endOf(n int) time.Duration {
	if n == f.steps {
		return f.until
	}
	return f.since + f.took(n)
}

// took is how long the run's first n steps take.
func (f *Fast) took(n int) time.Duration {
	x := float64(n)
	return max(seconds(x*f.first+f.slope*(x*(x-1)/2)), time.Duration(n))
}

// stepAt is the first of the run's steps that does not end before t, or the last.
func (f *Fast) stepAt(t time.Duration) int {
	// The root of first*n + slope*n*(n-1)/2 = x, in the form that does without a
	// difference and holds for slope 0. The first step is longer than the slope, for
	// every context has a token.
	x, half := (t - f.since).Seconds(), f.first-f.slope/2
	n := f.steps
	if root := math.Ceil(2 * x / (half + math.Sqrt(max(0, half*half+2*f.slope*x)))); root < float64(n) {
		n = max(1, int(root))
	}
	for n > 1 && f.endOf(n-1) >= t {
		n--
	}
	for n < f.steps && f.endOf(n) < t {
		n++
	}
	return n
}

// over is how many of the run's steps are over at now. One that ends at now is if
// Run has been called with now, and never the last, which is for Run to end.
func (f *Fast) over(now time.Duration) int {
	if f.steps == 1 {
		return 0
	}
	return f.stepAt(max(f.ran+1, now)) - 1
}

// settle ends the run with the step under way, so that the batch may change.
func (f *Fast) settle(now time.Duration) {
	if !f.working || f.steps == 1 {
		return
	}
	n := f.over(now)
	since, until := f.since, f.endOf(n+1)
	if n > 0 {
		since = f.endOf(n)
		f.advance(n, n)
		f.arrive(since)
	}
	f.since, f.until, f.steps = since, until, 1
}

// shorten ends the run with the first step that does not end before t.
func (f *Fast) shorten(t time.Duration) {
	if n := f.stepAt(max(t, f.ran+1)); n < f.steps {
		f.until = f.endOf(n)
		f.steps = n
	}
}

// invite lets the run end for the first in line, who is there at ready.
func (f *Fast) invite(ready time.Duration) {
	if f.steps > 1 && f.running.len < f.params.MaxBatch {
		f.shorten(ready)
	}
}

// reconsider sees who is first in line after somebody has left it.
func (f *Fast) reconsider(now time.Duration) {
	switch {
	case !f.working:
	case f.waiting.len > 0:
		f.invite(now)
	case f.arriving.len > 0:
		f.invite(max(now, f.arriving.front.ready))
	}
}
