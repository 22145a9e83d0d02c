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
// lie in one pair of arrays, primal and dual, in stretches: arcs, sides, links,
// holds, the classes' caps, the sides' bounds, the holds' bounds, the wide
// classes' extra limits. What is the
// same for all pairs runs over the arrays as a whole, divides once a pair, and
// looks at nothing else.
type interior struct {
	*network
	sides, links, holds, caps int // where the stretches after the arcs begin
	sideBounds, holdBounds    int
	extras, pairs             int

	primal, dual           []float64
	perPrimal, perDual     []float64 // 1/primal, 1/dual
	dPrimal, dDual         []float64 // the step
	want                   []float64 // what the step should add to each product, over primal
	slack                  []float64 // by pair from caps on: bound less flow less primal
	theta                  []float64 // by flow: what a price change moves
	pull                   []float64 // by flow: reduced gain at the iterate, see measure
	force                  []float64 // by flow: scratch of direction
	savedPrimal, savedDual []float64
	bestPrimal, bestDual   []float64 // the best iterate

	rowPrice, dRowPrice     []float64 // what a row pays at the margin
	groupPrice, dGroupPrice []float64 // one more at the end: that of refusing, 0
	rowMissing              []float64 // demand less flow
	groupSurplus            []float64 // flow in less flow out; one more at the end, not used
	outflow                 []float64 // by group
	room                    []float64 // by group: capacity it can count on
	asked, rhs              []float64 // by group: scratch
	savedPrices             []float64
	bestRow, bestGroup      []float64

	load                 []float64  // by class
	phi, slope, bend     []float64  // by class, of one of its engines; bend of them all
	rowTheta, classTheta []float64  // sums of theta
	stiff                []float64  // by class: 1/(1+H classTheta), H the bend of cost and cap
	rowTop, classTop     []int32    // the flow with the greatest theta; classTop counts links, then holds
	fans                 [block]fan // scratch of assemble
	matrix               mMatrix
	rowSide              rowSide // takes the matrix's place in a lean network
	extra                extra

	tolerance  float64 // of products and dual residual, relative to the objective
	iterations int
	now        progress
	kept       warmStart
	worth      float64 // step length from where on a corrector costs more time than it saves
	careful    bool    // aim low: a solve that aimed high got nowhere
	component  int
	isWarm     bool
	trace      func(Iteration) // nil: none
	expired    func() bool     // nil: never
}

// origin is where a solve begins.
type origin int

const (
	cold origin = iota // at start
	warm               // at startWarm
	here               // where the last solve ended
)

// progress is what one look at an iterate tells.
type progress struct {
	products  float64 // sum of all pairs' products, seconds per second
	objective float64
	dualRes   float64 // residuals weighted by flow, same unit
	primalRes float64 // greatest residual relative to the row, group or cap it is of
}

const (
	tight         = 1e-9 // tolerance where requests are refused
	loose         = 3e-7 // tolerance elsewhere
	rough         = 1e-4 // tolerance of prices that choose arcs
	feasible      = 1e-9 // of the primal residual; capMargin has room for it
	maxIterations = 100
	patience      = 5     // iterations without a better iterate, once near
	near          = 1e-5  // relative products from where iterates are remembered
	stepBack      = 0.995 // fraction of the way to the boundary
	correctors    = 2
	centring      = 1   // first iterations of a warm start that do little but take the residuals out
	gentle        = 0.7 // what these leave of the products
	hasty         = 0.5 // step length from where on correctors do not save time
	patient       = 0.8 // the same where iterations are dear
)

var (
	errNumbers = errors.New("the solver met a number that is not finite")
	errStuck   = errors.New("the solver got nowhere")
	errExpired = errors.New("no time left")
)

