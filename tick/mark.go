package tick

import (
	"cmp"
	"time"

	"github.com/wardrop-lb/wardrop/protect"
)

// Mark is the state in which data planes found an engine.
type Mark struct {
	State  protect.State
	Reason string
	Left   time.Duration // until it ends
}

// markMost bounds what a report may say of a mark's time: marks are leases.
const markMost = time.Minute

// Marks gives each engine's mark in force: the one that keeps requests away rather than one
// that does not, then the one that ends last. A mark that rests on the reporter's own
// requests alone does not count while another data plane gets answers: it is the way to the
// engine that is dead then, not the engine.
func Marks(planes []Report, now time.Time) map[string]Mark {
	out, answered := map[string]Mark{}, answering(planes, now)
	for _, p := range planes {
		for _, m := range p.Marks {
			state, known := protect.ParseState(m.State)
			if !known || state == protect.Live || m.Own && answered[m.Engine] || !plausible(m.SecondsLeft) {
				continue
			}
			left := min(time.Duration(m.SecondsLeft*float64(time.Second)), markMost) - now.Sub(p.Received)
			if left <= 0 {
				continue
			}
			if old := out[m.Engine]; cmp.Or(cmp.Compare(rank(state), rank(old.State)), cmp.Compare(left, old.Left)) > 0 {
				out[m.Engine] = Mark{state, m.Reason, left}
			}
		}
	}
	return out
}

func rank(s protect.State) int {
	if s.TakesNothing() {
		return 1
	}
	return 0
}

// answering tells which engines some data plane gets answers of and holds no mark against.
func answering(planes []Report, now time.Time) map[string]bool {
	out := map[string]bool{}
	for _, p := range planes {
		marked := map[string]bool{}
		for _, m := range p.Marks {
			marked[m.Engine] = m.SecondsLeft > now.Sub(p.Received).Seconds()
		}
		for _, o := range p.Observations {
			if o.Rate > 0 && o.FirstByte > 0 && !marked[o.Engine] {
				out[o.Engine] = true
			}
		}
	}
	return out
}
