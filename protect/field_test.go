package protect

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Tests named TestField_NN hold what makes a failure of other routers impossible
// here; the number is the case's in the project's catalogue of field failures,
// docs/failures.md. They stand in the package where the behaviour lives.

// TestField_28_EveryMarkEndsByItself: with nothing more ever observed.
func TestField_28_EveryMarkEndsByItself(t *testing.T) {
	for _, outcome := range []Outcome{Backpressure, Failure, Unreachable, Stalled} {
		var o Outlier
		longest := time.Duration(0)
		for range 1000 {
			longest = max(longest, o.Observe(outcome, 0))
		}
		require.LessOrEqual(t, longest, leaseMax)
		require.LessOrEqual(t, o.Penalty(0), float64(penaltyMax))
		require.Zero(t, o.Penalty(int64(2*time.Minute)))
	}
}

// TestField_40_BackpressureIsNoStepToDeath: it neither passes the engine over nor
// brings a failure nearer.
func TestField_40_BackpressureIsNoStepToDeath(t *testing.T) {
	var o Outlier
	for range 1000 {
		require.Zero(t, o.Observe(Backpressure, 0))
	}
	require.Zero(t, o.Observe(Failure, 0))
	require.Zero(t, o.Observe(Failure, 0))
	require.Positive(t, o.Observe(Failure, 0))
}

// TestField_47_LeasesGrowWhileItGoesOn: the later of two is never the shorter.
func TestField_47_LeasesGrowWhileItGoesOn(t *testing.T) {
	var o Outlier
	end := int64(0)
	for now := range int64(20) {
		if lease := o.Observe(Unreachable, now*int64(time.Millisecond)); lease > 0 {
			require.Greater(t, now*int64(time.Millisecond)+int64(lease), end)
			end = now*int64(time.Millisecond) + int64(lease)
		}
	}
	require.Positive(t, end)
}

// TestField_49_TheBudgetCountsWhatIsAdmitted: a thousand admitted are worth the same
// retries whether they live or fail.
func TestField_49_TheBudgetCountsWhatIsAdmitted(t *testing.T) {
	spend := func(failing bool) (n int) {
		b := NewRetryBudget(0.1)
		for b.Spend(0) { // what was saved up
		}
		for range 1000 {
			b.Admit(0)
			if failing && b.Spend(0) {
				n++
			}
		}
		for b.Spend(0) {
			n++
		}
		return n
	}
	require.InDelta(t, 100, spend(true), 1)
	require.InDelta(t, 100, spend(false), 1)
}

// TestField_50_EveryRetryIsCountedOnce: from many cores.
func TestField_50_EveryRetryIsCountedOnce(t *testing.T) {
	b := NewRetryBudget(0.5)
	var spent atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				b.Admit(0)
				if b.Spend(0) {
					spent.Add(1)
				}
			}
		})
	}
	wg.Wait()
	for b.Spend(0) {
		spent.Add(1)
	}
	require.LessOrEqual(t, spent.Load(), int64(maxTokens+4000))
	require.GreaterOrEqual(t, spent.Load(), int64(4000-1))
}
