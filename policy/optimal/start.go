package optimal

import "math"

// start sets the first iterate from the network alone: flows in proportion to
// capacity, prices near what they would cost, everything well inside.
func (s *interior) start() {
	s.setRoom()
	clear(s.groupSurplus) // holds the flow into each group
	clear(s.asked)        // a model's demand, at its first group
	for r, d := range s.demand {
		s.asked[s.first[r]] += d
	}
	copy(s.outflow, s.room) // what the groups attract
	if s.lean {
		s.level()
	}
	for r := range s.row {
		s.startRow(r, s.asked[s.first[r]])
	}
	scale := s.costScale()
	flow := 0.0
	for _, d := range s.demand {
		flow += d
	}
	least := 0.1 * scale * flow / float64(s.caps)
	s.startClasses(scale, least)
	for r := range s.row {
		s.startPrices(r, scale, least)
	}
}

// setRoom finds the capacity that each group can count on: a class shares its
// own equally among its groups.
func (s *interior) setRoom() {
	clear(s.room)
	for k := range s.count {
		groups := s.linkGroup[s.linkStart[k]:s.linkStart[k+1]]
		for _, g := range groups {
			s.room[g] += s.limit[k] / float64(len(groups))
		}
	}
}

// levelRounds is how often level goes to and fro.
const levelRounds = 8

// level changes what the groups attract, their room at first, so that rows which
// share their flow out by it load all groups of a model alike, as far as they can:
// where rows have some of the arcs only, groups that many of them have would be
// flooded otherwise. Proportional fitting (Sinkhorn 1967).
func (s *interior) level() {
	attract, into := s.outflow, s.groupSurplus
	for range levelRounds {
		clear(into)
		for r, d := range s.demand {
			groups := s.arcGroup[s.arcStart[r]:s.arcStart[r+1]]
			mine := 0.0
			for _, g := range groups {
				mine += attract[g]
			}
			f := d / s.asked[s.first[r]] / mine
			for _, g := range groups {
				into[g] += f * attract[g]
			}
		}
		for r := range s.row {
			if r > 0 && s.first[r] == s.first[r-1] {
				continue // of a model that is done
			}
			all := 0.0
			for _, x := range s.room[s.first[r]:s.beyond[r]] {
				all += x
			}
			for g := s.first[r]; g < s.beyond[r]; g++ {
				attract[g] *= s.room[g] / all / into[g]
			}
		}
	}
	clear(into)
}

// costScale is a typical cost of one request, in seconds.
func (s *interior) costScale() float64 {
	cost, flow := 0.0, 0.0
	for a, c := range s.cost {
		cost += s.primal[a] * math.Abs(c)
		flow += s.primal[a]
	}
	for i, g := range s.sideGroup {
		if int(g) < s.groups {
			cost += s.primal[s.sides+i] * math.Abs(s.sideCost[i])
			flow += s.primal[s.sides+i]
		}
	}
	slope, limit := 0.0, 0.0
	for k := range s.curve {
		latency := s.curve[k].Latency(0.5 * s.limit[k] / s.count[k])
		if i := s.linkStart[k]; i < s.linkStart[k+1] {
			latency += s.linkCost[i]
		}
		slope += s.limit[k] * latency
		limit += s.limit[k]
	}
	return max(cost/flow+slope/limit, s.moment)
}

func (s *interior) startRow(r int, asked float64) {
	from, to := int(s.arcStart[r]), int(s.arcStart[r+1])
	all, mine := 0.0, 0.0
	for _, x := range s.room[s.first[r]:s.beyond[r]] {
		all += x
	}
	for a := from; a < to; a++ {
		mine += s.outflow[s.groupOfArc(r, a)]
	}
	serve := min(1, 0.9*all/asked)
	for a := from; a < to; a++ {
		s.primal[a] = s.demand[r] * serve * s.outflow[s.groupOfArc(r, a)] / mine
	}
	for i := int(s.sideStart[r]); i < int(s.sideStart[r+1]); i++ {
		g, bound := int(s.sideGroup[i]), s.sideBound[i]
		x := bound * max(1e-3, min(0.95, 1-serve))
		if g < s.groups { // what stays takes over part of the arc beside it
			beside := s.arcTo(r, int32(g))
			x = 0.5 * min(bound, s.primal[beside])
			s.primal[beside] -= x
			s.groupSurplus[g] += x
		}
		s.primal[s.sides+i], s.primal[s.sideBounds+i] = x, bound-x
	}
	for a := from; a < to; a++ {
		s.groupSurplus[s.groupOfArc(r, a)] += s.primal[a]
	}
}

