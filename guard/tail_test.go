package guard

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTail holds the tail of the binomial distribution against its sum.
func TestTail(t *testing.T) {
	choose := func(n, k int) float64 {
		c := 1.0
		for i := range k {
			c *= float64(n-i) / float64(i+1)
		}
		return c
	}
	for _, n := range []int{1, 20, 55} {
		for _, p := range []float64{0.001, 0.05, 0.5, 0.9} {
			for k := int(float64(n)*p) + 1; k <= n; k++ {
				want := 0.0
				for i := k; i <= n; i++ {
					want += choose(n, i) * math.Pow(p, float64(i)) * math.Pow(1-p, float64(n-i))
				}
				require.InEpsilon(t, want, tail(float64(n), float64(k), p), 1e-6, "%d of %d at %v", k, n, p)
			}
		}
	}
	require.Less(t, tail(1e8, 2e7, 0.1), 1e-300)
}
