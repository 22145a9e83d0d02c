package optimal

import (
	"errors"
	"fmt"
	"math"
)

// interior is the state of the primal-dual interior point method.
//
// Every inequality of the network is a pair of positive numbers whose product
// goes to zero: a flow and its reduced cost, a slack and its price. All pairs
// lie in one pair of arrays, primal and dual, in four stretches: arcs, links,
// the classes' caps, and the bounds of arcs that have one.
type interior struct {
	*network
	arcs, links, caps int     // where the stretches after them begin
	bounded           []int32 // arcs with a bound, in the order of their pairs
	boundOf           []int32 // by arc: its bound's pair, -1 when it has none

	primal, dual   []float64
	dPrimal, dDual []float64 // the step
	want           []float64 // what the step should add to each product
	residual       []float64 // by pair: dual for flows, primal for slacks
	theta          []float64 // by arc and link: flow that a price change moves
	force          []float64 // by arc and link: scratch of direction
	saved          [2][]float64
	best           [2][]float64 // primal and dual of the best iterate

	rowPrice, dRowPrice     []float64 // what a row pays at the margin
	groupPrice, dGroupPrice []float64
	rowMissing              []float64 // demand less flow
	groupSurplus            []float64 // flow in less flow out
	outflow                 []float64 // by group
	room                    []float64 // by group: capacity it can count on
	savedPrices             []float64
	bestPrice               []float64 // by row

	load, slope, bend []float64     // by class
	rowTheta          []float64     // by row: sum of theta
	classTheta        []float64     // by class: sum of theta
	stiff             []float64     // by class: 1/(1+H classTheta), H the bend of cost and cap
	rowTop, classTop  []int32       // the arc or link with the greatest theta
	spreads           [block]spread // scratch of assemble
	matrix            mMatrix

	iterations int
}

// progress is what one look at an iterate tells.
type progress struct {
	products  float64 // sum of all pairs' products, seconds per second
	objective float64
	dualRes   float64 // residuals weighted by flow, same unit
	primalRes float64 // greatest residual relative to the row, group or cap it is of
}

const (
	tolerance     = 1e-9 // of products and dual residual, relative to the objective
	feasible      = 1e-9 // of the primal residual; capMargin has room for it
	maxIterations = 100
	patience      = 5     // iterations without a better iterate, once near
	near          = 1e4   // merit from where iterates are remembered
	stepBack      = 0.995 // fraction of the way to the boundary
	correctors    = 2
)

var errNumbers = errors.New("the solver met a number that is not finite")

func newInterior(n *network) *interior {
	s := &interior{network: n}
	for a, b := range n.bound {
		s.boundOf = append(s.boundOf, -1)
		if !math.IsInf(b, 1) {
			s.bounded = append(s.bounded, int32(a))
		}
	}
	s.arcs = len(n.group)
	s.links = s.arcs + len(n.linkGroup)
	s.caps = s.links + len(n.member)
	for i, a := range s.bounded {
		s.boundOf[a] = int32(s.caps + i)
	}
	pairs, flows := s.caps+len(s.bounded), s.links
	rows, classes := len(n.row), len(n.member)
	width := 0
	for _, w := range n.width {
		width = max(width, int(w))
	}
	for _, x := range []struct {
		at *[]float64
		n  int
	}{
		{&s.primal, pairs}, {&s.dual, pairs}, {&s.dPrimal, pairs}, {&s.dDual, pairs},
		{&s.want, pairs}, {&s.residual, pairs}, {&s.saved[0], pairs}, {&s.saved[1], pairs}, {&s.best[0], pairs}, {&s.best[1], pairs},
		{&s.theta, flows}, {&s.force, flows},
		{&s.rowPrice, rows}, {&s.dRowPrice, rows}, {&s.rowMissing, rows}, {&s.rowTheta, rows},
		{&s.groupPrice, n.groups}, {&s.dGroupPrice, n.groups}, {&s.groupSurplus, n.groups}, {&s.outflow, n.groups}, {&s.room, n.groups},
		{&s.savedPrices, rows + n.groups}, {&s.bestPrice, rows},
		{&s.load, classes}, {&s.slope, classes}, {&s.bend, classes},
		{&s.classTheta, classes}, {&s.stiff, classes},
	} {
		*x.at = make([]float64, x.n)
	}
	s.matrix = newMMatrix(n.groups)
	for i := range s.spreads {
		s.spreads[i].theta = make([]float64, width)
	}
	s.rowTop, s.classTop = make([]int32, rows), make([]int32, classes)
	return s
}

