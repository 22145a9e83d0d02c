package tick

import (
	"maps"
	"slices"
	"time"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/guard"
	"github.com/wardrop-lb/wardrop/policy/optimal"
)

// heardFor is how long a cluster, or an engine, that is not heard of any more is expected to
// be: beyond it is gone and not silent.
const heardFor = time.Hour

// heard knows of which clusters and engines there have been signals, and when last: some have
// none to give, like clusters of stock Envoys and engines that nobody reads. The zero value
// is ready.
type heard struct {
	clusters, engines map[string]time.Time
	fresh             [2]guard.Heard // clusters, engines
}

// apply counts the view's clusters with a live report and its engines with a fresh reading.
// Engines that a reading has found dead are not in the view: of those enough is known.
func (h *heard) apply(view *fleet.View, planes []Report, newest map[string]*pb.Reading, now time.Time) {
	if h.clusters == nil {
		h.clusters, h.engines = map[string]time.Time{}, map[string]time.Time{}
	}
	for _, p := range planes {
		if p.Cluster != "" { // a collector has none
			h.clusters[p.Cluster] = now
		}
	}
	for name := range newest {
		h.engines[name] = now
	}
	old := func(_ string, at time.Time) bool { return now.Sub(at) > heardFor }
	maps.DeleteFunc(h.clusters, old)
	maps.DeleteFunc(h.engines, old)
	h.fresh = [2]guard.Heard{}
	count := func(to *guard.Heard, in map[string]time.Time, name string) {
		if at, known := in[name]; known {
			to.Known++
			if at.Equal(now) {
				to.Fresh++
			}
		}
	}
	for i := range view.Clusters {
		count(&h.fresh[0], h.clusters, view.Clusters[i].Name)
	}
	for i := range view.Engines {
		count(&h.fresh[1], h.engines, view.Engines[i].Name)
	}
}

// Guard gives what a guard wants to know beside view and plans: what the configuration says,
// and of the signals that the last Apply saw of how many of those that are usually heard of
// there was something fresh, and what was tried since the Apply before.
func (m *Memory) Guard(c *config.Config) guard.Inputs {
	in := guard.Inputs{
		Limits:   guard.Limits{Movement: c.Control.Guard.Movement, Fresh: c.Control.Guard.Fresh},
		Clusters: m.heard.fresh[0], Engines: m.heard.fresh[1], Tried: m.paces.tried,
	}
	if c.Policy.Name == optimal.Name {
		problem := Problem(c.Policy)
		in.Problem = &problem
	}
	return in
}

// Heard lists the clusters that have reported within the last hour, for the next leader.
func (m *Memory) Heard() []string { return slices.Sorted(maps.Keys(m.heard.clusters)) }

// RestoreHeard goes on from what the last leader had heard of. It comes before the first Apply.
func (m *Memory) RestoreHeard(clusters []string, now time.Time) {
	m.heard = heard{clusters: map[string]time.Time{}, engines: map[string]time.Time{}}
	for _, name := range clusters {
		// Before now: it has not been heard of yet.
		m.heard.clusters[name] = now.Add(-time.Nanosecond)
	}
}
