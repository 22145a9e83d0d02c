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

// reset makes it an n by n matrix, whose elements are not defined.
func (m *mMatrix) reset(n int) {
	m.n = n
	m.off, m.excess, m.diagonal = resize(m.off, n*n), resize(m.excess, n), resize(m.diagonal, n)
}

// couple adds x >= 0 to what flows i and j take from one another.
func (m *mMatrix) couple(i, j int, x float64) {
	if i > j {
		i, j = j, i
	}
	if i < j {
		m.off[i*m.n+j] += x
	}
}

func (m *mMatrix) clear() {
	clear(m.off)
	clear(m.excess)
}

// row is the part of row i to the right of the diagonal.
func (m *mMatrix) row(i int) []float64 { return m.off[i*m.n+i+1 : (i+1)*m.n] }

// block is how many rows one pass over the matrix takes in: memory, not
// arithmetic, is what a large matrix costs.
const block = 4

// factor eliminates in place: L D L' with unit lower triangular L.
func (m *mMatrix) factor() {
	for from := 0; from < m.n; from += block {
		to := min(from+block, m.n)
		for k := from; k < to; k++ {
			m.pivot(k, to)
		}
		i := to
		if to-from == block {
			for ; i+2 <= m.n; i += 2 {
				m.eliminateTwo(from, i)
			}
		}
		for ; i < m.n; i++ {
			m.eliminate(from, to, i)
		}
	}
}

// eliminate takes the unknowns from, ..., to-1 out of row i.
func (m *mMatrix) eliminate(from, to, i int) {
	var a [block][]float64
	var f [block]float64
	for k := from; k < to; k++ {
		a[k-from] = m.row(k)[i-k:]
		f[k-from] = m.factorOf(k, i)
	}
	addBlock(m.row(i), to-from, &a, &f)
}

// factorOf is the multiple of row k that takes unknown k out of row i.
func (m *mMatrix) factorOf(k, i int) float64 {
	d := m.diagonal[k]
	if d <= 0 {
		return 0
	}
	f := m.off[k*m.n+i] / d
	m.excess[i] += f * m.excess[k]
	return f
}

// eliminateTwo takes a whole block out of rows i and i+1, reading it once.
func (m *mMatrix) eliminateTwo(from, i int) {
	var a [block][]float64
	var f, g [block]float64
	first := 0.0
	for b := range block {
		k := from + b
		f[b], g[b] = m.factorOf(k, i), m.factorOf(k, i+1)
		first += f[b] * m.off[k*m.n+i+1]
		a[b] = m.off[k*m.n+i+2 : (k+1)*m.n]
	}
	m.off[i*m.n+i+1] += first
	x, y := m.off[i*m.n+i+2:(i+1)*m.n], m.row(i+1)
	y = y[:len(x)]
	a0, a1, a2, a3 := a[0][:len(x)], a[1][:len(x)], a[2][:len(x)], a[3][:len(x)]
	f0, f1, f2, f3 := f[0], f[1], f[2], f[3]
	g0, g1, g2, g3 := g[0], g[1], g[2], g[3]
	for j := range x {
		b0, b1, b2, b3 := a0[j], a1[j], a2[j], a3[j]
		x[j] += (f0*b0 + f1*b1) + (f2*b2 + f3*b3)
		y[j] += (g0*b0 + g1*b1) + (g2*b2 + g3*b3)
	}
}

// pivot eliminates unknown k from the rows between it and to.
func (m *mMatrix) pivot(k, to int) {
	row := m.row(k)
	d := m.excess[k]
	for _, x := range row {
		d += x
	}
	m.diagonal[k] = d
	if d <= 0 {
		return // nothing holds this price, and nothing depends on it
	}
	for i := k + 1; i < to; i++ {
		x := row[i-k-1] / d
		axpy(m.row(i), row[i-k:], x)
		m.excess[i] += x * m.excess[k]
	}
}

// addPairs adds what rows contribute that split their flow between the groups
// first, first+1, ...: for each, theta of every group and of refusals, and the
// sum of them all.
func (m *mMatrix) addPairs(first int, rows []fan) {
	n := len(rows[0].theta)
	for j := range n {
		var a [block][]float64
		var f [block]float64
		for k := range rows {
			f[k] = rows[k].theta[j] / rows[k].sum
			a[k] = rows[k].theta[j+1:]
			m.excess[first+j] += f[k] * rows[k].shed
		}
		addBlock(m.row(first + j)[:n-j-1], len(rows), &a, &f)
	}
}

// fan is how much flow a change of price moves, by where it goes.
type fan struct {
	theta     []float64
	shed, sum float64
}

// addBlock adds f[k] times a[k] to x for the first n of them.
func addBlock(x []float64, n int, a *[block][]float64, f *[block]float64) {
	if n < block {
		for k := range n {
			axpy(x, a[k], f[k])
		}
		return
	}
	a0, a1, a2, a3 := a[0][:len(x)], a[1][:len(x)], a[2][:len(x)], a[3][:len(x)]
	f0, f1, f2, f3 := f[0], f[1], f[2], f[3]
	for i := range x {
		x[i] += (f0*a0[i] + f1*a1[i]) + (f2*a2[i] + f3*a3[i])
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
