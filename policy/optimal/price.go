package optimal

import (
	"math"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy/internal/table"
)

// Pricer prices every arc of a view, one by one: the yardstick of a solve's time,
// for no method can do without looking at each arc once.
type Pricer struct {
	start  []int32 // by row: where its arcs begin; one more at the end
	engine []int32 // by arc
	cost   []float64
	demand []float64 // by row, requests/s
}

// NewPricer lists the arcs of a valid view: every cluster with every engine that
// serves a model, once a model.
func NewPricer(view *fleet.View) *Pricer {
	t := table.New(view)
	p := &Pricer{start: []int32{0}}
	for c := range int32(len(t.Clusters)) {
		for m := range int32(len(t.Models)) {
			for _, e := range t.Serving(m) {
				p.engine = append(p.engine, e)
				p.cost = append(p.cost, t.Network(c, e))
			}
			p.start = append(p.start, int32(len(p.engine)))
			p.demand = append(p.demand, t.Rate[t.RowIndex(c, m)])
		}
	}
	return p
}

// Arcs is the number of arcs.
func (p *Pricer) Arcs() int { return len(p.engine) }

// Pass adds to every arc's network seconds the price of its engine (by the order
// of their names, in seconds), and gives what all demand would pay on its
// cheapest arcs, in seconds per second. Rows without engines pay nothing.
func (p *Pricer) Pass(price []float64) float64 {
	sum := 0.0
	for r, d := range p.demand {
		from, to := p.start[r], p.start[r+1]
		engine := p.engine[from:to]
		cost := p.cost[from:to][:len(engine)]
		least := math.Inf(1)
		for j, e := range engine {
			if v := cost[j] + price[e]; v < least {
				least = v
			}
		}
		if from < to {
			sum += d * least
		}
	}
	return sum
}
