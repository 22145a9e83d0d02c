package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/wardrop-lb/wardrop/fleet"
)

// Bind is a constraint without which the row's weights would be others.
type Bind struct {
	// What binds: "load", "tokens" or "slots" of an engine, an "override" of one, the "ramp" of one
	// that is cold, or "shed", the refusal of a priority.
	What string `json:"what"`
	Who  string `json:"who"` // the engine, or the priority
	// Price is what it costs the row's next request there, in seconds; 0 of what is refused.
	Price float64 `json:"price,omitempty"`
	// Fraction is what is refused, or what part of its capacity an override or its ramp leaves an
	// engine.
	Fraction float64 `json:"fraction,omitempty"`
}

// What operators pin, as the keys of overrides are written.
const (
	freezeKey = "freeze"
	capKey    = "cap/"
	drainKey  = "drain/"
)

// atCap is the part of its capacity from which an engine is full.
const atCap = 0.999

// binding lists the constraints that bind the row.
func (w *Weight) binding(known *Known) {
	for i := range w.Engines {
		x := &w.Engines[i]
		if x.Weight < trace && x.Terms.Cap < negligible {
			continue
		}
		for _, limit := range x.Full {
			b := Bind{What: limit, Who: x.Engine, Price: x.Terms.Cap}
			if limit == "load" {
				b.What, b.Fraction = known.limit(x.Engine)
			}
			w.Binds = append(w.Binds, b)
		}
	}
	for k := fleet.NumPriorities - 1; k >= 0; k-- {
		name := fleet.Priority(k).String()
		if f := w.Shed[name]; f >= trace {
			w.Binds = append(w.Binds, Bind{What: "shed", Who: name, Fraction: f})
		}
	}
}

// limit says what the limit on an engine's load comes from, and what part of its capacity it is.
func (k *Known) limit(engine string) (what string, part float64) {
	ramp := 0.0
	if k.View != nil {
		for i := range k.View.Engines {
			if k.View.Engines[i].Name == engine {
				ramp = k.View.Engines[i].Ramp
			}
		}
	}
	if value, ok := k.Overrides[capKey+engine]; ok {
		if _, err := fmt.Sscan(value, &part); err == nil && (ramp == 0 || part <= ramp) {
			return "override", part
		}
	}
	if ramp > 0 {
		return "ramp", ramp
	}
	return "load", 0
}

// boundWords says which constraints bind, in a sentence for each kind.
func (w *Weight) boundWords() (out []string) {
	refused := w.shedWords() != nil
	for _, x := range []struct{ what, one, many string }{
		{"load", "%s is at its capacity.", "%s are at their capacities."},
		{"tokens", "%s holds all the tokens that it may.", "%s hold all the tokens that they may."},
		{"slots", "%s has all its slots taken.", "%s have all their slots taken."},
	} {
		var full []*EngineWeight
		for i := range w.Engines {
			if slices.ContainsFunc(w.Binds, func(b Bind) bool { return b.What == x.what && b.Who == w.Engines[i].Engine }) {
				full = append(full, &w.Engines[i])
			}
		}
		switch {
		case refused && len(full) > 1 && len(full) == len(w.Engines): // which is said there
		case len(full) == 1:
			out = append(out, fmt.Sprintf(x.one, full[0].Engine))
		case len(full) > 1:
			out = append(out, fmt.Sprintf(x.many, names(full)))
		}
	}
	for _, b := range w.Binds {
		switch b.What {
		case "override":
			out = append(out, fmt.Sprintf("An override keeps %s at %.3g %% of its capacity, which costs %s.", b.Who, 100*b.Fraction, seconds(b.Price)))
		case "ramp":
			out = append(out, fmt.Sprintf("%s has just come, and may have %.3g %% of its capacity so far, which costs %s.", b.Who, 100*b.Fraction, seconds(b.Price)))
		}
	}
	return out
}

// shedWords says who is refused, and why; nothing where nobody is.
func (w *Weight) shedWords() []string {
	var parts, whole []string
	refused := 0.0
	for k := fleet.NumPriorities - 1; k >= 0; k-- {
		name := fleet.Priority(k).String()
		if f := w.Shed[name]; f >= trace {
			parts = append(parts, fmt.Sprintf("%.3g %% of %s", 100*f, name))
			refused += f * w.Demand[name]
		} else if w.Demand[name] > 0 {
			whole = append(whole, name)
		}
	}
	if len(parts) == 0 {
		return nil
	}
	none := ""
	if len(whole) > 0 {
		none = ", none of " + strings.Join(whole, " or ")
	}
	why := "the engines cannot take all"
	if !slices.ContainsFunc(w.Engines, func(x EngineWeight) bool { return x.Load < atCap*x.Capacity && len(x.Full) == 0 }) {
		why = "every engine is full"
	}
	return []string{fmt.Sprintf("Refused are %s requests (%.3g/s)%s: %s, and the least important goes first.", strings.Join(parts, " and "), refused, none, why)}
}
