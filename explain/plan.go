package explain

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/wardrop-lb/wardrop/fleet"
)

// Plan is a plan in its stable JSON form. Times are seconds; loads are requests/s, each
// counted by its model's work.
type Plan struct {
	Epoch     uint64            `json:"epoch,omitempty"`
	Version   uint64            `json:"version,omitempty"`
	Policy    string            `json:"policy"`
	Objective float64           `json:"objective"`
	Bound     float64           `json:"bound"`
	Gap       float64           `json:"gap"`
	Rows      []Row             `json:"rows"`
	Engines   map[string]Engine `json:"engines"`
}

// Row is one (cluster, model). Weights has the used engines, Terms all of them.
type Row struct {
	Cluster string                 `json:"cluster"`
	Model   string                 `json:"model"`
	Rate    float64                `json:"rate"`
	Weights map[string]float64     `json:"weights"`
	Shed    map[string]float64     `json:"shed"`
	Terms   map[string]fleet.Terms `json:"terms"`
}

// Engine is what a plan asks of an engine.
type Engine struct {
	Load     float64 `json:"load"`
	Capacity float64 `json:"capacity"`
	Price    float64 `json:"price"`
}

// NewPlan gives a plan's JSON form.
func NewPlan(p *fleet.Plan) *Plan {
	out := &Plan{
		Epoch: p.Epoch, Version: p.Version, Policy: p.Policy,
		Objective: p.Objective, Bound: p.Bound, Gap: p.Gap,
		Rows: make([]Row, 0, len(p.Rows)), Engines: make(map[string]Engine, len(p.Engines)),
	}
	for i := range p.Engines {
		e := &p.Engines[i]
		out.Engines[e.Name] = Engine{Load: e.Load, Capacity: e.Capacity, Price: e.Price()}
	}
	for i := range p.Rows {
		out.Rows = append(out.Rows, newRow(p, &p.Rows[i]))
	}
	return out
}

func newRow(p *fleet.Plan, r *fleet.Row) Row {
	row := Row{
		Cluster: r.Cluster, Model: r.Model, Rate: r.Rate,
		Weights: map[string]float64{}, Shed: map[string]float64{}, Terms: map[string]fleet.Terms{},
	}
	for k, f := range r.Shed {
		row.Shed[fleet.Priority(k).String()] = f
	}
	for _, a := range r.Arcs {
		name := p.Engines[a.Engine].Name
		if a.Weight > 0 {
			row.Weights[name] = a.Weight
		}
		row.Terms[name] = p.Terms(r, a)
	}
	return row
}

// WriteTable prints a plan for people: the rows with their used engines, then
// the engines.
func WriteTable(w io.Writer, p *fleet.Plan) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "CLUSTER\tMODEL\tENGINE\tWEIGHT\tREQ/S\tNETWORK\tLATENCY\tCONGESTION\tCAP\tPENALTY\tCHURN\tTOTAL\n")
	for i := range p.Rows {
		writeRow(t, p, &p.Rows[i])
	}
	for i := range p.Rows {
		if shed := shedWords(&p.Rows[i]); shed != "" {
			fmt.Fprintf(t, "\nshed of %s at %s: %s\n", p.Rows[i].Model, p.Rows[i].Cluster, shed)
		}
	}
	fmt.Fprintf(t, "\nENGINE\tLOAD\tCAPACITY\tUSED\tPRICE\n")
	for i := range p.Engines {
		e := &p.Engines[i]
		fmt.Fprintf(t, "%s\t%.4g\t%.4g\t%.1f%%\t%s\n", e.Name, e.Load, e.Capacity, percent(e.Load, e.Capacity), seconds(e.Price()))
	}
	fmt.Fprintf(t, "\npolicy %s: objective %.6g, bound %.6g, gap %.2g\n", p.Policy, p.Objective, p.Bound, p.Gap)
	return t.Flush()
}

func writeRow(w io.Writer, p *fleet.Plan, r *fleet.Row) {
	admitted := r.Admitted()
	for _, a := range r.Arcs {
		if a.Weight == 0 {
			continue
		}
		x := p.Terms(r, a)
		fmt.Fprintf(w, "%s\t%s\t%s\t%.4f\t%.4g\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			r.Cluster, r.Model, p.Engines[a.Engine].Name, a.Weight, a.Weight*admitted,
			seconds(x.Network), seconds(x.Latency), seconds(x.Congestion), seconds(x.Cap), seconds(x.Penalty), seconds(x.Churn), seconds(x.Total))
	}
}

func shedWords(r *fleet.Row) string {
	var parts []string
	for k := fleet.NumPriorities - 1; k >= 0; k-- {
		if f := r.Shed[k]; f > 0 {
			parts = append(parts, fmt.Sprintf("%.3g%% of %s", 100*f, fleet.Priority(k)))
		}
	}
	return strings.Join(parts, ", ")
}

func percent(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return 100 * part / whole
}

// seconds writes a time at a length that people read: 12.3ms, 1.234s.
func seconds(s float64) string {
	switch abs := max(s, -s); {
	case s == 0:
		return "0"
	case abs < 1e-3:
		return fmt.Sprintf("%.3gus", s*1e6)
	case abs < 1:
		return fmt.Sprintf("%.4gms", s*1e3)
	}
	return fmt.Sprintf("%.4gs", s)
}