// reset makes room for a network and points at its stretches.
func (s *interior) reset(n *network) {
	s.network = n
	s.sides = len(n.cost)
	s.links = s.sides + len(n.sideGroup)
	s.holds = s.links + len(n.linkGroup)
	s.caps = s.holds + len(n.holdGroup)
	s.sideBounds = s.caps + len(n.count)
	s.holdBounds = s.sideBounds + len(n.sideGroup)
	s.extras = s.holdBounds + len(n.holdGroup)
	s.pairs = s.extras + len(n.extraLimit)
	for _, x := range [...]*[]float64{
		&s.primal, &s.dual, &s.perPrimal, &s.perDual, &s.dPrimal, &s.dDual, &s.want,
		&s.savedPrimal, &s.savedDual, &s.bestPrimal, &s.bestDual,
	} {
		*x = resize(*x, s.pairs)
	}
	for _, x := range [...]*[]float64{&s.theta, &s.pull, &s.force} {
		*x = resize(*x, s.caps)
	}
	s.slack = resize(s.slack, s.pairs-s.caps)
	rows, classes := len(n.row), len(n.count)
	for _, x := range [...]*[]float64{&s.rowPrice, &s.dRowPrice, &s.rowMissing, &s.rowTheta, &s.bestRow} {
		*x = resize(*x, rows)
	}
	for _, x := range [...]*[]float64{
		&s.groupPrice, &s.dGroupPrice, &s.groupSurplus, &s.outflow, &s.room, &s.asked, &s.rhs, &s.bestGroup,
	} {
		*x = resize(*x, n.groups+1)
	}
	s.savedPrices = resize(s.savedPrices, rows+n.groups+1)
	for _, x := range [...]*[]float64{&s.load, &s.phi, &s.slope, &s.bend, &s.classTheta, &s.stiff} {
		*x = resize(*x, classes)
	}
	s.resetExtra()
	s.rowTop, s.classTop = resize(s.rowTop, rows), resize(s.classTop, classes)
	if n.lean {
		s.rowSide.reset(s)
		return
	}
	s.matrix.reset(n.groups)
	for i := range s.fans {
		s.fans[i].theta = resize(s.fans[i].theta, n.groups)
	}
}

// setWorth weighs a corrector's time against that of a factorisation.
func (s *interior) setWorth() {
	s.worth = hasty
	n := s.groups
	if s.lean {
		n = len(s.row)
	}
	if n*n*n > 100*s.pairs {
		s.worth = patient
	}
}

// run iterates to the optimum: Mehrotra's predictor-corrector (1992) with
// Gondzio's centrality correctors (1996). An iterate that is merely close is no
// error: the certificate judges it.
func (s *interior) run(from origin, limit int) error {
	switch from {
	case cold:
		s.start()
	case warm:
		s.startWarm()
	}
	s.invert()
	worst := near / s.tolerance
	best, bestAt := worst, 0
	for s.iterations = 0; s.iterations < limit; s.iterations++ {
		s.measure()
		merit := s.merit()
		if math.IsNaN(merit) || math.IsInf(merit, 0) {
			if best < worst {
				break
			}
			return fmt.Errorf("%w in iteration %d", errNumbers, s.iterations)
		}
		if s.trace != nil {
			s.report()
		}
		if merit < best {
			best, bestAt = merit, s.iterations
			s.remember()
		}
		if merit <= 1 && s.tolerance > tight && s.refuses() {
			// Full caps leave no room to clean up in.
			best, worst = best*s.tolerance/tight, near/tight
			s.tolerance = tight
			merit = s.merit()
		}
		// Past a point, smaller products only let rounding into the flows.
		if merit <= 1 || best < worst && s.iterations-bestAt >= patience {
			break
		}
		if s.expired != nil && s.expired() {
			return errExpired
		}
		s.kept.offer(s)
		s.assemble()
		s.step()
	}
	if best < worst {
		if bestAt < s.iterations {
			s.recall()
		}
		return nil
	}
	return errStuck
}

// merit is how far the iterate is from good enough, which is 1.
func (s *interior) merit() float64 {
	p, enough := &s.now, s.enough()
	return max(p.products/enough, p.dualRes/enough, p.primalRes/feasible)
}

