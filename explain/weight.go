package explain

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/wardrop-lb/wardrop/fleet"
)

// Weight explains a row: why each engine has its weight.
type Weight struct {
	Epoch   uint64             `json:"epoch"`
	Version uint64             `json:"version"`
	Policy  string             `json:"policy"`
	Cluster string             `json:"cluster"`
	Model   string             `json:"model"`
	Rate    float64            `json:"rate"`
	Shed    map[string]float64 `json:"shed"`
	// Demand is what arrives, in requests/s by priority.
	Demand map[string]float64 `json:"demand"`
	// Frozen tells that an override keeps all weights.
	Frozen bool `json:"frozen,omitempty"`
	// Level is what the row's next request costs everybody: the total of the used
	// engines, in seconds.
	Level   float64        `json:"level"`
	Engines []EngineWeight `json:"engines"`
	// Compared holds the alternatives that the words are about beside each other, Binds the
	// constraints that bind.
	Compared []Comparison `json:"compared"`
	Binds    []Bind       `json:"binds"`
	// Words says what decides, the most important first.
	Words []string `json:"words"`

	hold string // why the policy's plan is held back
}

// EngineWeight is one engine of an explained row.
type EngineWeight struct {
	Engine   string      `json:"engine"`
	Weight   float64     `json:"weight"`
	Rate     float64     `json:"rate"`
	Load     float64     `json:"load"`
	Capacity float64     `json:"capacity"`
	Terms    fleet.Terms `json:"terms"`
	// Full names the engine's limits that have a price: load, tokens, slots.
	Full []string `json:"full,omitempty"`
	// Dearer is how much more than the used engines it would cost, in seconds; 0
	// for used ones.
	Dearer float64 `json:"dearer"`
}

// Known is what else was recorded with a plan; all of it may be absent.
type Known struct {
	// Overrides are those in force, by key and value.
	Overrides map[string]string
	// Hold is why a guard rail holds the policy's plan back.
	Hold string
	// View is what the plan was made of.
	View *fleet.View
}

// Weight explains the row of a (cluster, model), or one engine of it when engine is not empty,
// by the plan's recorded terms. The error says what is not there and what is.
func (k Known) Weight(p *fleet.Plan, cluster, model, engine string) (*Weight, error) {
	r := p.Row(cluster, model)
	if r == nil {
		return nil, fmt.Errorf("the plan has no row for cluster %q and model %q: it has %s", cluster, model, rowNames(p))
	}
	w := &Weight{
		Epoch: p.Epoch, Version: p.Version, Policy: p.Policy, Cluster: cluster, Model: model,
		Rate: r.Rate, Shed: newRow(p, r).Shed, Demand: map[string]float64{}, Level: level(p, r),
		Compared: []Comparison{}, Binds: []Bind{},
	}
	_, w.Frozen = k.Overrides[freezeKey]
	w.hold = k.Hold
	for k, d := range r.Demand {
		w.Demand[fleet.Priority(k).String()] = d
	}
	w.setEngines(p, r)
	w.binding(&k)
	if engine == "" {
		w.Words = slices.Concat(w.shedWords(), w.verdict(), w.boundWords())
		return w, nil
	}
	i := slices.IndexFunc(w.Engines, func(x EngineWeight) bool { return x.Engine == engine })
	if i < 0 {
		if _, ok := k.Overrides[drainKey+engine]; ok {
			return nil, fmt.Errorf("an override drains engine %q: it is in no plan", engine)
		}
		return nil, fmt.Errorf("engine %q does not serve %q in this plan", engine, model)
	}
	w.only(i)
	return w, nil
}

// setEngines lists the row's engines, the most used first.
func (w *Weight) setEngines(p *fleet.Plan, r *fleet.Row) {
	for _, a := range r.Arcs {
		e := &p.Engines[a.Engine]
		x := EngineWeight{
			Engine: e.Name, Weight: a.Weight, Rate: a.Weight * r.Admitted(),
			Load: e.Load, Capacity: e.Capacity, Terms: p.Terms(r, a), Full: full(e),
		}
		if a.Weight == 0 {
			x.Dearer = max(0, x.Terms.Total-w.Level)
		}
		w.Engines = append(w.Engines, x)
	}
	slices.SortStableFunc(w.Engines, func(a, b EngineWeight) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), cmp.Compare(a.Terms.Total, b.Terms.Total))
	})
}

