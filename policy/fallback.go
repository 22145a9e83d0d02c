package policy

import (
	"math"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy/internal/table"
)

// What plans are called that no policy has made.
const (
	Rescaled = "rescale"
	Capacity = "capacity"
)

// IsFallback says whether a plan was made for want of one of a policy.
func IsFallback(p *fleet.Plan) bool { return p.Policy == Rescaled || p.Policy == Capacity }

// Rescale makes a plan without solving: the last plan's weights on the engines
// that live, and capacity-proportional ones for rows that it lacks. What would
// exceed an engine's cap goes where its model has room; what finds no room is
// shed, lowest priority first, alike in all clusters. A nil last plan gives
// ByCapacity.
//
// The view must be valid. Prices are those at the loads, without cap and churn
// terms; the objective counts network and engines alone, and there is no bound.
func Rescale(view *fleet.View, last *fleet.Plan) *fleet.Plan {
	t := table.New(view)
	f := &fallback{Table: t, last: t.Last(last)}
	f.plan, f.index = t.Plan(Rescaled)
	return f.make()
}

// ByCapacity makes a plan that gives every engine work in proportion to its
// capacity, wherever the request comes from. Conditions as for Rescale.
func ByCapacity(view *fleet.View) *fleet.Plan {
	plan := Rescale(view, nil)
	plan.Policy = Capacity
	return plan
}

// rounding is how far from 1 the weights of a row may be that has lost no engine.
const rounding = 1e-9

type fallback struct {
	*table.Table
	last  *table.Last
	plan  *fleet.Plan
	index []int32
	spare []float64 // by engine: room left, work/s of any model
	fits  []float64 // by engine: fraction of the wanted load that its cap and limits let in
}

func (f *fallback) make() *fleet.Plan {
	f.wish()
	f.SetLoads(f.plan, f.index)
	f.spare = make([]float64, len(f.Engines))
	f.fits = make([]float64, len(f.Engines))
	flow := f.flow()
	for i, e := range f.plan.Engines {
		f.fits[i] = 1
		if excess := max(e.Load/f.Cap[i]-1, f.Excess(int32(i), flow)); excess > 0 {
			f.fits[i] = 1 / (1 + excess)
		}
		f.spare[i] = f.Room(int32(i), flow)
	}
	for m := range int32(len(f.Models)) {
		if len(f.Serving(m)) > 0 {
			f.fit(m)
		}
	}
	f.SetLoads(f.plan, f.index)
	f.SetTerms(f.plan, f.index)
	return f.plan
}

// flow is what the weights as they are send, in requests/s by element of Serving.
func (f *fallback) flow() []float64 {
	flow := make([]float64, f.ServingCount())
	for at, i := range f.index {
		if i < 0 {
			continue
		}
		start := f.ServingStart(int32(at % len(f.Models)))
		for j, a := range f.plan.Rows[i].Arcs {
			flow[start+j] += f.Rate[at] * a.Weight
		}
	}
	return flow
}

// wish sets the weights that the rows would have without caps.
func (f *fallback) wish() {
	for c := range int32(len(f.Clusters)) {
		for m := range int32(len(f.Models)) {
			at := f.RowIndex(c, m)
			if f.index[at] < 0 {
				continue
			}
			arcs := f.plan.Rows[f.index[at]].Arcs
			known := f.last != nil && f.last.Known[at]
			sum := 0.0
			for j := range arcs {
				if known {
					arcs[j].Weight = f.last.Weight[f.Row(c, m)+j]
				} else {
					arcs[j].Weight = f.Cap[arcs[j].Engine]
				}
				sum += arcs[j].Weight
			}
			if known && math.Abs(sum-1) <= rounding {
				continue // all of its engines live: what stays, stays to the bit
			}
			for j := range arcs {
				arcs[j].Weight /= sum
			}
		}
	}
}

// fit moves what exceeds the caps in model m's rows to its engines with room.
func (f *fallback) fit(m int32) {
	serving := f.Serving(m)
	over, room := 0.0, 0.0
	placed := make([]float64, len(serving)) // model's load by engine, work/s
	for c := range int32(len(f.Clusters)) {
		at := f.RowIndex(c, m)
		for j, a := range f.plan.Rows[f.index[at]].Arcs {
			want := f.Rate[at] * f.Work[m] * a.Weight
			placed[j] += want * f.fits[a.Engine]
			over += want * (1 - f.fits[a.Engine])
		}
	}
	if over <= 0 {
		return
	}
	for _, e := range serving {
		room += f.spare[e]
	}
	move := min(over, room)
	extra := make([]float64, len(serving)) // work/s moved here
	for j, e := range serving {
		if room > 0 {
			extra[j] = move * f.spare[e] / room
			f.spare[e] = max(0, f.spare[e]-extra[j])
		}
		placed[j] += extra[j]
	}
	if over <= room {
		f.move(m, extra, move)
		return
	}
	f.shed(m, placed, (over-move)/f.Work[m])
}

// move gives each row's overflow to the engines with room, in one proportion.
func (f *fallback) move(m int32, extra []float64, sum float64) {
	for c := range int32(len(f.Clusters)) {
		arcs := f.plan.Rows[f.index[f.RowIndex(c, m)]].Arcs
		over := 0.0
		for _, a := range arcs {
			over += a.Weight * (1 - f.fits[a.Engine])
		}
		for j := range arcs {
			arcs[j].Weight = arcs[j].Weight*f.fits[arcs[j].Engine] + over*extra[j]/sum
		}
	}
}

// shed refuses amount requests/s of model m, alike everywhere, and gives all rows
// the weights that fill the engines as placed.
func (f *fallback) shed(m int32, placed []float64, amount float64) {
	var demand [fleet.NumPriorities]float64
	for c := range int32(len(f.Clusters)) {
		for k, rate := range f.Demand[f.RowIndex(c, m)] {
			demand[k] += rate
		}
	}
	shed := table.ShedLowest(&demand, amount)
	sum := 0.0
	for _, y := range placed {
		sum += y
	}
	for c := range int32(len(f.Clusters)) {
		row := &f.plan.Rows[f.index[f.RowIndex(c, m)]]
		row.Shed = shed
		for j := range row.Arcs {
			if sum > 0 {
				row.Arcs[j].Weight = placed[j] / sum
			}
		}
	}
}
