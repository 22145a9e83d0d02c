package enginemodel

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// ErrStepTokens is NewFast's alone.
var ErrStepTokens = errors.New("a step has fewer tokens than the batch has requests")

// Fast is a Simulated that does not take every step. While the batch stays as it is,
// every request in it that has its first token gets one token a step; the step's
// time grows by the same amount from one to the next, as contexts do; so the time of
// n steps is a quadratic in n. Such a run of steps is over when a request gets its
// last token, when blocks run out, or when a newcomer may join: what happens then,
// and every step that computes prompts, is as in Engine. It differs from Stepped in
// rounding alone: the time of a run is rounded to a nanosecond, not that of each of
// its steps.
type Fast struct {
	params   Params
	slowdown float64

	index     table // of sequences by id
	ids       []uint64
	sequences []*sequence // by handle

	arriving list // in the frontend, by arrival
	waiting  list
	running  list // in the order they joined the batch
	finishes heap // of those that decode
	pool     pool
	spare    list // sequences to use again
	gauges   Gauges

	clock      int     // steps taken
	joins      uint64  // requests that have joined the batch
	decoding   int     // requests in the batch that have their first token
	context    int     // their tokens in the KV cache at clock
	phase      []int32 // how many of them need a block in a step that begins at clock k, by k modulo BlockSize
	prefilling int     // the newest of the batch, whose prompts the step at hand computes

	// The run of steps at hand. Its first step has the blocks that it needs.
	working bool
	since   time.Duration
	until   time.Duration // its end; if not working, when something is to be done
	steps   int
	first   float64       // seconds that its first step takes
	slope   float64       // seconds by which each takes longer than the one before
	ran     time.Duration // the latest time of Run
}

// NewFast makes an engine. The error is that of Params.Validate, or ErrStepTokens
// where MaxStepTokens is less than MaxBatch, which vLLM refuses too: streams would
// stand still in turns.
func NewFast(p Params) (*Fast, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if p.MaxStepTokens < p.MaxBatch {
		return nil, fmt.Errorf("%w: %d < %d", ErrStepTokens, p.MaxStepTokens, p.MaxBatch)
	}
	return &Fast{
		params: p, slowdown: 1, pool: newPool(p), phase: make([]int32, p.BlockSize), until: Never, ran: -1,
		ids: []uint64{0}, sequences: []*sequence{nil}, // handle 0 is none
	}, nil
}

// Add is Simulated's.
func (f *Fast) Add(r Request, now time.Duration) error {
	if err := f.params.check(&r); err != nil {
		return err
	}
	if f.index.get(f.ids, r.ID) != 0 {
		return ErrDuplicate
	}
	s := f.spare.popFront()
	if s == nil {
		s = &sequence{handle: int32(len(f.ids))}
		f.ids, f.sequences = append(f.ids, 0), append(f.sequences, s)
	}
	s.reset(r, &f.params, now)
	f.ids[s.handle] = r.ID
	f.index.put(f.ids, s.handle)
	if f.params.Frontend > 0 {
		f.arriving.pushBack(s)
	} else {
		f.waiting.pushBack(s)
	}
	switch {
	case !f.working:
		f.until = min(f.until, s.ready)
	case f.arriving.len+f.waiting.len == 1:
		f.invite(s.ready)
	}
	return nil
}

// Cancel is Simulated's.
func (f *Fast) Cancel(id uint64, now time.Duration) bool {
	s := f.sequences[f.index.get(f.ids, id)]
	if s == nil {
		return false
	}
	f.gauges.Cancelled++
	if s.in != &f.running {
		s.in.remove(s)
		f.forget(s, 0)
		f.reconsider(now)
		return true
	}
	f.settle(now)
	s.in.remove(s)
	computed := s.context + s.chunk
	if s.last > 0 {
		f.finishes.remove(s.place)
		f.leave(s, 1)
	} else {
		f.prefilling--
	}
	f.forget(s, computed)
	return true
}

// SetSlowdown is Simulated's.
func (f *Fast) SetSlowdown(factor float64, now time.Duration) {
	if !(factor > 0) || math.IsInf(factor, 0) {
		factor = 1
	}
	if factor != f.slowdown {
		f.settle(now)
		f.slowdown = factor
	}
}

// Next is Simulated's.
func (f *Fast) Next() time.Duration { return f.until }

// Run is Simulated's.
func (f *Fast) Run(now time.Duration, events []Event) []Event {
	for f.until <= now {
		at := f.until
		if f.working {
			events = f.end(events)
		}
		f.begin(at)
	}
	f.ran = max(f.ran, now)
	return events
}

// Gauges is Simulated's.
func (f *Fast) Gauges(now time.Duration) Gauges {
	g := f.gauges
	g.Running, g.Waiting = f.running.len, f.waiting.len
	over, grown := 0, 0
	if f.working {
		over = f.over(now)
		grown = f.growth(f.clock+1, over)
	}
	if over > 0 {
		at := f.endOf(over)
		for s := f.arriving.front; s != nil && s.ready <= at; s = s.next {
			g.Waiting++
		}
	}
	g.Steps += uint64(over)
	g.GenerationTokens += uint64(over * f.decoding)
	g.KVUsage = 1 - float64(f.pool.free-grown)/float64(f.params.Blocks)
	return g
}

// forget drops a sequence that is in no list any more, computed tokens of which are
// in the KV cache.
func (f *Fast) forget(s *sequence, computed int) {
	f.index.remove(f.ids, s.ID)
	f.pool.release(s, computed)
	s.Prefix = nil
	f.spare.pushBack(s)
}

var _ Simulated = (*Fast)(nil)
