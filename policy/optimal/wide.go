package optimal

import (
	"math"

	"github.com/wardrop-lb/wardrop/latency"
)

// A wide class has extra limits: on what its flows hold of tokens and slots, of
// which models hold different amounts. Each is a pair more, a slack and a price.
// How its flows dy answer to forces f follows from a small system
//
//	dy/theta + sum a_l dq_l = f
//	a_l dy - dq_l/h_l       = 0    for the cap (a = 1) and each extra limit
//
// with h the stiffness of what holds a limit: its pair, and for the cap the curve's
// bend too. Where some limits bind and some flows are free, the answer is the small
// difference of large terms, whichever of the two one eliminates first; so the
// system is solved as it stands, with complete pivoting, which takes what is stiff
// by its diagonal and the rest across.
type extra struct {
	system []float64 // by class, see systemAt: its factors
	pivots []int32   // by class, see pivotsAt: rows, then columns

	systemAt, pivotsAt []int32   // by class
	unitAt             []int32   // by class: where its unit answers begin
	unit               []float64 // by class: the answers of flows, then of limits, to forces 1
	f, y, work         []float64 // scratch
}

func (s *interior) isWide(k int) bool { return s.extraStart[k] < s.extraStart[k+1] }

// flows are a class's links, then its holds, as they stand in theta.
type flows struct{ link, links, hold int }

func (f flows) at(j int) int {
	if j < f.links {
		return f.link + j
	}
	return f.hold + j - f.links
}

// flows gives a class's flows and how many there are.
func (s *interior) flows(k int) (int, flows) {
	links := int(s.linkStart[k+1] - s.linkStart[k])
	return links + int(s.holdStart[k+1]-s.holdStart[k]),
		flows{s.links + int(s.linkStart[k]), links, s.holds + int(s.holdStart[k])}
}

// price is what a unit of a class's j-th flow pays there: the load's slope, the cap
// and the extra limits.
func (s *interior) price(k, j int) float64 {
	price := s.slope[k] + s.dual[s.caps+k]
	for i := int(s.extraStart[k]); i < int(s.extraStart[k+1]); i++ {
		price += s.extraHolds[int(s.extraAt[i])+j] * s.dual[s.extras+i]
	}
	return price
}

// groupAt is the group of the link or hold that stands at a place in theta.
func (s *interior) groupAt(at int) int32 {
	if at < s.holds {
		return s.linkGroup[at-s.links]
	}
	return s.holdGroup[at-s.holds]
}

// measureWide is measureClass for a wide class.
func (s *interior) measureWide(k int) {
	n, x := s.flows(k)
	u := 0.0
	for j := range n {
		u += s.primal[x.at(j)]
	}
	c := latency.At(&s.curve[k], u/s.count[k])
	s.load[k], s.phi[k], s.slope[k], s.bend[k] = u, c.Phi, c.Slope, c.Bend/s.count[k]
	s.now.objective += s.count[k] * c.Phi
	price, way := s.extra.f[:n], s.extra.y[:n] // of the limits; the way back into them
	q, back := s.limitPrice(s.caps+k, s.limit[k], u)
	stiff := s.dual[s.caps+k] * s.perPrimal[s.caps+k]
	for j := range n {
		price[j], way[j] = c.Slope+q, back
	}
	for i := int(s.extraStart[k]); i < int(s.extraStart[k+1]); i++ {
		holds := s.extraHolds[s.extraAt[i]:][:n]
		used := 0.0
		for j, a := range holds {
			used += a * s.primal[x.at(j)]
		}
		q, back := s.limitPrice(s.extras+i, s.extraLimit[i], used)
		for j, a := range holds {
			price[j] += a * q
			way[j] += a * back
		}
	}
	sum, top, most := 0.0, int32(0), 0.0
	for j := range n {
		at := x.at(j)
		y, g, cost, own, bound := s.primal[at], s.groupAt(at), 0.0, 0.0, 0.0
		more := 0.0
		if at < s.holds {
			cost = s.linkCost[at-s.links]
		} else {
			i := at - s.holds
			b := s.holdBounds + i
			cost, bound = s.holdCost[i], s.dual[b]
			own = bound * s.perPrimal[b]
			more = own * s.slack[b-s.caps]
		}
		gain := s.groupPrice[g] - cost - price[j]
		s.pull[at] = gain + way[j] + more
		s.flowOut(y, g, cost, gain+s.dual[at]-bound)
		t := 1 / (s.dual[at]*s.perPrimal[at] + own)
		s.theta[at] = t
		sum += t
		if t > most {
			top, most = int32(at), t
		}
	}
	s.classTheta[k], s.classTop[k] = sum, top
	s.stiff[k] = 1 / (1 + (s.bend[k]+stiff)*sum)
}

