package protect

import "sync/atomic"

// The utilisations between which the retry budget tightens to nothing.
const (
	utilisationLow  = 0.6
	utilisationHigh = 0.95
)

const (
	tokenUnits = 1 << 20 // fixed point of one token
	maxTokens  = 100     // retries saved up at most
)

// RetryBudget is a token bucket filled by admitted requests, never by the ones
// in flight: a budget that shrinks as actives fail is a death spiral. It starts
// full. Safe for concurrent use.
type RetryBudget struct {
	ratio  float64
	tokens atomic.Int64
}

// NewRetryBudget gives a budget of at most ratio retries per admitted request.
func NewRetryBudget(ratio float64) *RetryBudget {
	b := &RetryBudget{ratio: ratio}
	if ratio > 0 {
		b.tokens.Store(maxTokens * tokenUnits)
	}
	return b
}

// Ratio is the retries allowed per admitted request when the row's engines are
// used to a fraction u of their capacity: full up to 0.6, none from 0.95.
func (b *RetryBudget) Ratio(u float64) float64 {
	return b.ratio * min(max((utilisationHigh-u)/(utilisationHigh-utilisationLow), 0), 1)
}

// Left is how many retries it holds.
func (b *RetryBudget) Left() float64 { return float64(b.tokens.Load()) / tokenUnits }

// Admit adds what one admitted request at utilisation u is worth.
func (b *RetryBudget) Admit(u float64) {
	add := int64(b.Ratio(u) * tokenUnits)
	for {
		old := b.tokens.Load()
		if b.tokens.CompareAndSwap(old, min(old+add, maxTokens*tokenUnits)) {
			return
		}
	}
}

// Spend takes one retry from the budget at utilisation u and reports whether it
// may be sent. At utilisation 0.95 none is.
func (b *RetryBudget) Spend(u float64) bool {
	if b.Ratio(u) == 0 {
		return false
	}
	for {
		old := b.tokens.Load()
		if old < tokenUnits {
			return false
		}
		if b.tokens.CompareAndSwap(old, old-tokenUnits) {
			return true
		}
	}
}

// Shed decides whether a request is refused when a fraction of its priority is
// to be. draw is uniform: the fraction is exact on average.
func Shed(draw uint64, fraction float64) bool { return Lot(draw) < fraction }

// Lot is a draw as a number from 0 up to 1.
func Lot(draw uint64) float64 { return float64(draw>>11) / (1 << 53) }