// run iterates to the optimum: Mehrotra's predictor-corrector (1992) with
// Gondzio's centrality correctors (1996). An iterate that is merely close is no
// error: the certificate judges it.
func (s *interior) run() error {
	s.start()
	best, bestAt := float64(near), 0
	for s.iterations = 0; s.iterations < maxIterations; s.iterations++ {
		now := s.measure()
		merit := now.merit()
		if math.IsNaN(merit) || math.IsInf(merit, 0) {
			if best < near {
				break
			}
			return fmt.Errorf("%w in iteration %d", errNumbers, s.iterations)
		}
		if merit < best {
			best, bestAt = merit, s.iterations
			s.remember()
		}
		// Past a point, smaller products only let rounding into the flows.
		if merit <= 1 || best < near && s.iterations-bestAt >= patience {
			break
		}
		s.assemble()
		s.matrix.factor()
		s.step(now)
	}
	if best < near {
		s.recall()
	}
	return nil
}

// merit is how far the iterate is from good enough, which is 1.
func (p progress) merit() float64 {
	return max(p.products/(tolerance*p.objective), p.dualRes/(tolerance*p.objective), p.primalRes/feasible)
}

// remember keeps what result takes from an iterate; recall brings it back.
func (s *interior) remember() {
	copy(s.best[0], s.primal)
	copy(s.best[1], s.dual)
	copy(s.bestPrice, s.rowPrice)
}

func (s *interior) recall() {
	copy(s.primal, s.best[0])
	copy(s.dual, s.best[1])
	copy(s.rowPrice, s.bestPrice)
}

// measure computes residuals, slopes and the objective at the iterate.
func (s *interior) measure() progress {
	p := progress{objective: s.fixed}
	clear(s.groupSurplus)
	clear(s.outflow)
	for r := range s.row {
		s.measureRow(r, &p)
	}
	for k := range s.member {
		s.measureClass(k, &p)
	}
	for i, a := range s.bounded {
		at := s.caps + i
		s.residual[at] = s.bound[a] - s.primal[a] - s.primal[at]
		p.primalRes = max(p.primalRes, -s.residual[at]/s.bound[a])
	}
	for g, x := range s.groupSurplus {
		p.primalRes = max(p.primalRes, math.Abs(x)/max(s.outflow[g], 0.01*s.room[g]))
	}
	for i, x := range s.primal {
		p.products += x * s.dual[i]
	}
	return p
}

func (s *interior) measureRow(r int, p *progress) {
	missing := s.demand[r]
	for a := s.arcStart[r]; a < s.arcStart[r+1]; a++ {
		x := s.primal[a]
		missing -= x
		res := s.cost[a] - s.rowPrice[r] - s.dual[a]
		if g := s.group[a]; g >= 0 {
			s.groupSurplus[g] += x
			res += s.groupPrice[g]
		}
		if b := s.boundOf[a]; b >= 0 {
			res += s.dual[b]
		}
		s.residual[a] = res
		p.objective += x * s.cost[a]
		p.dualRes += x * math.Abs(res)
	}
	s.rowMissing[r] = missing
	p.primalRes = max(p.primalRes, math.Abs(missing)/s.demand[r])
}

func (s *interior) measureClass(k int, p *progress) {
	from, to := s.linkStart[k], s.linkStart[k+1]
	u := 0.0
	for l := from; l < to; l++ {
		u += s.primal[s.arcs+int(l)]
	}
	c := s.curve[k].At(u / s.count[k])
	s.load[k], s.slope[k], s.bend[k] = u, c.Slope+s.linear[k], c.Bend/s.count[k]
	p.objective += s.count[k]*c.Phi + s.linear[k]*u
	at := s.links + k
	s.residual[at] = s.limit[k] - u - s.primal[at]
	p.primalRes = max(p.primalRes, -s.residual[at]/s.limit[k])
	for l := from; l < to; l++ {
		i := s.arcs + int(l)
		y, g := s.primal[i], s.linkGroup[l]
		s.groupSurplus[g] -= y
		s.outflow[g] += y
		s.residual[i] = s.slope[k] + s.dual[at] - s.groupPrice[g] - s.dual[i]
		p.dualRes += y * math.Abs(s.residual[i])
	}
}