// limitPrice sets the slack of the pair of a limit, of which used is taken. It gives
// the price, and that with what the slack asks for: the pair moves with the step,
// so its price does not count.
func (s *interior) limitPrice(at int, limit, used float64) (q, back float64) {
	slack := limit - used - s.primal[at]
	s.slack[at-s.caps] = slack
	s.now.primalRes = max(s.now.primalRes, math.Abs(slack)/limit)
	q = s.dual[at]
	return q, q*s.perPrimal[at]*slack + q
}

// limits is how many limits a class has, its cap included.
func (s *interior) limits(k int) int { return 1 + int(s.extraStart[k+1]-s.extraStart[k]) }

// resetExtra makes room for the wide classes' systems.
func (s *interior) resetExtra() {
	x := &s.extra
	classes := len(s.count)
	x.systemAt, x.pivotsAt, x.unitAt = resize(x.systemAt, classes), resize(x.pivotsAt, classes), resize(x.unitAt, classes)
	var system, pivots, unit, widest int32
	for k := range classes {
		x.systemAt[k], x.pivotsAt[k], x.unitAt[k] = system, pivots, unit
		if s.isWide(k) {
			n, _ := s.flows(k)
			size := int32(n + s.limits(k))
			system, pivots, unit, widest = system+size*size, pivots+2*size, unit+size, max(widest, size)
		}
	}
	x.system, x.pivots, x.unit = resize(x.system, int(system)), resize(x.pivots, int(pivots)), resize(x.unit, int(unit))
	x.f, x.y, x.work = resize(x.f, int(widest)), resize(x.y, int(widest)), resize(x.work, int(widest))
}

// stiffness is h of a class's l-th limit.
func (s *interior) stiffness(k, l int) float64 {
	if l == 0 {
		return s.bend[k] + s.dual[s.caps+k]*s.perPrimal[s.caps+k]
	}
	at := s.extras + int(s.extraStart[k]) + l - 1
	return s.dual[at] * s.perPrimal[at]
}

// unitOf is what a class's system counts stiffness in, so that it has no unit.
func (s *interior) unitOf(k int) float64 { return max(s.slope[k], s.moment) / s.limit[k] }

// wideOf gives a class's system.
func (s *interior) wideOf(k int) (a []float64, pivots []int32, size int) {
	n, _ := s.flows(k)
	size = n + s.limits(k)
	return s.extra.system[s.extra.systemAt[k]:][:size*size], s.extra.pivots[s.extra.pivotsAt[k]:][:2*size], size
}

// setWide sets up and factors a class's system.
func (s *interior) setWide(k int) {
	n, x := s.flows(k)
	a, pivots, size := s.wideOf(k)
	clear(a)
	unit := s.unitOf(k)
	for j := range n {
		a[j*size+j] = 1 / s.theta[x.at(j)] / unit
		a[j*size+n], a[n*size+j] = 1, 1
	}
	for l := range s.limits(k) {
		a[(n+l)*size+n+l] = -unit / s.stiffness(k, l)
		if l > 0 {
			for j, h := range s.extraHolds[s.extraAt[int(s.extraStart[k])+l-1]:][:n] {
				a[j*size+n+l], a[(n+l)*size+j] = h, h
			}
		}
	}
	factorSmall(a, pivots, size)
	ones := s.extra.unit[s.extra.unitAt[k]:][:size]
	for j := range ones {
		ones[j] = 0
		if j < n {
			ones[j] = 1 / unit
		}
	}
	solveSmall(a, pivots, ones, s.extra.work[:size])
}

// answer replaces the forces f on a class's flows by what they answer, followed by
// how much is taken of each limit.
func (s *interior) answer(k int, f []float64) {
	n, x := s.flows(k)
	a, pivots, size := s.wideOf(k)
	unit := s.unitOf(k)
	ref := 0.0 // what all forces have in common has an answer of its own
	for j := range n {
		if x.at(j) == int(s.classTop[k]) {
			ref = f[j]
		}
	}
	for j := range n {
		f[j] = (f[j] - ref) / unit
	}
	clear(f[n:])
	solveSmall(a, pivots, f, s.extra.work[:size])
	axpy(f, s.extra.unit[s.extra.unitAt[k]:][:size], ref)
	for l := range s.limits(k) {
		f[n+l] *= unit / s.stiffness(k, l)
	}
}