func (s *interior) startClasses(scale, least float64) {
	links := s.asked
	clear(links)
	clear(s.groupPrice)
	for k := range s.count {
		from, to := int(s.linkStart[k]), int(s.linkStart[k+1])
		groups := s.linkGroup[from:to]
		u := 0.0
		for i, g := range groups {
			y := s.groupSurplus[g] * s.limit[k] / float64(len(groups)) / s.room[g]
			s.primal[s.links+from+i] = y
			u += y
		}
		s.startHolds(k)
		at := s.caps + k
		slope := s.curve[k].At(min(u, 0.98*s.limit[k]) / s.count[k]).Slope
		s.slope[k] = slope
		s.primal[at] = max(s.limit[k]-u, 0.005*s.limit[k])
		s.dual[at] = least / s.primal[at]
		s.startExtra(k, least)
		for i, g := range groups {
			s.groupPrice[g] += slope + s.linkCost[from+i] + s.dual[at]
			links[g]++
		}
	}
	for g := range s.groups {
		s.groupPrice[g] /= links[g]
	}
	for k := range s.count {
		price := s.slope[k] + s.dual[s.caps+k]
		for i := int(s.linkStart[k]); i < int(s.linkStart[k+1]); i++ {
			at := s.links + i
			cost := price + s.linkCost[i] - s.groupPrice[s.linkGroup[i]]
			s.dual[at] = max(max(cost, 0)+0.3*scale, least/s.primal[at])
		}
		for i := int(s.holdStart[k]); i < int(s.holdStart[k+1]); i++ {
			at, bound := s.holds+i, s.holdBounds+i
			cost := price + s.holdCost[i] - s.groupPrice[s.holdGroup[i]]
			s.dual[at] = max(max(cost, 0)+0.3*scale, least/s.primal[at])
			s.dual[bound] = max(0.3*scale, least/s.primal[bound])
		}
	}
}

// startHolds lets what stays take over part of the link beside it.
func (s *interior) startHolds(k int) {
	link := int(s.linkStart[k])
	for i := int(s.holdStart[k]); i < int(s.holdStart[k+1]); i++ {
		for s.linkGroup[link] != s.holdGroup[i] {
			link++
		}
		beside := s.links + link
		x := 0.5 * min(s.holdBound[i], s.primal[beside])
		s.primal[beside] -= x
		s.primal[s.holds+i], s.primal[s.holdBounds+i] = x, s.holdBound[i]-x
	}
}

func (s *interior) startPrices(r int, scale, least float64) {
	from, to := int(s.arcStart[r]), int(s.arcStart[r+1])
	side, sideTo := int(s.sideStart[r]), int(s.sideStart[r+1])
	cheapest := math.Inf(1)
	for a := from; a < to; a++ {
		cheapest = min(cheapest, s.cost[a]+s.groupPrice[s.groupOfArc(r, a)])
	}
	for i := side; i < sideTo; i++ {
		cheapest = min(cheapest, s.sideCost[i]+s.groupPrice[s.sideGroup[i]])
	}
	price, flow := 0.0, 0.0
	set := func(at int, cost float64) {
		x := s.primal[at]
		s.dual[at] = max(cost-cheapest+0.3*scale, least/x)
		price += x * (cost - s.dual[at])
		flow += x
	}
	for a := from; a < to; a++ {
		set(a, s.cost[a]+s.groupPrice[s.groupOfArc(r, a)])
	}
	for i := side; i < sideTo; i++ {
		set(s.sides+i, s.sideCost[i]+s.groupPrice[s.sideGroup[i]])
		bound := s.sideBounds + i
		s.dual[bound] = max(0.3*scale, least/s.primal[bound])
	}
	s.rowPrice[r] = price / flow
}
