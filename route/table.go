package route

import (
	"math"
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"
)

const (
	// fine is the slots for each engine, leastEngines how many engines there are slots
	// for at least.
	fine         = 256
	leastEngines = 64

	// Two calibration passes: a third makes shares and movement worse.
	calibrationPasses   = 2
	calibrationExponent = 0.8

	// weightFloor keeps an engine of almost no weight out of the table, where
	// it could win a slot only by accident.
	weightFloor = 1e-4
)

// slotTable assigns 2^k slots to engines in proportion to their weights. Each
// slot belongs to the earliest arrival of a Poisson race in which an engine's
// times are scaled by 1/weight: weighted rendezvous hashing per slot (Thaler and
// Ravishankar 1998; the exponential form is due to Schindelhauer and Schomaker
// 2005). Raising one weight therefore only moves slots to that engine.
type slotTable struct {
	slots []uint32 // index into the row's targets
	mask  uint64
}

// size is how good a table is: how many slots it has for each engine, and how often weights
// are corrected by what they gave.
type size struct{ perEngine, passes int }

// newSlotTable builds the table for engines named names. Weights need not be
// normalised; those under weightFloor of the sum get no slot. At least one
// weight must be positive.
func newSlotTable(names []string, weights []float64, of size) slotTable {
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	want := make([]float64, len(weights))
	for i, w := range weights {
		if w/sum >= weightFloor {
			want[i] = w / sum
		}
	}
	n := 1 << bits.Len(uint(of.perEngine*max(len(names), leastEngines)-1))
	t := slotTable{slots: make([]uint32, n), mask: uint64(n - 1)}
	race := newRace(names, n)
	adjusted := slices.Clone(want)
	for pass := 0; ; pass++ {
		race.run(adjusted, t.slots)
		if pass == of.passes {
			return t
		}
		calibrate(adjusted, want, t.slots)
	}
}

// calibrate scales each weight by how much its engine got of what it wants.
func calibrate(adjusted, want []float64, slots []uint32) {
	got := make([]float64, len(want))
	for _, i := range slots {
		got[i] += 1 / float64(len(slots))
	}
	for i := range adjusted {
		if got[i] > 0 {
			adjusted[i] *= math.Pow(want[i]/got[i], calibrationExponent)
		}
	}
}

// race holds the streams of one build. Every engine draws its own sequence of
// (slot, time) arrivals, the same in every pass: only the scale of its times
// changes with its weight.
//
// Time goes on for all engines together, in rounds of one arrival per slot: a slot that had
// one in an earlier round is decided, and after a few rounds nearly all are. So most
// arrivals are dismissed by one bit, and no more are drawn than it takes.
type race struct {
	seeds   []uint64
	state   []uint64
	clock   []float64 // time of each engine's last arrival that was drawn
	best    []uint64  // by slot: the earliest arrival's time, a float32's bits, and its engine
	decided []uint64  // by slot, a bit
}

func newRace(names []string, size int) *race {
	n := len(names)
	r := &race{
		seeds: make([]uint64, n), state: make([]uint64, n), clock: make([]float64, n),
		best: make([]uint64, size), decided: make([]uint64, size/64),
	}
	for i, n := range names {
		r.seeds[i] = xxhash.Sum64String(n)
	}
	return r
}

// run fills slots with the engines of the earliest arrivals, for weights that
// add up to about 1. Of those at the same time the first engine's counts.
func (r *race) run(weights []float64, slots []uint32) {
	for s := range r.best {
		r.best[s] = math.MaxUint64
	}
	clear(r.decided)
	copy(r.state, r.seeds)
	clear(r.clock)
	round := float64(len(slots))
	for horizon := round; ; horizon += round {
		for i, w := range weights {
			if w > 0 {
				r.advance(uint32(i), 1/w, horizon)
			}
		}
		if r.decide() {
			break
		}
	}
	for s, b := range r.best {
		slots[s] = uint32(b)
	}
}

// decide closes the slots that have an arrival, and tells whether all have. Tables have
// a multiple of 64 slots.
func (r *race) decide() (all bool) {
	all = true
	for i, word := range r.decided {
		if word == math.MaxUint64 {
			continue
		}
		word = 0
		for bit, b := range r.best[64*i : 64*i+64] {
			if b != math.MaxUint64 {
				word |= 1 << bit
			}
		}
		r.decided[i] = word
		all = all && word == math.MaxUint64
	}
	return all
}

// advance draws one engine's arrivals up to the horizon. The one beyond it is
// drawn again in the next round.
func (r *race) advance(engine uint32, scale, horizon float64) {
	best, decided := r.best, r.decided
	mask := uint64(len(best) - 1)
	state, t := r.state[engine], r.clock[engine]
	for {
		x := mix(state + phi)
		next := t + exponential[x>>(64-quantileBits)]*scale
		if next > horizon {
			break
		}
		state, t = state+phi, next
		s := x & mask
		if decided[s/64]>>(s%64)&1 == 0 {
			best[s] = min(best[s], uint64(math.Float32bits(float32(t)))<<32|uint64(engine))
		}
	}
	r.state[engine], r.clock[engine] = state, t
}

const quantileBits = 12

// exponential holds quantiles of the exponential law of mean 1: a look-up is
// several times faster than a logarithm and as good for sums of many.
var exponential = func() (q [1 << quantileBits]float64) {
	for i := range q {
		q[i] = -math.Log((float64(i) + 0.5) / (1 << quantileBits))
	}
	return q
}()

// phi is 2^64 over the golden ratio: the increment of a Weyl sequence.
const phi = 0x9e3779b97f4a7c15

// mix is the finaliser of SplitMix64 (Steele, Lea and Flood 2014).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
