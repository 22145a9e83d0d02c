package tick

import (
	"maps"
	"time"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy/optimal"
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
	heard  heard
}

// Apply corrects a view by what was seen so far, now included, for a policy. The older ones get
// what they always had, or they would not be what the optimizer is compared with: of engines
// only that they are cold.
func (m *Memory) Apply(view *fleet.View, planes []Report, policy string, now time.Time) {
	seconds := 0.0
	if !m.at.IsZero() {
		seconds = max(0, now.Sub(m.at).Seconds())
	}
	m.at = now
	newest, flows := Readings(planes, now), m.paces.of(view, planes)
	m.heard.apply(view, planes, newest, now)
	counted := demandByModel(view)
	m.rates.apply(view, planes, seconds)
	m.ramps.apply(view, newest)
	if policy != optimal.Name {
		return
	}
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

// Source names a stream of demand.
type Source struct {
	Cluster, Model string
	Priority       fleet.Priority
}

// Forecast is what is expected of a stream of demand in the next tick, and how good such
// expectations have been.
type Forecast struct {
	Rate       float64 // requests/s
	Missed     float64 // by which part of itself it was wrong, in the mean
	Dispersion float64 // variance of counts over their mean, at least 1
}

// Forecasts are those of all demand that has been measured for long enough.
func (m *Memory) Forecasts() map[Source]Forecast {
	out := make(map[Source]Forecast, len(m.rates.known))
	for k, r := range m.rates.known {
		out[k] = Forecast{r.Mean(), r.Missed(), r.Dispersion()}
	}
	return out
}
