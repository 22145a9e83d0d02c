package optimal

import (
	"math"

	"github.com/wardrop-lb/wardrop/fleet"
)

// stayer asks whether a component's last weights are still good at today's
// demand, with the fractions shed as they were: whether they fit under the caps,
// and moving could save no more than most of the permitted gap. Then nothing
// moves at all.
//
// Keeping weights arc by arc after a solve could not promise that: small
// changes of some rows are reasons for others to move.
type stayer struct {
	*result
	c     *component
	load  []float64 // by engine, requests/s
	slope []float64 // seconds by engine: the load's price and the penalty
	cost  float64   // seconds per second of the component
	rows  []stayRow
	sheds bool
	terms bool // the terms are those of the load, not a solution's
}

type stayRow struct {
	at      int
	cluster int32
	serving []int32
	from    int // of its arcs
	before  []float64
	rate    float64 // requests/s let in
	shed    [fleet.NumPriorities]float64
	price   float64 // seconds, once known
}

// used is the fraction of a row's demand below which an arc's flow needs no
// explanation.
const used = 1e-4

// enough is the fraction of the permitted gap that staying may cost.
const enough = 0.8

// newStayer gives nil when the last weights cannot be kept, good or not.
func newStayer(r *result, c *component) *stayer {
	s := &stayer{
		result: r, c: c,
		load: make([]float64, len(r.t.Engines)), slope: make([]float64, len(r.t.Engines)),
	}
	for cluster := range int32(len(r.t.Clusters)) {
		for _, m := range c.models {
			at := r.t.RowIndex(cluster, m)
			if r.t.Rate[at] > 0 && !s.addRow(at, cluster, m) {
				return nil
			}
		}
	}
	for _, e := range c.engines {
		u := s.load[e]
		if u > r.t.Cap[e]*(1+capTolerance) {
			return nil
		}
		curve := r.t.Curve[e].At(u)
		s.slope[e] = curve.Slope + r.t.Engines[e].Penalty
		s.cost += curve.Phi + u*r.t.Engines[e].Penalty
	}
	return s
}

func (s *stayer) addRow(at int, cluster, m int32) bool {
	serving, from := s.t.Serving(m), s.t.Row(cluster, m)
	row := stayRow{
		at: at, cluster: cluster, serving: serving, from: from,
		before: s.last.Weight[from : from+len(serving)],
	}
	for k, d := range s.t.Demand[at] {
		if d > 0 {
			row.shed[k] = s.last.Shed[at][k]
			row.rate += d * (1 - row.shed[k])
			s.cost += d * row.shed[k] * (s.c.base + s.p.Refuse[k])
			s.sheds = s.sheds || row.shed[k] > 0
		}
	}
	s.rows = append(s.rows, row)
	sum := 0.0
	for j, e := range serving {
		w := row.before[j]
		sum += w
		s.load[e] += row.rate * w
		s.cost += row.rate * w * s.t.Network(cluster, e)
	}
	return math.Abs(sum-1) <= 1e-9
}

// goodByOwnPrices asks at the prices that the last weights themselves cause:
// what would the rows save that would still move, the churn price paid?
func (s *stayer) goodByOwnPrices() bool {
	if s.sheds {
		return false // the caps have prices too, and those are not known
	}
	saving := 0.0
	for i := range s.rows {
		row := &s.rows[i]
		open, mean, dearest := math.Inf(1), 0.0, math.Inf(-1)
		for j, e := range row.serving {
			cost := s.t.Network(row.cluster, e) + s.slope[e]
			open = min(open, cost+s.p.Lambda)
			if w := row.before[j]; w > 0 {
				mean += w * cost
				dearest = max(dearest, cost-s.p.Lambda)
			}
		}
		if dearest > open*(1+much) {
			return false
		}
		if dearest > open {
			for j, e := range row.serving {
				cost := s.t.Network(row.cluster, e) + s.slope[e]
				saving += row.rate * row.before[j] * max(0, cost-s.p.Lambda-open)
			}
		}
		row.price = max(dearest, min(open, mean))
	}
	s.terms = true
	return saving <= enough*s.p.MaxGap*s.cost
}

// goodBySolution asks by the optimum, with churn or without: no plan undercuts
// either. Arcs that its prices could not explain must move.
func (s *stayer) goodBySolution(best *interior) bool {
	s.terms = false
	if s.cost > best.measure().objective*(1+enough*s.p.MaxGap) {
		return false
	}
	price := make([]float64, len(s.t.Engines)) // with the penalty, without the offset
	for k, members := range best.member {
		for _, e := range members {
			price[e] = best.slope[k] + best.dual[best.links+k] - s.t.Engines[e].Offset
		}
	}
	byRow := make(map[int32]float64, len(best.row))
	for i, at := range best.row {
		byRow[at] = best.rowPrice[i]
	}
	for i := range s.rows {
		row := &s.rows[i]
		row.price = byRow[int32(row.at)]
		for j, e := range row.serving {
			cost := s.t.Network(row.cluster, e) + price[e] - s.p.Lambda
			if row.rate*row.before[j] > used*s.t.Rate[row.at] && cost > row.price*(1+much) {
				return false
			}
		}
	}
	return true
}

// take makes the last weights the answer.
func (s *stayer) take() {
	if s.terms {
		for _, e := range s.c.engines {
			s.engine[e].Latency = s.t.Curve[e].Latency(s.load[e])
			s.engine[e].Congestion = s.t.Curve[e].Congestion(s.load[e])
		}
	}
	for _, row := range s.rows {
		copy(s.weight[row.from:], row.before)
		s.shed[row.at] = row.shed
		s.price[row.at] = row.price
		s.solved[row.at] = true
	}
}