// refuses says whether some row refuses more than a trace.
func (s *interior) refuses() bool {
	for r, d := range s.demand {
		refused := 0.0
		for i := s.sideStart[r]; i < s.sideStart[r+1]; i++ {
			if int(s.sideGroup[i]) == s.groups {
				refused += s.primal[s.sides+int(i)]
			}
		}
		if refused > 1e-5*d {
			return true
		}
	}
	return false
}

// remember keeps what result takes from an iterate; recall brings it back.
func (s *interior) remember() {
	copy(s.bestPrimal, s.primal)
	copy(s.bestDual, s.dual)
	copy(s.bestRow, s.rowPrice)
	copy(s.bestGroup, s.groupPrice)
}

func (s *interior) recall() {
	copy(s.primal, s.bestPrimal)
	copy(s.dual, s.bestDual)
	copy(s.rowPrice, s.bestRow)
	copy(s.groupPrice, s.bestGroup)
	s.invert()
	s.measure()
}

// step moves the iterate.
func (s *interior) step() {
	target, second := gentle*s.now.products/float64(s.pairs), 0.0
	if s.isWarm && s.iterations < centring {
		clear(s.dPrimal)
	} else {
		// Predictor: straight at the optimum, to see how far that goes.
		s.direction(1, s.pull)
		target, second = s.predict()
	}
	// Corrector: the predictor's second order, and the way back to the centre.
	s.aim(target, second)
	s.gather(1)
	s.direction(1, s.force)
	ap, ad := s.finish(1)
	ap, ad = s.correct(target, ap, ad)
	ap, ad = min(1, stepBack*ap), min(1, stepBack*ad)
	if s.now.products < 1e-3*s.now.objective && min(ap, ad) > 0.1 {
		// Steps of different lengths leave a dual residual, for slopes follow the
		// flows. Far from the optimum that costs less than short steps do.
		ap = min(ap, ad)
		ad = ap
	}
	s.move(ap, ad)
	axpy(s.rowPrice, s.dRowPrice, ad)
	axpy(s.groupPrice, s.dGroupPrice, ad)
}

// enough is how small products and dual residual are to become.
func (s *interior) enough() float64 { return s.tolerance * s.worthwhile() }

// worthwhile is the objective, but not less than what counts.
func (s *interior) worthwhile() float64 { return max(s.now.objective, s.nothing) }

// invert computes the inverses of all pairs and the sum of their products.
func (s *interior) invert() {
	x := s.primal
	z, px, pz := s.dual[:len(x)], s.perPrimal[:len(x)], s.perDual[:len(x)]
	var sum0, sum1 float64
	i := 0
	for ; i+2 <= len(x); i += 2 {
		p0, p1 := x[i]*z[i], x[i+1]*z[i+1]
		sum0 += p0
		sum1 += p1
		q0, q1 := 1/p0, 1/p1
		px[i], pz[i] = z[i]*q0, x[i]*q0
		px[i+1], pz[i+1] = z[i+1]*q1, x[i+1]*q1
	}
	if i < len(x) {
		sum0 += x[i] * z[i]
		px[i], pz[i] = 1/x[i], 1/z[i]
	}
	s.now.products = sum0 + sum1
}

// move takes the step.
func (s *interior) move(ap, ad float64) {
	axpy(s.primal, s.dPrimal, ap)
	axpy(s.dual, s.dDual, ad)
	s.invert()
}

// predict looks at the predictor's step: with r the relative change of a primal
// number, that of its dual is -1-r. It turns dPrimal into r, and gives the
// corrector's target for the products and how much of the second order to use.
func (s *interior) predict() (target, second float64) {
	x := s.primal
	z, px, dx := s.dual[:len(x)], s.perPrimal[:len(x)], s.dPrimal[:len(x)]
	low, high := 0.0, -1.0
	var first, both float64
	for i := range x {
		r := dx[i] * px[i]
		dx[i] = r
		low, high = min(low, r), max(high, r)
		p := x[i] * z[i] * r
		first += p
		both += p * r
	}
	ap, ad := min(1, 1/max(-low, 1)), min(1, 1/max(1+high, 1))
	// The sum of (x+ap dx)(z+ad dz).
	left := s.now.products*(1-ad) + first*(ap-ad) - ap*ad*(first+both)
	count := float64(len(x))
	mean := s.now.products / count
	sigma := left / s.now.products
	sigma *= sigma * sigma
	target, second = sigma*mean, 1.0
	if min(ap, ad) < 0.1 || s.careful {
		// The prediction failed, so its second-order term misleads.
		target, second = max(target, 0.3*mean), 0
	}
	// Products that run ahead of the dual residual get stuck at the boundary.
	return max(target, 0.1*max(s.now.dualRes, s.enough())/count), second
}

