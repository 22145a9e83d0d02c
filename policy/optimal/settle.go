package optimal

import (
	"math"

	"github.com/wardrop-lb/wardrop/fleet"
)

// settle finds the components whose last weights are still good: they fit under
// the caps and cost hardly more than the optimum, within the permitted gap. There
// nothing moves at all. Snapping row by row could not promise that, for its own
// small changes add up to prices that a next solve would want to correct.
func (s *snapper) settle() {
	for i := range s.settled {
		s.settled[i] = true
	}
	s.eachSolved(func(at int, row *fleet.Row, from int) {
		sum := 0.0
		for _, w := range s.last.Weight[from : from+len(row.Arcs)] {
			sum += w
		}
		before, price := s.lastWeights(at), s.rowPrice(s.plan, row.Arcs, at)
		dear := false // what could not be explained must move
		for j := range row.Arcs {
			dear = dear || before != nil && before[j] > 0 && s.dear(row, j, before, price)
		}
		if dear || math.Abs(sum-1) > 1e-9 {
			s.settled[s.component(row)] = false
		}
	})
	best, _ := s.costs(s.weight)
	stay, fits := s.costs(s.last.Weight)
	for i := range s.settled {
		s.settled[i] = s.settled[i] && fits[i] && stay[i] <= best[i]*(1+0.8*s.p.MaxGap)
	}
}

func (s *snapper) component(row *fleet.Row) int32 { return s.part[row.Arcs[0].Engine] }

func (s *snapper) isSettled(row *fleet.Row) bool { return s.settled[s.component(row)] }

// costs computes for each component what the solved rows' flows cost at these
// weights, in seconds per second, refusals aside, and whether they fit under
// the caps.
func (s *snapper) costs(weight []float64) (cost []float64, fits []bool) {
	cost, fits = make([]float64, s.parts), make([]bool, s.parts)
	load := make([]float64, len(s.load))
	s.eachSolved(func(at int, row *fleet.Row, from int) {
		part := s.component(row)
		d := s.t.Admit(at, &row.Shed)
		known, stayed := s.known(at), 0.0
		if known {
			stayed = s.last.Admitted(s.t, at)
		}
		for j, a := range row.Arcs {
			x := d * weight[from+j]
			load[a.Engine] += x
			cost[part] += x * a.Network
			if known {
				cost[part] += s.p.Lambda * math.Abs(x-stayed*s.last.Weight[from+j])
			}
		}
	})
	for i := range fits {
		fits[i] = true
	}
	for e, u := range load {
		part := s.part[e]
		cost[part] += s.t.Curve[e].Phi(u) + s.t.Engines[e].Penalty*u
		fits[part] = fits[part] && u <= s.t.Cap[e]*(1+5e-10)
	}
	return cost, fits
}
