package optimal

import "math"

// factor replaces the lower triangle of the n by n matrix k (row-major) by its
// Cholesky factor. A pivot lost to rounding is made so large that its unknown
// stays put, which drops a direction that carries nothing.
func factor(k []float64, n int) {
	for i := range n {
		row := k[i*n : i*n+i+1]
		for j := range i {
			other := k[j*n : j*n+j+1]
			row[j] = (row[j] - dot(row[:j], other[:j])) / other[j]
		}
		pivot := row[i] - dot(row[:i], row[:i])
		if pivot > 1e-16*row[i] {
			row[i] = math.Sqrt(pivot)
		} else {
			row[i] = 1e100
		}
	}
}

// solve replaces x by the solution of L L' y = x, with L from factor.
func solve(k []float64, n int, x []float64) {
	for i := range n {
		row := k[i*n : i*n+i+1]
		x[i] = (x[i] - dot(row[:i], x[:i])) / row[i]
	}
	for i := n - 1; i >= 0; i-- {
		row := k[i*n : i*n+i+1]
		x[i] /= row[i]
		axpy(x[:i], row[:i], -x[i])
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
