package fleet

import (
	"slices"
	"time"
)

// Plan is the outcome of one solve: where every (cluster, model)'s requests go,
// what is shed, and the certificate. Rows are sorted by (Cluster, Model),
// Engines by Name and each row's Arcs by Engine index.
type Plan struct {
	Epoch   uint64 // set by the control plane
	Version uint64 // set by the control plane; grows within an epoch
	Policy  string
	Time    time.Time // the view's

	Objective float64 // requests in the network and the engines (seconds per second), shed and churn costs included
	Bound     float64 // certified lower bound of the objective
	Gap       float64 // (Objective - Bound) / Objective, less where that is next to nothing; 0 when it is 0

	Rows    []Row
	Engines []EngineLoad
	// Prices are what a request costs on arrival at a group of engines, sorted by
	// (Model, Engine); empty where the policy knows none.
	Prices []GroupPrice
}

// GroupPrice is what one more request/s of a model costs everybody once it has
// arrived at a group: the engines of one region that are equally far from every
// cluster and serve the model. It holds offset, latency, congestion, cap,
// penalty, and the churn price as far as the engines cause it.
type GroupPrice struct {
	Model   string
	Engine  int32 // index into Plan.Engines of the group's first engine
	Seconds float64
}

// Row is the plan of one (cluster, model).
type Row struct {
	Cluster string
	Model   string
	Rate    float64                // requests/s that arrive, all priorities
	Demand  [NumPriorities]float64 // requests/s that arrive, by priority
	Shed    [NumPriorities]float64 // fraction of each priority refused, 0..1
	// What a request of the model asks of an engine, see Model.
	Work, TokenSeconds, SlotSeconds float64
	Arcs                            []Arc // every engine that serves the model, used or not; weights add up to 1
}

// Admitted is what of the row's demand is not shed, in requests/s.
func (r *Row) Admitted() float64 {
	sum := 0.0
	for k, d := range r.Demand {
		sum += d * (1 - r.Shed[k])
	}
	return sum
}

// Arc is one engine as seen from one row. Network and Churn are this arc's own
// terms; the others are the engine's and stand in EngineLoad.
type Arc struct {
	Engine  int32   // index into Plan.Engines
	Weight  float64 // fraction of the row's admitted requests, 0..1
	Network float64 // seconds: distance plus the engine's offset
	Churn   float64 // seconds, -lambda..+lambda: negative where staying is cheaper than moving
}

// EngineLoad is what a plan asks of one engine, and the terms in seconds that
// the load causes there, for a request of work 1: Latency, Congestion and Cap count
// as many times as a request's work, TokenPrice and SlotPrice by what it holds.
type EngineLoad struct {
	Name       string
	Load       float64 // requests/s, each counted by its model's work
	Capacity   float64 // requests/s: the hard cap, or what the engine's ramp leaves of it
	Seconds    float64 // what a request of work 1 spends in the engine at this load
	Latency    float64 // seconds: what that is worth to the engine's models
	Congestion float64 // seconds that one more request/s costs the others: u L'(u)
	Cap        float64 // price of the hard cap, 0 where it does not bind
	TokenPrice float64 // price of the limit on tokens, per token-second; 0 where it does not bind
	SlotPrice  float64 // price of the limit on slots, per slot-second; 0 where it does not bind
	Penalty    float64 // the engine's penalty
	// Own is what a request's time is worth beyond Latency where the engine's models
	// differ in that; empty elsewhere.
	Own []OwnLatency
}

// OwnLatency is what the time of a model's request is worth beyond what that of the
// engine's models is worth in the mean: seconds, less than 0 where it is worth less.
type OwnLatency struct {
	Model   string
	Seconds float64
}

// Price is what one more request of work 1 at the engine costs everybody, in
// seconds, what it holds of tokens and slots not counted.
func (e *EngineLoad) Price() float64 { return e.Latency + e.Congestion + e.Cap + e.Penalty }

// Full says whether some limit of the engine has a price.
func (e *EngineLoad) Full() bool { return e.Cap > 0 || e.TokenPrice > 0 || e.SlotPrice > 0 }

func (e *EngineLoad) own(model string) float64 {
	for _, o := range e.Own {
		if o.Model == model {
			return o.Seconds
		}
	}
	return 0
}

// Terms is the explanation of one arc, in seconds.
type Terms struct {
	Network    float64 `json:"network"`
	Latency    float64 `json:"latency"`
	Congestion float64 `json:"congestion"`
	Cap        float64 `json:"cap"`
	Penalty    float64 `json:"penalty"`
	Churn      float64 `json:"churn"`
	Total      float64 `json:"total"`
}

// Terms gives the explanation of an arc of one of the plan's rows.
func (p *Plan) Terms(r *Row, a Arc) Terms {
	e, work := &p.Engines[a.Engine], Model{Work: r.Work}.Load()
	t := Terms{
		Network:    a.Network,
		Latency:    work*e.Latency + e.own(r.Model),
		Congestion: work * e.Congestion,
		Cap:        work*e.Cap + r.TokenSeconds*e.TokenPrice + r.SlotSeconds*e.SlotPrice,
		Penalty:    e.Penalty,
		Churn:      a.Churn,
	}
	t.Total = t.Network + t.Latency + t.Congestion + t.Cap + t.Penalty + t.Churn
	return t
}

// Row finds the plan's row of a (cluster, model); nil when there is none.
func (p *Plan) Row(cluster, model string) *Row {
	for i := range p.Rows {
		if p.Rows[i].Cluster == cluster && p.Rows[i].Model == model {
			return &p.Rows[i]
		}
	}
	return nil
}

// Used is the plan as the next one needs it: of the arcs those in use. It shares no memory of
// the rows.
func (p *Plan) Used() *Plan {
	out := *p
	out.Engines = slices.Clone(p.Engines)
	out.Rows = slices.Clone(p.Rows)
	n := 0
	for i := range p.Rows {
		for j := range p.Rows[i].Arcs {
			if p.Rows[i].Arcs[j].Weight > 0 {
				n++
			}
		}
	}
	arcs := make([]Arc, 0, n)
	for i := range out.Rows {
		from := len(arcs)
		for _, a := range p.Rows[i].Arcs {
			if a.Weight > 0 {
				arcs = append(arcs, a)
			}
		}
		out.Rows[i].Arcs = arcs[from:len(arcs):len(arcs)]
	}
	return &out
}