// only leaves one engine, with the sentence that is about it and how it compares with the best
// other one.
func (w *Weight) only(i int) {
	x := &w.Engines[i]
	w.Words = []string{w.sentence(x)}
	if other := w.other(i); other != nil {
		better, worse := x, other
		if other.Terms.Total < x.Terms.Total {
			better, worse = other, x
		}
		c := compare(better, worse, w.Level)
		w.Compared = append(w.Compared, c)
		if r := c.reasons(); r != "" {
			w.Words = append(w.Words, fmt.Sprintf("Beside %s: %s.", other.Engine, r))
		}
	}
	shed := w.shedWords()
	w.Engines = w.Engines[i : i+1]
	w.Binds = slices.DeleteFunc(w.Binds, func(b Bind) bool { return b.What != "shed" && b.Who != x.Engine })
	w.Words = slices.Concat(w.Words, w.boundWords(), shed)
}

// other is the engine to compare one with: the most used of the others.
func (w *Weight) other(i int) *EngineWeight {
	if len(w.Engines) == 1 {
		return nil
	}
	if i == 0 {
		return &w.Engines[1]
	}
	return &w.Engines[0]
}

func full(e *fleet.EngineLoad) (names []string) {
	for _, l := range []struct {
		name  string
		price float64
	}{{"load", e.Cap}, {"tokens", e.TokenPrice}, {"slots", e.SlotPrice}} {
		if l.price > 0 {
			names = append(names, l.name)
		}
	}
	return names
}

// level is the mean total of a row's used arcs, by weight: they are equal but
// for the solver's tolerance.
func level(p *fleet.Plan, r *fleet.Row) float64 {
	sum := 0.0
	for _, a := range r.Arcs {
		sum += a.Weight * p.Terms(r, a).Total
	}
	return sum
}

func rowNames(p *fleet.Plan) string {
	var names []string
	for i := range p.Rows {
		if i == 10 {
			names = append(names, "...")
			break
		}
		names = append(names, p.Rows[i].Cluster+"/"+p.Rows[i].Model)
	}
	if len(names) == 0 {
		return "no rows"
	}
	return strings.Join(names, ", ")
}

func (w *Weight) sentence(x *EngineWeight) string {
	t := x.Terms
	if x.Weight == 0 {
		return fmt.Sprintf("%s gets nothing: a request there would cost %s, %s more than where they go (network %s, own latency %s, delay to others %s%s).",
			x.Engine, seconds(t.Total), seconds(x.Dearer), seconds(t.Network), seconds(t.Latency), seconds(t.Congestion), extras(t))
	}
	return fmt.Sprintf("%s gets %.1f%% (%.4g requests/s): one more costs %s, of which network %s, own latency %s, delay to others %s%s.",
		x.Engine, 100*x.Weight, x.Rate, seconds(t.Total), seconds(t.Network), seconds(t.Latency), seconds(t.Congestion), extras(t))
}

// negligible terms, in seconds, are left out of the words.
const negligible = 1e-5

// extras names the terms that are mostly nothing.
func extras(t fleet.Terms) string {
	var s string
	for _, x := range []struct {
		name  string
		value float64
	}{{"capacity price", t.Cap}, {"penalty", t.Penalty}, {"price of moving", t.Churn}} {
		if math.Abs(x.value) >= negligible {
			s += fmt.Sprintf(", %s %s", x.name, seconds(x.value))
		}
	}
	return s
}

// Write prints an explanation for people.
func (w *Weight) Write(out io.Writer) error {
	fmt.Fprintf(out, "%s at %s: %.4g requests/s, policy %s, plan %d.%d\n\n", w.Model, w.Cluster, w.Rate, w.Policy, w.Epoch, w.Version)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "ENGINE\tWEIGHT\tREQ/S\tLOAD\tCAPACITY\tNETWORK\tLATENCY\tCONGESTION\tCAP\tPENALTY\tCHURN\tTOTAL\tDEARER BY\n")
	for _, x := range w.Engines {
		dearer := "-"
		if x.Weight == 0 {
			dearer = seconds(x.Dearer)
		}
		fmt.Fprintf(t, "%s\t%.4f\t%.4g\t%.4g\t%.4g\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			x.Engine, x.Weight, x.Rate, x.Load, x.Capacity, seconds(x.Terms.Network), seconds(x.Terms.Latency), seconds(x.Terms.Congestion),
			seconds(x.Terms.Cap), seconds(x.Terms.Penalty), seconds(x.Terms.Churn), seconds(x.Terms.Total), dearer)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	for _, s := range w.Words {
		fmt.Fprintln(out, s)
	}
	return nil
}
