package optimal

import "math"

// start sets the first iterate from the network alone: flows in proportion to
// capacity, prices near what they would cost, everything well inside.
func (s *interior) start() {
	s.setRoom()
	clear(s.groupSurplus)              // holds the flow into each group
	asked := make([]float64, s.groups) // a model's demand, at its first group
	for r, d := range s.demand {
		asked[s.first[r]] += d
	}
	for r := range s.row {
		s.startRow(r, asked[s.first[r]])
	}
	scale := s.costScale()
	flow := 0.0
	for _, d := range s.demand {
		flow += d
	}
	least := 0.1 * scale * flow / float64(s.links)
	s.startClasses(scale, least)
	for r := range s.row {
		s.startPrices(r, scale, least)
	}
}

// setRoom finds the capacity that each group can count on: a class shares its
// own equally among its groups.
func (s *interior) setRoom() {
	clear(s.room)
	for k := range s.member {
		groups := s.linkGroup[s.linkStart[k]:s.linkStart[k+1]]
		for _, g := range groups {
			s.room[g] += s.limit[k] / float64(len(groups))
		}
	}
}

// costScale is a typical cost of one request, in seconds.
func (s *interior) costScale() float64 {
	cost, flow := 0.0, 0.0
	for a, g := range s.group {
		if g >= 0 {
			cost += s.primal[a] * math.Abs(s.cost[a])
			flow += s.primal[a]
		}
	}
	slope, limit := 0.0, 0.0
	for k, c := range s.curve {
		slope += s.limit[k] * (c.Latency(0.5*s.limit[k]/s.count[k]) + s.linear[k])
		limit += s.limit[k]
	}
	return cost/flow + slope/limit
}

func (s *interior) startRow(r int, asked float64) {
	from, first, width := int(s.arcStart[r]), s.first[r], s.width[r]
	all := 0.0
	for _, x := range s.room[first : first+width] {
		all += x
	}
	serve := min(1, 0.9*all/asked)
	for a := from; a < int(s.arcStart[r+1]); a++ {
		g := s.group[a]
		switch {
		case g < 0:
			s.primal[a] = s.bound[a] * max(1e-3, min(0.95, 1-serve))
		case a < from+int(width):
			s.primal[a] = s.demand[r] * serve * s.room[g] / all
		default: // a keep arc takes over part of the arc beside it
			beside := from + int(g-first)
			s.primal[a] = 0.5 * min(s.bound[a], s.primal[beside])
			s.primal[beside] -= s.primal[a]
		}
		if b := s.boundOf[a]; b >= 0 {
			s.primal[b] = s.bound[a] - s.primal[a]
		}
	}
	for a := from; a < int(s.arcStart[r+1]); a++ {
		if g := s.group[a]; g >= 0 {
			s.groupSurplus[g] += s.primal[a]
		}
	}
}

func (s *interior) startClasses(scale, least float64) {
	links := make([]float64, s.groups)
	clear(s.groupPrice)
	for k := range s.member {
		groups := s.linkGroup[s.linkStart[k]:s.linkStart[k+1]]
		u := 0.0
		for i, g := range groups {
			y := s.groupSurplus[g] * s.limit[k] / float64(len(groups)) / s.room[g]
			s.primal[s.arcs+int(s.linkStart[k])+i] = y
			u += y
		}
		at := s.links + k
		s.slope[k] = s.curve[k].At(min(u, 0.98*s.limit[k])/s.count[k]).Slope + s.linear[k]
		s.primal[at] = max(s.limit[k]-u, 0.005*s.limit[k])
		s.dual[at] = least / s.primal[at]
		for _, g := range groups {
			s.groupPrice[g] += s.slope[k] + s.dual[at]
			links[g]++
		}
	}
	for g := range s.groupPrice {
		s.groupPrice[g] /= links[g]
	}
	for k := range s.member {
		for l := s.linkStart[k]; l < s.linkStart[k+1]; l++ {
			cost := s.slope[k] + s.dual[s.links+k] - s.groupPrice[s.linkGroup[l]]
			at := s.arcs + int(l)
			s.dual[at] = max(max(cost, 0)+0.3*scale, least/s.primal[at])
		}
	}
}

func (s *interior) startPrices(r int, scale, least float64) {
	from, to := s.arcStart[r], s.arcStart[r+1]
	cost := func(a int32) float64 {
		if g := s.group[a]; g >= 0 {
			return s.cost[a] + s.groupPrice[g]
		}
		return s.cost[a]
	}
	cheapest := math.Inf(1)
	for a := from; a < to; a++ {
		cheapest = min(cheapest, cost(a))
	}
	price, flow := 0.0, 0.0
	for a := from; a < to; a++ {
		x := s.primal[a]
		s.dual[a] = max(cost(a)-cheapest+0.3*scale, least/x)
		if b := s.boundOf[a]; b >= 0 {
			s.dual[b] = max(0.3*scale, least/s.primal[b])
		}
		price += x * (cost(a) - s.dual[a])
		flow += x
	}
	s.rowPrice[r] = price / flow
}
