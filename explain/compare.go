package explain

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/wardrop-lb/wardrop/fleet"
)

// Term names one of the terms that engines are compared by.
type Term string

// The terms, as fleet.Terms has them.
const (
	Network    Term = "network"
	Latency    Term = "latency"
	Congestion Term = "congestion"
	Cap        Term = "cap"
	Penalty    Term = "penalty"
	Churn      Term = "churn"
)

// terms lists them in the order in which the first of equals is named.
var terms = []struct {
	term Term
	of   func(fleet.Terms) float64
	// worse says by how much an engine is worse than another, alone so where the other has
	// nothing of that term.
	worse, alone string
}{
	{Network, func(t fleet.Terms) float64 { return t.Network }, "%s is %s farther away", "%s is %s away"},
	{Latency, func(t fleet.Terms) float64 { return t.Latency }, "%s itself takes %s longer", "%s itself takes %s"},
	{Congestion, func(t fleet.Terms) float64 { return t.Congestion }, "the next request at %s would cost the others %s more", "the next request at %s would cost the others %s"},
	{Cap, func(t fleet.Terms) float64 { return t.Cap }, "%s is full, which costs %s more", "%s is full, which costs %s"},
	{Penalty, func(t fleet.Terms) float64 { return t.Penalty }, "%s has %s more penalty", "%s has a penalty of %s"},
	{Churn, func(t fleet.Terms) float64 { return t.Churn }, "%s costs %s more in caches, for moving", "to move to %s costs %s in caches"},
}

const (
	// even is the part of a row's level within which totals count as equal: a plan's
	// certificate is of the whole, not of each arc.
	even = 0.01
	// trace is a weight that is not worth a word.
	trace = 1e-4
	// slight is the part of a row's level below which a difference decides nothing.
	slight = 1e-3
)

// Comparison holds two engines of a row beside each other, term by term.
type Comparison struct {
	Better string `json:"better"`
	Worse  string `json:"worse"`
	// By is how much more the next request would cost at the worse one, in seconds: next to
	// nothing where both are used.
	By float64 `json:"by"`
	// Decides is the term that speaks most against the worse one, by DecidesBy seconds, and
	// Against the one that speaks most for it; empty where there is none.
	Decides   Term    `json:"decides,omitempty"`
	DecidesBy float64 `json:"decides_by,omitempty"`
	Against   Term    `json:"against,omitempty"`
	AgainstBy float64 `json:"against_by,omitempty"`

	terms [2]fleet.Terms // of better and worse
	least float64        // seconds below which a difference decides nothing
}

// compare finds what speaks for and against; level is what the row's next request costs.
func compare(better, worse *EngineWeight, level float64) Comparison {
	c := Comparison{Better: better.Engine, Worse: worse.Engine, By: worse.Terms.Total - better.Terms.Total, terms: [2]fleet.Terms{better.Terms, worse.Terms}, least: math.Max(slight*level, negligible)}
	for _, t := range terms {
		d := t.of(worse.Terms) - t.of(better.Terms)
		if d >= c.least && d > c.DecidesBy {
			c.Decides, c.DecidesBy = t.term, d
		}
		if -d >= c.least && -d > c.AgainstBy {
			c.Against, c.AgainstBy = t.term, -d
		}
	}
	return c
}

// reasons says what decides and what speaks against it; empty where the two are alike.
func (c *Comparison) reasons() string {
	better, worse := c.terms[0], c.terms[1]
	decides, against := phrases(c.Worse, worse, better, c.least), phrases(c.Better, better, worse, c.least)
	switch {
	case against == "":
		return decides
	case decides == "":
		return against
	}
	return decides + ", though " + against
}

// enough is the part of all that speaks against an engine from which one term says it alone.
const enough = 0.75

// phrases says what speaks against an engine beside another: the largest term, and the next one
// where that is not the most of it. Differences below least, in seconds, decide nothing.
func phrases(engine string, its, others fleet.Terms, least float64) string {
	var first, second Term
	var most, next, all float64
	for _, t := range terms {
		switch d := t.of(its) - t.of(others); {
		case d < least:
			continue
		case d > most:
			first, second, next, most = t.term, first, most, d
			all += d
		default:
			if d > next {
				second, next = t.term, d
			}
			all += d
		}
	}
	switch {
	case first == "":
		return ""
	case second == "" || most >= enough*all:
		return phrase(first, engine, its, others)
	}
	more := strings.Replace(phrase(second, engine, its, others), engine+" itself", engine, 1)
	return phrase(first, engine, its, others) + ", and " + strings.Replace(more, engine, "it", 1)
}

// phrase says by how much an engine is worse than another in a term.
func phrase(term Term, engine string, its, others fleet.Terms) string {
	for _, t := range terms {
		if t.term != term {
			continue
		}
		how := t.worse
		if math.Abs(t.of(others)) < negligible {
			how = t.alone
		}
		return fmt.Sprintf(how, engine, seconds(t.of(its)-t.of(others)))
	}
	return ""
}

