package latency

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPower(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	for range 100000 {
		rho, k := r.Float64(), math.Exp(6*r.Float64()-1)
		if r.IntN(4) == 0 {
			rho = math.Exp(-100 * r.Float64())
		}
		want := math.Pow(rho, k)
		if want < 1e-290 {
			continue
		}
		assert.InEpsilon(t, want, power(rho, k), 1e-15*(10-k*math.Log(rho)))
	}
	assert.Equal(t, 1.0, power(0, 0))
	assert.Equal(t, 1.0, power(0.5, 0))
	assert.Equal(t, 0.0, power(0, 3))
	assert.Equal(t, 0.0, power(0.1, 1e6))
	assert.InDelta(t, 1, power(1-1e-16, 1), 1e-15)
}

func BenchmarkPower(b *testing.B) {
	sum := 0.0
	for b.Loop() {
		sum += power(0.83, 21.7)
	}
	_ = sum
}