// eachAnswer calls add with each flow's answer to a force on each other flow alone,
// and excess with its answer to a force on all.
func (s *interior) eachAnswer(k int, excess func(i int32, x float64), add func(i, j int32, x float64)) {
	n, x := s.flows(k)
	a, pivots, size := s.wideOf(k)
	y := s.extra.y[:size]
	for j := range n {
		g := s.groupAt(x.at(j))
		excess(g, s.extra.unit[int(s.extra.unitAt[k])+j])
		clear(y)
		y[j] = 1 / s.unitOf(k)
		solveSmall(a, pivots, y, s.extra.work[:size])
		for i := j + 1; i < n; i++ {
			add(g, s.groupAt(x.at(i)), y[i])
		}
	}
}

// assembleWide adds a wide class to the matrix.
func (s *interior) assembleWide(k int) {
	s.setWide(k)
	s.eachAnswer(k,
		func(g int32, x float64) { s.matrix.excess[g] += x },
		func(g, h int32, x float64) { s.matrix.couple(int(g), int(h), -x) })
}

// gatherWide adds what is wanted of the extra limits' pairs to the forces.
func (s *interior) gatherWide(k int) {
	n, x := s.flows(k)
	for i := int(s.extraStart[k]); i < int(s.extraStart[k+1]); i++ {
		want := s.want[s.extras+i]
		for j, a := range s.extraHolds[s.extraAt[i]:][:n] {
			s.force[x.at(j)] -= a * want
		}
	}
}

// pushWide is pushClass for a wide class, pullWide is pullClass.
func (s *interior) pushWide(k int, force, rhs []float64) {
	n, x := s.flows(k)
	f := s.extra.f[:n+s.limits(k)]
	for j := range n {
		f[j] = force[x.at(j)]
	}
	s.answer(k, f)
	for j := range n {
		rhs[s.groupAt(x.at(j))] -= f[j]
	}
}

func (s *interior) pullWide(k int, scale float64, force []float64) {
	n, x := s.flows(k)
	f := s.extra.f[:n+s.limits(k)]
	for j := range n {
		f[j] = force[x.at(j)] + s.dGroupPrice[s.groupAt(x.at(j))]
	}
	s.answer(k, f)
	for j := range n {
		s.dPrimal[x.at(j)] = f[j]
	}
	s.dPrimal[s.caps+k] = scale*s.slack[k] - f[n]
	for l := 1; l < s.limits(k); l++ {
		at := s.extras + int(s.extraStart[k]) + l - 1
		s.dPrimal[at] = scale*s.slack[at-s.caps] - f[n+l]
	}
}

// startExtra sets the pairs of a class's extra limits.
func (s *interior) startExtra(k int, least float64) {
	n, x := s.flows(k)
	for i := int(s.extraStart[k]); i < int(s.extraStart[k+1]); i++ {
		used := 0.0
		for j, a := range s.extraHolds[s.extraAt[i]:][:n] {
			used += a * s.primal[x.at(j)]
		}
		s.primal[s.extras+i] = max(s.extraLimit[i]-used, 0.005*s.extraLimit[i])
		s.dual[s.extras+i] = least / s.primal[s.extras+i]
	}
}

// factorSmall factors an n by n matrix in place, by Gauss's elimination with complete
// pivoting; pivots are the rows and columns in the order taken.
func factorSmall(a []float64, pivots []int32, n int) {
	for k := range n {
		row, column, most := k, k, -1.0
		for i := k; i < n; i++ {
			for j := k; j < n; j++ {
				if x := math.Abs(a[i*n+j]); x > most {
					row, column, most = i, j, x
				}
			}
		}
		pivots[k], pivots[n+k] = int32(row), int32(column)
		for j := range n {
			a[k*n+j], a[row*n+j] = a[row*n+j], a[k*n+j]
		}
		for i := range n {
			a[i*n+k], a[i*n+column] = a[i*n+column], a[i*n+k]
		}
		for i := k + 1; i < n; i++ {
			f := a[i*n+k] / a[k*n+k]
			a[i*n+k] = f
			axpy(a[i*n+k+1:(i+1)*n], a[k*n+k+1:(k+1)*n], -f)
		}
	}
}

// solveSmall replaces x by the solution, after factorSmall; work is scratch.
func solveSmall(a []float64, pivots []int32, x, work []float64) {
	n := len(x)
	for k := range n {
		row := pivots[k]
		x[k], x[row] = x[row], x[k]
	}
	for k := range n {
		x[k] -= dot(a[k*n:k*n+k], x[:k])
	}
	for k := n - 1; k >= 0; k-- {
		x[k] = (x[k] - dot(a[k*n+k+1:(k+1)*n], x[k+1:])) / a[k*n+k]
	}
	copy(work, x)
	for k := n - 1; k >= 0; k-- {
		column := pivots[n+k]
		work[k], work[column] = work[column], work[k]
	}
	copy(x, work)
}
