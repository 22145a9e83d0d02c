package tick

import (
	"maps"
	"time"

	"github.com/wardrop-lb/wardrop/fleet"
)

// Memory is what a leader remembers from tick to tick beside its last plan: how
// long engines have been there, how fast they were, what demand was usual. The zero value
// takes all engines for warm and well. Not safe for concurrent use.
type Memory struct {
	at     time.Time
	rates  rates
	paces  paces
	ramps  ramps
	known  profiles
	slow   slowdowns
	bursts bursts
}

// Apply corrects a view by what was seen so far, now included.
func (m *Memory) Apply(view *fleet.View, planes []Report, now time.Time) {
	seconds := 0.0
	if !m.at.IsZero() {
		seconds = max(0, now.Sub(m.at).Seconds())
	}
	m.at = now
	newest, flows := Readings(planes, now), m.paces.of(view, planes)
	counted := demandByModel(view)
	m.rates.apply(view, planes, seconds)
	m.ramps.apply(view, newest)
	m.known.apply(view, flows, newest, seconds)
	m.slow.apply(view, flows, newest, seconds)
	m.bursts.apply(view, counted, seconds)
}

// Learned is what was learned of engines without profiles, by name, for the next leader.
func (m *Memory) Learned() map[string]fleet.Profile {
	out := map[string]fleet.Profile{}
	for name, l := range m.known.engines {
		if l.applied.T0 > 0 {
			out[name] = l.applied
		}
	}
	return out
}

// Restore goes on from what the last leader had learned. It comes before the first Apply.
func (m *Memory) Restore(learned map[string]fleet.Profile) { m.known.restored = maps.Clone(learned) }
