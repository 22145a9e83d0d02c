package suppose

import (
	"fmt"
	"slices"
	"time"

	"github.com/wardrop-lb/wardrop/fleet"
)

// Held is a plan that a guard rail held back while another was in force.
type Held struct {
	Rail   string    `json:"rail"`
	Reason string    `json:"reason"` // with the figures
	Since  time.Time `json:"since"`
	// Until is when it ended; zero while it goes on, as far as is recorded.
	Until time.Time `json:"until,omitzero"`
	// Moved is the part of the traffic, 0 to 1, that would have gone elsewhere, and Moves the
	// weights of which most would: those of the plan that was held back first.
	Moved float64 `json:"moved"`
	Moves []Move  `json:"moves"`
}

// mostHeld is how many weights are kept of a plan that is held back.
const mostHeld = 5

// NewHeld says what a rail holds back: wanted is the policy's plan, inForce the one that goes out
// in its place.
func NewHeld(rail, reason string, since time.Time, inForce, wanted *fleet.Plan) *Held {
	all := moves(inForce, wanted)
	return &Held{Rail: rail, Reason: reason, Since: since, Moved: moved(inForce, wanted), Moves: all[:min(len(all), mostHeld)]}
}

// words says it in a sentence.
func (h *Held) words() string {
	s := fmt.Sprintf("Held back by the rail %s", h.Rail)
	if !h.Until.IsZero() {
		s += fmt.Sprintf(", for %s", h.Until.Sub(h.Since).Round(time.Second))
	}
	s += ": " + h.Reason + "."
	if len(h.Moves) == 0 {
		return s
	}
	m := h.Moves[0]
	return s + fmt.Sprintf(" %.3g %% of the traffic would have gone elsewhere: of %s at %s, %s would have got %.3g %% instead of %.3g %%.",
		100*h.Moved, m.Model, m.Cluster, m.Engine, 100*m.After, 100*m.Before)
}

// Recorder makes the records of what is in force from tick to tick: a new one where the plan is
// new, and the last one anew where a rail begins or ceases to hold another back meanwhile. The
// zero value is ready. Not safe for concurrent use.
type Recorder struct {
	last *Record // never changed once it was given away
}

// Wants tells whether a tick has something to record: fresh as for Tick, rail what holds the
// policy's plan back, if anything.
func (k *Recorder) Wants(fresh bool, rail string) bool {
	before := ""
	if h := k.open(); h != nil {
		before = h.Rail
	}
	return fresh || rail != before
}

// Tick takes what is in force after a tick, and what was held back of it; fresh says that the
// plan routes otherwise than that of the last tick. It gives the records to keep, each in place
// of an earlier one of the same plan.
func (k *Recorder) Tick(r *Record, fresh bool, held *Held) (out []*Record) {
	if before := k.open(); before != nil && (fresh || held == nil || held.Rail != before.Rail) {
		ended := *before
		ended.Until = r.Time
		k.revise(append(slices.Clone(k.last.Held[:len(k.last.Held)-1]), ended))
		out = append(out, k.last)
	}
	switch {
	case fresh || k.last == nil:
		r.Held = nil
		if held != nil {
			r.Held = []Held{*held}
		}
		k.last = r
		out = append(out, r)
	case held != nil && k.open() == nil:
		k.revise(append(slices.Clone(k.last.Held), *held))
		out = append(out[:0], k.last)
	}
	return out
}

// open is what is held back just now.
func (k *Recorder) open() *Held {
	if k.last == nil || len(k.last.Held) == 0 {
		return nil
	}
	if h := &k.last.Held[len(k.last.Held)-1]; h.Until.IsZero() {
		return h
	}
	return nil
}

// mostHolds bounds what is kept of one plan: one that a rail holds on and off for a day.
const mostHolds = 32

func (k *Recorder) revise(held []Held) {
	next := *k.last
	next.Held = held[max(0, len(held)-mostHolds):]
	next.Revision++
	k.last = &next
}
