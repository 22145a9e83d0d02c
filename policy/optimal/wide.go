package optimal

import (
	"math"

	"github.com/wardrop-lb/wardrop/latency"
)

// A wide class has extra limits: on what its flows hold of tokens and slots, of
// which models hold different amounts. Each is a pair more, a slack and a price,
// and takes a rank-one part out of how the class answers to prices. extra holds
// these parts: with G the answer before, a what the flows hold, and h the stiffness
// of the limit's pair, it is G - c v v' after, with v = G a and c = h/(1 + h a'v).
type extra struct {
	v    []float64 // like network.extraHolds
	c    []float64 // by extra limit
	sum  []float64 // by extra limit: of its v
	f, y []float64 // by flow of a class: scratch
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

// answer sets y to how a class's flows answer to forces f if it had no extra
// limits, see direction.
func (s *interior) answer(k int, f, y []float64) {
	n, x := s.flows(k)
	ref := 0.0
	for j := range n {
		if x.at(j) == int(s.classTop[k]) {
			ref = f[j]
		}
	}
	rel := 0.0
	for j := range n {
		rel += s.theta[x.at(j)] * (f[j] - ref)
	}
	rel /= s.classTheta[k]
	both := (ref + rel) * s.stiff[k]
	for j := range n {
		y[j] = s.theta[x.at(j)] * ((f[j] - ref - rel) + both)
	}
}

// limited takes what the first of a wide class's extra limits take out of y, its
// answer to forces f; all of them, unless told how many.
func (s *interior) limited(k, limits int, f, y []float64) {
	n := len(y)
	for i := int(s.extraStart[k]); i < int(s.extraStart[k])+limits; i++ {
		v := s.extra.v[s.extraAt[i]:][:n]
		axpy(y, v, -s.extra.c[i]*dot(v, f))
	}
}

// setExtra finds v and c of a wide class's extra limits.
func (s *interior) setExtra(k int) {
	n, _ := s.flows(k)
	first := int(s.extraStart[k])
	for i := first; i < int(s.extraStart[k+1]); i++ {
		a, v := s.extraHolds[s.extraAt[i]:][:n], s.extra.v[s.extraAt[i]:][:n]
		s.answer(k, a, v)
		s.limited(k, i-first, a, v)
		h := s.dual[s.extras+i] * s.perPrimal[s.extras+i]
		s.extra.c[i] = h / (1 + h*max(0, dot(a, v)))
		s.extra.sum[i] = 0
		for _, part := range v {
			s.extra.sum[i] += part
		}
	}
}

// assembleWide adds to the matrix what the extra limits take out of a class's answer.
func (s *interior) assembleWide(k int) {
	s.setExtra(k)
	n, x := s.flows(k)
	for i := int(s.extraStart[k]); i < int(s.extraStart[k+1]); i++ {
		v, c := s.extra.v[s.extraAt[i]:][:n], s.extra.c[i]
		for j, part := range v {
			g := int(s.groupAt(x.at(j)))
			s.matrix.excess[g] -= c * part * s.extra.sum[i]
			for l := j + 1; l < n; l++ {
				s.matrix.couple(g, int(s.groupAt(x.at(l))), c*part*v[l])
			}
		}
	}
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
	f, y := s.extra.f[:n], s.extra.y[:n]
	for j := range n {
		f[j] = force[x.at(j)]
	}
	s.answer(k, f, y)
	s.limited(k, int(s.extraStart[k+1]-s.extraStart[k]), f, y)
	for j := range n {
		rhs[s.groupAt(x.at(j))] -= y[j]
	}
}

func (s *interior) pullWide(k int, scale float64, force []float64) {
	n, x := s.flows(k)
	f, y := s.extra.f[:n], s.extra.y[:n]
	for j := range n {
		f[j] = force[x.at(j)] + s.dGroupPrice[s.groupAt(x.at(j))]
	}
	s.answer(k, f, y)
	s.limited(k, int(s.extraStart[k+1]-s.extraStart[k]), f, y)
	all := 0.0
	for j := range n {
		s.dPrimal[x.at(j)] = y[j]
		all += y[j]
	}
	s.dPrimal[s.caps+k] = scale*s.slack[k] - all
	for i := int(s.extraStart[k]); i < int(s.extraStart[k+1]); i++ {
		at := s.extras + i
		s.dPrimal[at] = scale*s.slack[at-s.caps] - dot(s.extraHolds[s.extraAt[i]:][:n], y)
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
