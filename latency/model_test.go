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
		{T0: 1, UMax: 1e3, Batch: 64, Kappa: 0.9, FirstToken: 1, Spread: 1e-300},
		{T0: 1, UMax: 1e3, Batch: 64, Kappa: 0.9, FirstToken: 1e-9, Spread: fleet.MaxSpread},
	} {
		for _, weights := range [][2]float64{{1, 1}, {0, 0}, {1, 0}, {0, 1}, {1e-9, 1e9}} {
			requireOddLoads(t, p, latency.Weighted(p, weights[0], weights[1]))
		}
	}
}

func requireOddLoads(t *testing.T, p fleet.Profile, m latency.Model) {
	t.Helper()
	s := m.Saturation()
	for _, u := range []float64{math.NaN(), -1, 0, 1e-300, s * 0.5, s * edge(), s, 2 * s, 1e3 * s, 1e100} {
		c := m.At(u)
		for i, x := range []float64{m.Latency(u), m.FirstToken(u), m.Congestion(u), c.Phi, c.Slope, c.Bend} {
			require.False(t, math.IsNaN(x), "%+v at %v: value %d", p, u, i)
			require.GreaterOrEqual(t, x, 0.0, "%+v at %v: value %d", p, u, i)
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

		FirstToken: rapid.SampledFrom([]float64{0, 0.001, 0.01}).Draw(t, "first token"),
		Spread:     rapid.SampledFrom([]float64{0, 0.5, 1, 3}).Draw(t, "spread"),
	}
}

// drawModel is New of a profile half the time, else Weighted, by weights of which
// one may be 0.
func drawModel(t *rapid.T) latency.Model {
	p := drawProfile(t)
	if rapid.Bool().Draw(t, "new") {
		return latency.New(p)
	}
	weight := rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0.01, 100))
	return latency.Weighted(p, weight.Draw(t, "first"), weight.Draw(t, "decode"))
}

// Increasing and convex everywhere, across the parabola's seam too.
func TestConvexIncreasing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		a := rapid.Float64Range(0, 1.5).Draw(t, "a") * m.Saturation()
		b := rapid.Float64Range(0, 1.5).Draw(t, "b") * m.Saturation()
		if a > b {
			a, b = b, a
		}
		if ca, cb := m.At(a), m.At(b); cb.Slope < ca.Slope*(1-1e-12) {
			t.Fatalf("slope falls from %v to %v", ca.Slope, cb.Slope)
		} else if ca.Bend < 0 || cb.Bend < 0 {
			t.Fatalf("bends down: %v and %v", ca, cb)
		} else if cb.Phi < ca.Phi+ca.Slope*(b-a)-1e-9*cb.Phi {
			t.Fatalf("not above its tangent: %v and %v", ca, cb)
		}
	})
}

func TestDerivatives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
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

func TestWeightsOfOneAreNoWeights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProfile(t)
		if latency.Weighted(p, 1, 1) != latency.New(p) {
			t.Fatal("differs from New")
		}
		p.Spread = 0
		plain := latency.New(p)
		p.Spread = 1
		if plain != latency.New(p) {
			t.Fatal("a spread of 1 is not the default")
		}
	})
}

// TestWorthIsTheSumOfItsParts: worth is linear in the weights, and at weights 1 and
// 0 it is the time until the first token.
func TestWorthIsTheSumOfItsParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProfile(t)
		p.FirstToken = p.T0 * rapid.Float64Range(0.001, 1).Draw(t, "part")
		first, decode := rapid.Float64Range(0, 10).Draw(t, "first"), rapid.Float64Range(0, 10).Draw(t, "decode")
		all, f, d := latency.Weighted(p, first, decode), latency.Weighted(p, 1, 0), latency.Weighted(p, 0, 1)
		if all.Saturation() != f.Saturation() || all.Capacity() != d.Capacity() {
			t.Fatal("capacity depends on the weights")
		}
		u := rapid.Float64Range(0, 1.5).Draw(t, "rho") * all.Saturation()
		if want := first*f.Latency(u) + decode*d.Latency(u); math.Abs(all.Latency(u)-want) > 1e-9*want {
			t.Fatalf("%v where the parts give %v", all.Latency(u), want)
		}
		if got, want := all.FirstToken(u), f.Latency(u); got != want {
			t.Fatalf("first token after %v, want %v", got, want)
		}
	})
}

func TestUnknownFirstTokenIsDecode(t *testing.T) {
	m := latency.Weighted(near, 5, 2)
	assert.InDelta(t, 2*0.2, m.Latency(0), 1e-15)
	assert.InDelta(t, latency.New(near).Latency(90), m.FirstToken(90), 1e-15, "bounded by the whole")
	p := near
	p.FirstToken, p.Spread = 0.05, 2
	u, s := 100.0, latency.New(p).Saturation()
	knee := 2 * math.Pow(u/s, math.Sqrt(2*201)-1) / ((1 - u/s) * s)
	assert.InEpsilon(t, 0.05/(1-u/125)+knee, latency.New(p).FirstToken(u), 1e-12)
	assert.InEpsilon(t, 0.2/(1-u/125)+knee, latency.New(p).Latency(u), 1e-12)
}

func BenchmarkAt(b *testing.B) {
	m := latency.New(near)
	sum := 0.0
	for b.Loop() {
		sum += latency.At(&m, 90).Bend
	}
	_ = sum
}
