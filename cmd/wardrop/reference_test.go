package main

import (
	"math"
	"slices"

	"github.com/wardrop-lb/wardrop/fleet"
)

// reference finds the optimal flows of a view where nothing needs to be refused and moving costs
// nothing. It shares no code with the policies: the curve stands here as the documentation has it,
// and flow is shifted between two engines of a row at a time, by the golden section, until no
// shift gains anything.
type reference struct {
	rows    []fleet.Demand
	arcs    [][]int // of each row: the engines that serve it
	network [][]float64
	flow    [][]float64
	load    []float64
	engines []fleet.Engine
	cap     []float64
}

func newReference(v *fleet.View) *reference {
	r := &reference{engines: v.Engines, load: make([]float64, len(v.Engines))}
	for _, e := range v.Engines {
		ramp := e.Ramp
		if ramp == 0 {
			ramp = 1
		}
		r.cap = append(r.cap, ramp*e.Profile.Kappa*saturation(e.Profile))
	}
	for _, d := range v.Demands {
		var arcs []int
		var network, flow []float64
		for i, e := range v.Engines {
			if slices.Contains(e.Models, d.Model) {
				arcs, network, flow = append(arcs, i), append(network, distanceOf(v, d.Cluster, &e)), append(flow, 0)
			}
		}
		all := 0.0
		for _, i := range arcs {
			all += r.cap[i]
		}
		for j, i := range arcs { // by capacity: what fits at all, fits so
			flow[j] = d.Rate * r.cap[i] / all
			r.load[i] += flow[j]
		}
		r.rows, r.arcs, r.network, r.flow = append(r.rows, d), append(r.arcs, arcs), append(r.network, network), append(r.flow, flow)
	}
	r.improve()
	return r
}

func distanceOf(v *fleet.View, cluster string, e *fleet.Engine) float64 {
	seconds := math.NaN()
	for _, d := range v.Distances {
		if d.Cluster == cluster && d.Region == e.Region && d.Engine == "" && math.IsNaN(seconds) || d.Cluster == cluster && d.Engine == e.Name {
			seconds = d.Seconds
		}
	}
	return seconds + e.Offset + e.Penalty
}

func saturation(p fleet.Profile) float64 { return p.Batch / (p.T0 + p.Batch/p.UMax) }

// inside is how many requests are in an engine at a load: u L(u).
func inside(p fleet.Profile, u float64) float64 {
	usat, spread := saturation(p), p.Spread
	if spread == 0 {
		spread = 1
	}
	rho := u / usat
	return u * (p.T0/(1-u/p.UMax) + spread/usat*math.Pow(rho, math.Sqrt(2*(p.Batch+1))-1)/(1-rho))
}

// cost is what an engine's load costs; beyond its cap it must not go.
func (r *reference) cost(i int, u float64) float64 {
	if u > r.cap[i] {
		return inside(r.engines[i].Profile, r.cap[i]) + 1e3*(u-r.cap[i])
	}
	return inside(r.engines[i].Profile, u)
}

func (r *reference) improve() {
	for range 2000 {
		gained := 0.0
		for k := range r.rows {
			for a := range r.arcs[k] {
				for b := range r.arcs[k][:a] {
					gained += r.shift(k, a, b)
				}
			}
		}
		if gained < 1e-9 {
			return
		}
	}
}

// shift moves as much of a row from one engine to another as gains most, and gives what it gains.
func (r *reference) shift(k, a, b int) float64 {
	from, to := r.arcs[k][a], r.arcs[k][b]
	value := func(d float64) float64 {
		return d*(r.network[k][b]-r.network[k][a]) + r.cost(from, r.load[from]-d) + r.cost(to, r.load[to]+d)
	}
	low, high := -r.flow[k][b], r.flow[k][a]
	golden := (math.Sqrt(5) - 1) / 2
	for range 60 {
		x, y := high-golden*(high-low), low+golden*(high-low)
		if value(x) < value(y) {
			high = y
		} else {
			low = x
		}
	}
	d := (low + high) / 2
	gain := value(0) - value(d)
	if gain <= 0 {
		return 0
	}
	r.flow[k][a], r.flow[k][b] = r.flow[k][a]-d, r.flow[k][b]+d
	r.load[from], r.load[to] = r.load[from]-d, r.load[to]+d
	return gain
}

// seconds is what a request takes in the mean.
func (r *reference) seconds() float64 {
	spent, all := 0.0, 0.0
	for k := range r.rows {
		all += r.rows[k].Rate
		for j, x := range r.flow[k] {
			spent += x * r.network[k][j]
		}
	}
	for i, u := range r.load {
		spent += inside(r.engines[i].Profile, u)
	}
	return spent / all
}

// part is what of a cluster's requests goes to engines that match.
func (r *reference) part(cluster string, match func(*fleet.Engine) bool) float64 {
	some, all := 0.0, 0.0
	for k := range r.rows {
		if r.rows[k].Cluster != cluster {
			continue
		}
		all += r.rows[k].Rate
		for j, i := range r.arcs[k] {
			if match(&r.engines[i]) {
				some += r.flow[k][j]
			}
		}
	}
	return some / all
}

// capacity is what the view's engines may take, in requests/s.
func capacity(v *fleet.View) (all float64) {
	for _, u := range newReference(&fleet.View{Engines: v.Engines}).cap {
		all += u
	}
	return all
}

func called(names ...string) func(*fleet.Engine) bool {
	return func(e *fleet.Engine) bool { return slices.Contains(names, e.Name) }
}

func inRegion(region string) func(*fleet.Engine) bool {
	return func(e *fleet.Engine) bool { return e.Region == region }
}

// partOf is what of a cluster's requests a plan sends to engines that match.
func partOf(p *fleet.Plan, v *fleet.View, cluster string, match func(*fleet.Engine) bool) float64 {
	some, all := 0.0, 0.0
	for i := range p.Rows {
		r := &p.Rows[i]
		if r.Cluster != cluster {
			continue
		}
		all += r.Admitted()
		for _, a := range r.Arcs {
			at := slices.IndexFunc(v.Engines, func(e fleet.Engine) bool { return e.Name == p.Engines[a.Engine].Name })
			if at >= 0 && match(&v.Engines[at]) {
				some += r.Admitted() * a.Weight
			}
		}
	}
	return some / all
}
