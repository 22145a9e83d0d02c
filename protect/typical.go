package protect

import (
	"math"
	"sync/atomic"
)

// typicalStep is by how much one observation moves the median in the long run; the
// first ones move it more, lest whoever starts under load punish everybody.
const typicalStep = 0.02

// Typical knows how many times their predictions first tokens of a model take as a
// rule: the median, whichever engine gave them. Where all are late none is an outlier:
// to punish engines for what all of them suffer would move their traffic to and fro
// and cost it the caches that it has.
//
// The median is followed by steps up and down (Robbins and Monro 1951). The zero value
// is ready. Safe for concurrent use; of racing observations one may be lost.
type Typical struct {
	bits  atomic.Uint64
	count atomic.Uint64
}

// Observe takes in that a first token took seconds where predicted had been, both above
// 0; others are left out.
func (t *Typical) Observe(seconds, predicted float64) {
	if !(seconds > 0 && predicted > 0) {
		return
	}
	ratio, median := seconds/predicted, t.median()
	step := 1 + max(typicalStep, 1/float64(1+t.count.Add(1)))
	if ratio > median {
		median *= step
	} else {
		median /= step
	}
	t.bits.Store(math.Float64bits(min(max(median, 1e-3), 1e3)))
}

// Of is what a prediction becomes where all are late; never less than it is.
func (t *Typical) Of(predicted float64) float64 { return predicted * max(1, t.median()) }

// First is when a first token is to be expected of a request for which predicted is what the plan
// says of it as a whole.
func (t *Typical) First(predicted float64) float64 { return predicted * t.median() }

func (t *Typical) median() float64 {
	if m := math.Float64frombits(t.bits.Load()); m > 0 {
		return m
	}
	return 1
}
