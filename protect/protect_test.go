package protect

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRetryBudgetTightensWithUtilisation(t *testing.T) {
	b := NewRetryBudget(0.2)
	require.Equal(t, 0.2, b.Ratio(0))
	require.Equal(t, 0.2, b.Ratio(0.6))
	require.InDelta(t, 0.1, b.Ratio(0.775), 1e-12)
	require.Zero(t, b.Ratio(0.95))
	require.Zero(t, b.Ratio(2))
	require.False(t, b.Spend(0.95), "no retry is sent at the upper utilisation, saved up or not")
}

func TestRetryBudgetBoundsAmplification(t *testing.T) {
	b := NewRetryBudget(0.2)
	retries := 0
	const admitted = 10_000
	for range admitted {
		b.Admit(0.5)
		for b.Spend(0.5) {
			retries++
		}
	}
	require.LessOrEqual(t, retries, admitted/5+maxTokens)
	require.GreaterOrEqual(t, retries, admitted/5-1)
}

func TestRetryBudgetOfNothingSendsNothing(t *testing.T) {
	b := NewRetryBudget(0)
	b.Admit(0)
	require.False(t, b.Spend(0))
}

func TestShedIsExactOnAverage(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	shed := 0
	for range 100_000 {
		if Shed(rng.Uint64(), 0.3) {
			shed++
		}
	}
	require.InDelta(t, 30_000, shed, 600)
	require.False(t, Shed(0, 0))
	require.True(t, Shed(1<<64-1, 1))
}

func TestOutlierPassesOverAfterThreeFailuresAndRecovers(t *testing.T) {
	var o Outlier
	require.Zero(t, o.Observe(Failure, 1))
	require.Zero(t, o.Observe(Failure, 2))
	require.Equal(t, leaseFirst, o.Observe(Failure, 3))
	require.Equal(t, 2*leaseFirst, o.Observe(Failure, 4), "it doubles while the engine goes on failing")
	for range 10 {
		require.LessOrEqual(t, o.Observe(Failure, 5), leaseMax)
	}
	require.Zero(t, o.Observe(Success, 6))
	require.Zero(t, o.Observe(Failure, 7), "a success ends the row of failures")
}

func TestOutlierUnreachableIsPassedOverAtOnce(t *testing.T) {
	var o Outlier
	require.Equal(t, leaseFirst, o.Observe(Unreachable, 1))
}

func TestOutlierBackpressureIsNotDeath(t *testing.T) {
	var o Outlier
	for range 100 {
		require.Zero(t, o.Observe(Backpressure, 1))
	}
	require.Positive(t, o.Penalty(1))
}

func TestPenaltyHalvesAndEnds(t *testing.T) {
	var o Outlier
	o.Observe(Failure, 0)
	p := o.Penalty(0)
	require.InDelta(t, p/2, o.Penalty(int64(penaltyHalfLife)), 1e-9)
	require.Zero(t, o.Penalty(int64(10*time.Minute)), "a mark is a lease, never a latch")
}

func TestSlowFirstByteCountsAgainstThePrediction(t *testing.T) {
	var o Outlier
	o.ObserveFirstByte(2.9, 1, 0)
	require.Zero(t, o.Penalty(0))
	o.ObserveFirstByte(13, 1, 0)
	require.InDelta(t, 10*slowShare, o.Penalty(0), 1e-9)
	o.ObserveFirstByte(1e9, 1, 0)
	require.Equal(t, float64(penaltyMax), o.Penalty(0))
}

// TestLateTogetherIsNoOutlier: where all engines are late none is punished; one that is
// later than the others is, whatever they are.
func TestLateTogetherIsNoOutlier(t *testing.T) {
	for _, general := range []float64{0.1, 1, 5, 50} {
		var typical Typical
		engines := make([]Outlier, 4)
		rng := rand.New(rand.NewPCG(1, 2))
		worst := func(extra float64) (rest, last float64) {
			for i := range 4000 {
				e := i % 4
				seconds := general * (0.5 + rng.Float64())
				if e == 3 {
					seconds *= extra
				}
				typical.Observe(seconds, 1)
				engines[e].ObserveFirstByte(seconds, typical.Of(1), int64(i)*1e7)
			}
			at := int64(4000) * 1e7
			return engines[0].Penalty(at) + engines[1].Penalty(at) + engines[2].Penalty(at), engines[3].Penalty(at)
		}
		rest, last := worst(1)
		require.Less(t, rest+last, 3.0*general*slowShare, "%v times as slow, all of them", general)
		require.InEpsilon(t, general, typical.First(1), 0.15)
		if general < 1 {
			continue
		}
		rest, last = worst(12)
		require.Greater(t, last, 0.5)
		require.Less(t, rest, 0.2*last)
	}
}