// aim sets what the corrector wants beyond the predictor's -x z.
func (s *interior) aim(target, second float64) {
	r := s.dPrimal
	z, px, want := s.dual[:len(r)], s.perPrimal[:len(r)], s.want[:len(r)]
	for i := range r {
		want[i] = target*px[i] + second*z[i]*r[i]*(1+r[i])
	}
}

// finish completes a step whose primal part is known: scale 1 adds the
// predictor's part of what the products should become, 0 leaves it out. It gives
// how far the primal and the dual step can go before a number of a pair reaches
// zero, at most a little beyond 1.
func (s *interior) finish(scale float64) (ap, ad float64) {
	x := s.dPrimal
	z, px, pz := s.dual[:len(x)], s.perPrimal[:len(x)], s.perDual[:len(x)]
	want, dz := s.want[:len(x)], s.dDual[:len(x)]
	lowP, lowD := -stepBack, -stepBack
	for i := range x {
		r := x[i] * px[i]
		d := want[i] - z[i]*(scale+r)
		dz[i] = d
		lowP, lowD = min(lowP, r), min(lowD, d*pz[i])
	}
	return -1 / lowP, -1 / lowD
}

// lengths are the same for a step that is complete.
func (s *interior) lengths() (ap, ad float64) {
	dx := s.dPrimal
	px, pz, dz := s.perPrimal[:len(dx)], s.perDual[:len(dx)], s.dDual[:len(dx)]
	lowP, lowD := -stepBack, -stepBack
	for i := range dx {
		lowP, lowD = min(lowP, dx[i]*px[i]), min(lowD, dz[i]*pz[i])
	}
	return -1 / lowP, -1 / lowD
}

// correct tries Gondzio's correctors: pull the products that a longer step would
// throw far off the target back towards it, and keep that if it lengthens the
// step.
func (s *interior) correct(target, ap, ad float64) (float64, float64) {
	low, high := 0.1*target, 10*target
	for range correctors {
		if min(ap, ad) > s.worth {
			break
		}
		tp, td := min(1, ap+0.3), min(1, ad+0.3)
		for i, x := range s.primal {
			product := (x + tp*s.dPrimal[i]) * (s.dual[i] + td*s.dDual[i])
			switch {
			case product < low:
				s.want[i] = (low - product) * s.perPrimal[i]
			case product > high:
				s.want[i] = max(high-product, -high) * s.perPrimal[i]
			default:
				s.want[i] = 0
			}
		}
		s.save()
		s.gather(0)
		s.direction(0, s.force)
		s.finish(0)
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
	copy(s.savedPrimal, s.dPrimal)
	copy(s.savedDual, s.dDual)
	copy(s.savedPrices, s.dRowPrice)
	copy(s.savedPrices[len(s.row):], s.dGroupPrice)
}

func (s *interior) addSaved() {
	axpy(s.dPrimal, s.savedPrimal, 1)
	axpy(s.dDual, s.savedDual, 1)
	axpy(s.dRowPrice, s.savedPrices, 1)
	axpy(s.dGroupPrice, s.savedPrices[len(s.row):], 1)
}

func (s *interior) restore() {
	copy(s.dPrimal, s.savedPrimal)
	copy(s.dDual, s.savedDual)
	copy(s.dRowPrice, s.savedPrices)
	copy(s.dGroupPrice, s.savedPrices[len(s.row):])
}
