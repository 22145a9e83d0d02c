package optimal

// mMatrix is a symmetric, diagonally dominant matrix whose other elements are
// not above 0, as the group prices have it. It is held by what makes its
// diagonal, which is never stored:
//
//	matrix[i][j] = -off[i*n+j]  for j > i, off >= 0
//	matrix[i][i] = the sum of |matrix[i][j]| over j != i, plus excess[i] >= 0
//
// In this form elimination never subtracts, so no digit is lost however far the
// excess lies below the rest (Alfa, Xue, Ye 2002, after Grassmann, Taksar,
// Heyman 1985). When all caps bind, the excess is all that holds the prices.
type mMatrix struct {
	n        int
	off      []float64
	excess   []float64
	diagonal []float64 // of the factor, after factor
}

func newMMatrix(n int) mMatrix {
	return mMatrix{n: n, off: make([]float64, n*n), excess: make([]float64, n), diagonal: make([]float64, n)}
}

func (m *mMatrix) clear() {
	clear(m.off)
	clear(m.excess)
}

// row is the part of row i to the right of the diagonal.
func (m *mMatrix) row(i int) []float64 { return m.off[i*m.n+i+1 : (i+1)*m.n] }

// factor eliminates in place: L D L' with unit lower triangular L.
func (m *mMatrix) factor() {
	for k := range m.n {
		row := m.row(k)
		d := m.excess[k]
		for _, x := range row {
			d += x
		}
		m.diagonal[k] = d
		if d <= 0 {
			continue // nothing holds this price, and nothing depends on it
		}
		for i, x := range row {
			if x == 0 {
				continue
			}
			axpy(m.row(k+1+i), row[i+1:], x/d)
			m.excess[k+1+i] += x / d * m.excess[k]
		}
	}
}

// solve replaces x by the solution of matrix y = x, after factor.
func (m *mMatrix) solve(x []float64) {
	for k := range m.n {
		if m.diagonal[k] <= 0 {
			x[k] = 0
			continue
		}
		x[k] /= m.diagonal[k]
		axpy(x[k+1:], m.row(k), x[k])
	}
	for k := m.n - 1; k >= 0; k-- {
		if m.diagonal[k] > 0 {
			x[k] += dot(m.row(k), x[k+1:]) / m.diagonal[k]
		}
	}
}

// dot keeps four sums, always added up in one order.
func dot(a, b []float64) float64 {
	var s0, s1, s2, s3 float64
	b = b[:len(a)]
	i := 0
	for ; i+4 <= len(a); i += 4 {
		s0 += a[i] * b[i]
		s1 += a[i+1] * b[i+1]
		s2 += a[i+2] * b[i+2]
		s3 += a[i+3] * b[i+3]
	}
	for ; i < len(a); i++ {
		s0 += a[i] * b[i]
	}
	return (s0 + s1) + (s2 + s3)
}

// axpy adds f times a to x.
func axpy(x, a []float64, f float64) {
	a = a[:len(x)]
	for i := range x {
		x[i] += f * a[i]
	}
}
