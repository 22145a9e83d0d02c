package optimal

import (
	"math"

	"github.com/wardrop-lb/wardrop/latency"
)

// measure computes residuals, slopes, thetas and the objective at the iterate.
// pull of a flow is how much less than its price it costs, without its own
// reduced cost, and with what the residuals of its bounds and cap ask for: the
// force of the predictor.
func (s *interior) measure() {
	products := s.now.products
	s.now = progress{products: products, objective: s.fixed}
	clear(s.groupSurplus)
	clear(s.outflow)
	for i := range s.sideGroup {
		at := s.sideBounds + i
		s.slack[at-s.caps] = s.sideBound[i] - s.primal[s.sides+i] - s.primal[at]
		s.now.primalRes = max(s.now.primalRes, math.Abs(s.slack[at-s.caps])/s.sideBound[i])
	}
	for i := range s.holdGroup {
		at := s.holdBounds + i
		s.slack[at-s.caps] = s.holdBound[i] - s.primal[s.holds+i] - s.primal[at]
		s.now.primalRes = max(s.now.primalRes, math.Abs(s.slack[at-s.caps])/s.holdBound[i])
	}
	for r := range s.row {
		s.measureRow(r)
	}
	for k := range s.count {
		s.measureClass(k)
	}
	for g := range s.groups {
		s.now.primalRes = max(s.now.primalRes, math.Abs(s.groupSurplus[g])/max(s.outflow[g], 0.01*s.room[g]))
	}
}

// rowSums is what a row's arcs add up to.
type rowSums struct {
	missing, objective, res, theta float64
	top                            int // the arc with the greatest theta
	most                           float64
}

func (s *interior) measureArcs(r int) rowSums {
	from, to := int(s.arcStart[r]), int(s.arcStart[r+1])
	first := int(s.first[r])
	x := s.primal[from:to]
	z, pz, cost := s.dual[from:to][:len(x)], s.perDual[from:to][:len(x)], s.cost[from:to][:len(x)]
	theta, pull := s.theta[from:to][:len(x)], s.pull[from:to][:len(x)]
	price, surplus := s.groupPrice[first:][:len(x)], s.groupSurplus[first:][:len(x)]
	mu := s.rowPrice[r]
	missing, objective, res, sum := s.demand[r], 0.0, 0.0, 0.0
	top, most := 0, 0.0
	for j, v := range x {
		gain := mu - cost[j] - price[j]
		pull[j] = gain
		missing -= v
		surplus[j] += v
		objective += v * cost[j]
		res += v * math.Abs(gain+z[j])
		t := v * pz[j]
		theta[j] = t
		sum += t
		if t > most {
			top, most = j, t
		}
	}
	return rowSums{missing, objective, res, sum, from + top, most}
}

// measureLean is measureArcs for a lean network.
func (s *interior) measureLean(r int) rowSums {
	mu := s.rowPrice[r]
	sums := rowSums{missing: s.demand[r]}
	for a := int(s.arcStart[r]); a < int(s.arcStart[r+1]); a++ {
		v, g := s.primal[a], s.arcGroup[a]
		gain := mu - s.cost[a] - s.groupPrice[g]
		s.pull[a] = gain
		sums.missing -= v
		s.groupSurplus[g] += v
		sums.objective += v * s.cost[a]
		sums.res += v * math.Abs(gain+s.dual[a])
		t := v * s.perDual[a]
		s.theta[a] = t
		sums.theta += t
		if t > sums.most {
			sums.top, sums.most = a, t
		}
	}
	return sums
}

func (s *interior) measureRow(r int) {
	var sums rowSums
	if s.lean {
		sums = s.measureLean(r)
	} else {
		sums = s.measureArcs(r)
	}
	missing, objective, res, sum := sums.missing, sums.objective, sums.res, sums.theta
	top, most, mu := sums.top, sums.most, s.rowPrice[r]
	for i := int(s.sideStart[r]); i < int(s.sideStart[r+1]); i++ {
		at, bound := s.sides+i, s.sideBounds+i
		v, g := s.primal[at], s.sideGroup[i]
		gain := mu - s.sideCost[i] - s.groupPrice[g]
		stiff := s.dual[bound] * s.perPrimal[bound]
		s.pull[at] = gain + stiff*s.slack[bound-s.caps]
		missing -= v
		s.groupSurplus[g] += v
		objective += v * s.sideCost[i]
		res += v * math.Abs(gain+s.dual[at]-s.dual[bound])
		t := 1 / (s.dual[at]*s.perPrimal[at] + stiff)
		s.theta[at] = t
		sum += t
		if t > most {
			top, most = at, t
		}
	}
	s.rowTheta[r], s.rowTop[r], s.rowMissing[r] = sum, int32(top), missing
	s.now.objective += objective
	s.now.dualRes += res
	s.now.primalRes = max(s.now.primalRes, math.Abs(missing)/s.demand[r])
}

func (s *interior) measureClass(k int) {
	if s.isWide(k) {
		s.measureWide(k)
		return
	}
	from, to := int(s.linkStart[k]), int(s.linkStart[k+1])
	holdFrom, holdTo := int(s.holdStart[k]), int(s.holdStart[k+1])
	u := 0.0
	for i := from; i < to; i++ {
		u += s.primal[s.links+i]
	}
	for i := holdFrom; i < holdTo; i++ {
		u += s.primal[s.holds+i]
	}
	c := latency.At(&s.curve[k], u/s.count[k])
	s.load[k], s.phi[k], s.slope[k], s.bend[k] = u, c.Phi, c.Slope, c.Bend/s.count[k]
	s.now.objective += s.count[k] * c.Phi
	at := s.caps + k
	slack := s.limit[k] - u - s.primal[at]
	s.slack[k] = slack
	s.now.primalRes = max(s.now.primalRes, math.Abs(slack)/s.limit[k])
	q := s.dual[at]
	stiff := q * s.perPrimal[at]
	price := c.Slope + q
	// The cap's own pair moves with the step, so its price does not count.
	extra := stiff*slack + q
	sum, top, most := 0.0, int32(0), 0.0
	for i := from; i < to; i++ {
		at, g := s.links+i, s.linkGroup[i]
		y := s.primal[at]
		gain := s.groupPrice[g] - s.linkCost[i] - price
		s.pull[at] = gain + extra
		s.flowOut(y, g, s.linkCost[i], gain+s.dual[at])
		t := y * s.perDual[at]
		s.theta[at] = t
		sum += t
		if t > most {
			top, most = int32(at), t
		}
	}
	for i := holdFrom; i < holdTo; i++ {
		at, bound, g := s.holds+i, s.holdBounds+i, s.holdGroup[i]
		y := s.primal[at]
		gain := s.groupPrice[g] - s.holdCost[i] - price
		own := s.dual[bound] * s.perPrimal[bound]
		s.pull[at] = gain + extra + own*s.slack[bound-s.caps]
		s.flowOut(y, g, s.holdCost[i], gain+s.dual[at]-s.dual[bound])
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

// flowOut counts a flow that leaves a group.
func (s *interior) flowOut(y float64, g int32, cost, res float64) {
	s.groupSurplus[g] -= y
	s.outflow[g] += y
	s.now.objective += y * cost
	s.now.dualRes += y * math.Abs(res)
}