// step moves the iterate.
func (s *interior) step(now progress) {
	// Predictor: straight at the optimum, to see how far that goes.
	for i, x := range s.primal {
		s.want[i] = -x * s.dual[i]
	}
	s.direction(1)
	ap, ad := s.lengths()
	ap, ad = min(ap, 1), min(ad, 1)
	left := 0.0
	for i, x := range s.primal {
		left += (x + ap*s.dPrimal[i]) * (s.dual[i] + ad*s.dDual[i])
	}
	count := float64(len(s.primal))
	mean := now.products / count
	sigma := left / now.products
	sigma *= sigma * sigma
	target, second := sigma*mean, 1.0
	if min(ap, ad) < 0.1 {
		// The prediction failed, so its second-order term misleads.
		target, second = max(target, 0.3*mean), 0
	}
	// Products that run ahead of the dual residual get stuck at the boundary.
	target = max(target, 0.1*max(now.dualRes, tolerance*now.objective)/count)
	for i, x := range s.primal {
		s.want[i] = target - x*s.dual[i] - second*s.dPrimal[i]*s.dDual[i]
	}
	s.direction(1)
	ap, ad = s.lengths()
	ap, ad = s.correct(target, ap, ad)
	ap, ad = min(1, stepBack*ap), min(1, stepBack*ad)
	if now.products < 1e-3*now.objective && min(ap, ad) > 0.1 {
		// Steps of different lengths leave a dual residual, for slopes follow the
		// flows. Far from the optimum that costs less than short steps do.
		ap = min(ap, ad)
		ad = ap
	}
	axpy(s.primal, s.dPrimal, ap)
	axpy(s.dual, s.dDual, ad)
	axpy(s.rowPrice, s.dRowPrice, ad)
	axpy(s.groupPrice, s.dGroupPrice, ad)
}

// correct tries Gondzio's correctors: pull the products that a longer step would
// throw far off the target back towards it, and keep that if it lengthens the
// step.
func (s *interior) correct(target, ap, ad float64) (float64, float64) {
	low, high := 0.1*target, 10*target
	for range correctors {
		if min(ap, ad) > 0.95 {
			break
		}
		tp, td := min(1, ap+0.3), min(1, ad+0.3)
		for i, x := range s.primal {
			product := (x + tp*s.dPrimal[i]) * (s.dual[i] + td*s.dDual[i])
			switch {
			case product < low:
				s.want[i] = low - product
			case product > high:
				s.want[i] = max(high-product, -high)
			default:
				s.want[i] = 0
			}
		}
		s.save()
		s.direction(0)
		s.addSaved()
		bp, bd := s.lengths()
		if bp+bd < ap+ad+0.02 {
			s.restore()
			break
		}
		ap, ad = bp, bd
	}
	return ap, ad
}

func (s *interior) save() {
	copy(s.saved[0], s.dPrimal)
	copy(s.saved[1], s.dDual)
	copy(s.savedPrices, s.dRowPrice)
	copy(s.savedPrices[len(s.row):], s.dGroupPrice)
}

func (s *interior) addSaved() {
	axpy(s.dPrimal, s.saved[0], 1)
	axpy(s.dDual, s.saved[1], 1)
	axpy(s.dRowPrice, s.savedPrices, 1)
	axpy(s.dGroupPrice, s.savedPrices[len(s.row):], 1)
}

func (s *interior) restore() {
	copy(s.dPrimal, s.saved[0])
	copy(s.dDual, s.saved[1])
	copy(s.dRowPrice, s.savedPrices)
	copy(s.dGroupPrice, s.savedPrices[len(s.row):])
}

// lengths are how far the primal and dual steps can go before a number of a
// pair reaches zero, at most a little beyond 1.
func (s *interior) lengths() (ap, ad float64) {
	return length(s.primal, s.dPrimal), length(s.dual, s.dDual)
}

func length(x, dx []float64) float64 {
	a := 1 / stepBack
	dx = dx[:len(x)]
	for i, d := range dx {
		if x[i]+a*d < 0 {
			a = -x[i] / d
		}
	}
	return a
}
