package optimal

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
)

func zeroMatrix(n int) mMatrix {
	var m mMatrix
	m.reset(n)
	m.clear()
	return m
}

// drawMatrix gives a matrix as the solver has it, of any scale, and its dense form.
func drawMatrix(r *rand.Rand, n int, excess float64) (*mMatrix, [][]float64) {
	m := zeroMatrix(n)
	dense := make([][]float64, n)
	for i := range dense {
		dense[i] = make([]float64, n)
	}
	for i := range n {
		m.excess[i] = excess * r.Float64()
		dense[i][i] += m.excess[i]
		for j := range m.row(i) {
			x := r.Float64()
			if r.IntN(3) == 0 {
				x = 0
			}
			m.row(i)[j] = x
			k := i + 1 + j
			dense[i][k], dense[k][i] = -x, -x
			dense[i][i] += x
			dense[k][k] += x
		}
	}
	return &m, dense
}

func TestMMatrixSolves(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for n := 1; n < 40; n++ {
		m, dense := drawMatrix(r, n, 1)
		want := make([]float64, n)
		for i := range want {
			want[i] = r.NormFloat64()
		}
		x := make([]float64, n)
		for i := range x {
			for j := range x {
				x[i] += dense[i][j] * want[j]
			}
		}
		m.factor()
		m.solve(x)
		for i := range x {
			assert.InDelta(t, want[i], x[i], 1e-9*float64(n), "n=%d", n)
		}
	}
}

// However little holds the prices, pushing all of them by what holds them moves
// all of them by 1. Textbook elimination has no digit left here.
func TestMMatrixKeepsDigits(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for _, excess := range []float64{1, 1e-10, 1e-20, 1e-100} {
		m, _ := drawMatrix(r, 23, excess)
		x := append([]float64(nil), m.excess...)
		m.factor()
		m.solve(x)
		for i := range x {
			assert.InEpsilon(t, 1, x[i], 1e-12, "excess %v", excess)
		}
	}
}

func TestMMatrixWithoutHold(t *testing.T) {
	m := zeroMatrix(6)
	m.excess[0], m.row(1)[0] = 2, 1 // unknowns 1 and 2 hold each other alone
	x := []float64{4, 0, 0, 0, 0, 0}
	m.factor()
	m.solve(x)
	assert.Equal(t, 2.0, x[0])
	for _, y := range x {
		assert.False(t, math.IsNaN(y))
	}
}

func TestAddPairs(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for count := 1; count <= block; count++ {
		m := zeroMatrix(9)
		want := make([]float64, 81)
		hold := make([]float64, 9)
		var rows []fan
		for range count {
			s := fan{theta: make([]float64, 5), shed: r.Float64()}
			s.sum = s.shed
			for j := range s.theta {
				s.theta[j] = r.Float64()
				s.sum += s.theta[j]
			}
			for j := range s.theta {
				hold[3+j] += s.theta[j] * s.shed / s.sum
				for k := j + 1; k < 5; k++ {
					want[(3+j)*9+3+k] += s.theta[j] * s.theta[k] / s.sum
				}
			}
			rows = append(rows, s)
		}
		m.addPairs(3, rows)
		assert.InDeltaSlice(t, want, m.off, 1e-14)
		assert.InDeltaSlice(t, hold, m.excess, 1e-14)
	}
}
