package latency_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/latency"
)

var near = fleet.Profile{T0: 0.2, UMax: 125, Batch: 200, Kappa: 0.9}

func TestSaturationAndCapacity(t *testing.T) {
	m := latency.New(near)
	assert.InDelta(t, 200/(0.2+200/125.0), m.Saturation(), 1e-9)
	assert.InDelta(t, 100, m.Capacity(), 1e-9)
}

func TestFormula(t *testing.T) {
	m := latency.New(near)
	n := math.Sqrt(2*201) - 1
	for _, u := range []float64{0.001, 1, 50, 90, 100, 110, 111} {
		rho := u / m.Saturation()
		sb := 200 / m.Saturation()
		want := 0.2/(1-u/125) + sb/200*math.Pow(rho, n)/(1-rho)
		assert.InEpsilon(t, want, m.Latency(u), 1e-12, "u=%v", u)
		assert.InEpsilon(t, u*want, m.Phi(u), 1e-12, "u=%v", u)
	}
	assert.Equal(t, 0.2, m.Latency(0))
	assert.Zero(t, m.Congestion(0))
	assert.InDelta(t, 0.2, m.At(0).Slope, 1e-15)
}

func TestOddLoads(t *testing.T) {
	for _, p := range []fleet.Profile{
		near,
		{T0: 1e-9, UMax: 1e12, Batch: 1, Kappa: 0.95},
		{T0: 1e6, UMax: 1e-3, Batch: 0.01, Kappa: 0.5},
		{T0: 1, UMax: 1e3, Batch: 1e6, Kappa: 0.9},
	} {
		m := latency.New(p)
		s := m.Saturation()
		for _, u := range []float64{math.NaN(), -1, 0, 1e-300, s * 0.5, s * edge(), s, 2 * s, 1e3 * s, 1e100} {
			c := m.At(u)
			for i, x := range []float64{m.Latency(u), m.Congestion(u), c.Phi, c.Slope, c.Bend} {
				require.False(t, math.IsNaN(x), "%+v at %v: value %d", p, u, i)
				require.GreaterOrEqual(t, x, 0.0, "%+v at %v: value %d", p, u, i)
			}
		}
	}
}

func edge() float64 { return 0.9999 }

func drawProfile(t *rapid.T) fleet.Profile {
	return fleet.Profile{
		T0:    rapid.Float64Range(0.01, 20).Draw(t, "t0"),
		UMax:  rapid.Float64Range(0.1, 500).Draw(t, "u_max"),
		Batch: rapid.Float64Range(1, 1000).Draw(t, "batch"),
		Kappa: rapid.Float64Range(0.1, 0.95).Draw(t, "kappa"),
	}
}

// Increasing and convex everywhere, across the parabola's seam too.
func TestConvexIncreasing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := latency.New(drawProfile(t))
		a := rapid.Float64Range(0, 1.5).Draw(t, "a") * m.Saturation()
		b := rapid.Float64Range(0, 1.5).Draw(t, "b") * m.Saturation()
		if a > b {
			a, b = b, a
		}
		if ca, cb := m.At(a), m.At(b); cb.Slope < ca.Slope*(1-1e-12) {
			t.Fatalf("slope falls from %v to %v", ca.Slope, cb.Slope)
		} else if cb.Phi < ca.Phi+ca.Slope*(b-a)-1e-9*cb.Phi {
			t.Fatalf("not above its tangent: %v and %v", ca, cb)
		}
	})
}

func TestDerivatives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := latency.New(drawProfile(t))
		u := rapid.Float64Range(0.01, 1.2).Draw(t, "rho") * m.Saturation()
		if math.Abs(u/m.Saturation()-edge()) < 1e-3 || u > 0.98*m.Saturation() && u < m.Saturation() {
			return // differences are too coarse at the pole
		}
		h := 1e-5 * u
		lo, at, hi := m.At(u-h), m.At(u), m.At(u+h)
		if d := (hi.Phi - lo.Phi) / (2 * h); math.Abs(d-at.Slope) > 1e-5*at.Slope {
			t.Fatalf("slope %v, difference %v", at.Slope, d)
		}
		if d := (hi.Slope - lo.Slope) / (2 * h); math.Abs(d-at.Bend) > 1e-3*at.Bend {
			t.Fatalf("bend %v, difference %v", at.Bend, d)
		}
		if d := at.Slope - m.Latency(u) - m.Congestion(u); math.Abs(d) > 1e-9*at.Slope {
			t.Fatalf("latency and congestion differ from slope by %v", d)
		}
	})
}