// verdict compares the row's best alternatives and says in a sentence or two why the traffic
// goes where it goes.
func (w *Weight) verdict() []string {
	used, unused := w.used()
	switch {
	case len(w.Engines) == 0:
		return []string{fmt.Sprintf("No engine of %s is there.", w.Model)}
	case len(w.Engines) == 1:
		return []string{fmt.Sprintf("%s is the only engine of %s: all goes there, one more costs %s.", w.Engines[0].Engine, w.Model, seconds(w.Engines[0].Terms.Total))}
	case len(used) == 0:
		return nil
	}
	var out []string
	if how := w.made(); how != "" {
		out = append(out, how)
	}
	if w.Rate == 0 {
		out = append(out, "No requests arrive; the weights say where the first would go.")
	}
	if len(used) > 1 {
		out = append(out, w.split(used))
	}
	return append(out, w.beaten(used, unused)...)
}

// used parts the engines by whether they have a weight worth a word.
func (w *Weight) used() (used, unused []*EngineWeight) {
	for i := range w.Engines {
		if x := &w.Engines[i]; x.Weight >= trace {
			used = append(used, x)
		} else {
			unused = append(unused, x)
		}
	}
	return used, unused
}

// made says of plans that are not made for equal totals how they are.
func (w *Weight) made() string {
	switch {
	case w.Frozen:
		return "An override freezes all weights: they are the last plan's, on the engines that live."
	case w.Policy == "held" && w.hold != "":
		return "These are the last plan's weights, on the engines that live; a guard rail holds the policy's plan back: " + w.hold + "."
	case w.Policy == "held":
		return "A guard rail holds the policy's plan back: these are the last plan's weights, on the engines that live."
	case w.Policy == "rescale":
		return "The policy gave no plan: these are the last plan's weights, on the engines that live."
	case w.Policy == "capacity":
		return "The policy gave no plan, and there was none before: the weights are as the engines' capacities."
	case w.Policy == "static":
		return "The policy static takes the weights from the configuration, whatever they cost."
	case w.Policy == "proportional":
		return "The policy proportional follows how busy the engines are, whatever that costs."
	}
	return ""
}

// split says why several engines share the row.
func (w *Weight) split(used []*EngineWeight) string {
	low, high := used[0], used[0]
	for _, x := range used[1:] {
		if x.Terms.Total < low.Terms.Total {
			low = x
		}
		if x.Terms.Total > high.Terms.Total {
			high = x
		}
	}
	if high.Terms.Total-low.Terms.Total > even*w.Level {
		c := compare(low, high, w.Level)
		w.Compared = append(w.Compared, c)
		return fmt.Sprintf("One more costs from %s at %s to %s at %s: %s.", seconds(low.Terms.Total), low.Engine, seconds(high.Terms.Total), high.Engine, c.reasons())
	}
	c := contrast(used, w.Level)
	w.Compared = append(w.Compared, c)
	s := fmt.Sprintf("%s are %s at %s: traffic is split so that %s can be improved", names(used), both(used, "both", "all"), seconds(w.Level), both(used, "neither", "none"))
	if r := c.reasons(); r != "" {
		s += "; " + r
	}
	return s + "."
}

// contrast holds the most used engine beside the one that differs most from it.
func contrast(used []*EngineWeight, level float64) (out Comparison) {
	for _, x := range used[1:] {
		c := compare(used[0], x, level)
		if c.Decides == "" || c.AgainstBy > c.DecidesBy {
			c = compare(x, used[0], level)
		}
		if out.Better == "" || c.DecidesBy > out.DecidesBy {
			out = c
		}
	}
	return out
}

func both(used []*EngineWeight, two, more string) string {
	if len(used) == 2 {
		return two
	}
	return more
}

// mostNames is how many engines are named in one sentence.
const mostNames = 3

func names(list []*EngineWeight) string {
	var out []string
	for _, x := range list[:min(len(list), mostNames)] {
		out = append(out, x.Engine)
	}
	if n := len(list) - mostNames; n > 0 {
		out = append(out, fmt.Sprintf("%d more", n))
	}
	n := len(out) - 1
	if n == 0 {
		return out[0]
	}
	return strings.Join(out[:n], ", ") + " and " + out[n]
}

// beaten compares the nearest of the unused engines with the best used one.
func (w *Weight) beaten(used, unused []*EngineWeight) []string {
	if len(unused) == 0 {
		return nil
	}
	best, next := used[0], nearest(unused)
	c := compare(best, next, w.Level)
	w.Compared = append(w.Compared, c)
	if c.By <= 0 {
		if w.made() != "" {
			return []string{fmt.Sprintf("%s gets nothing, and would be %s cheaper: %s.", next.Engine, seconds(-c.By), c.reasons())}
		}
		return []string{fmt.Sprintf("%s gets nothing, at the same cost as %s: there is nothing to gain.", next.Engine, best.Engine)}
	}
	s := fmt.Sprintf("%s wins by %s over %s", names(used), seconds(c.By), next.Engine)
	if len(used) > 1 {
		s = fmt.Sprintf("%s gets nothing: it would be %s dearer", next.Engine, seconds(c.By))
	}
	if r := c.reasons(); r != "" {
		s += ": " + r
	}
	return []string{s + "."}
}

func nearest(list []*EngineWeight) *EngineWeight {
	best := list[0]
	for _, x := range list[1:] {
		if cmp.Compare(x.Terms.Total, best.Terms.Total) < 0 {
			best = x
		}
	}
	return best
}
