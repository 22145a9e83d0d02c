package fleet

import (
	"maps"
	"slices"
	"time"
)

// Snapshot is what one cluster's data plane needs of a plan. It is immutable:
// the data plane swaps one for the next with an atomic pointer.
type Snapshot struct {
	Epoch   uint64
	Version uint64
	Cluster string
	Time    time.Time     // when it was published
	GoodFor time.Duration // how long the plan is to be trusted after Time
	// Replicas is the number of the cluster's data planes when the plan was made; 0: not
	// known.
	Replicas int
	// Planes are their instances, sorted: each engine that the cluster reads is read by two
	// of them.
	Planes  []string
	Engines []SnapshotEngine
	Rows    []SnapshotRow // sorted by Model
}

// RoutesLike says whether two snapshots of a cluster route alike: the same engines, weights and
// shed fractions. Predictions, limits, utilisation and replicas may differ.
func (s *Snapshot) RoutesLike(o *Snapshot) bool {
	return s.Cluster == o.Cluster && slices.EqualFunc(s.Engines, o.Engines, SnapshotEngine.Equal) &&
		slices.EqualFunc(s.Rows, o.Rows, func(r, u SnapshotRow) bool {
			return r.Model == u.Model && r.Shed == u.Shed && slices.EqualFunc(r.Targets, u.Targets, func(t, v Target) bool {
				return t.Engine == v.Engine && t.Weight == v.Weight
			})
		})
}

// SnapshotEngine is an engine as a data plane needs it.
type SnapshotEngine struct {
	Name     string
	Region   string
	URL      string
	Kind     string
	Capacity float64 // requests/s, each counted by its model's work: the hard cap
	Protocol string  // "http1" or "h2c"
	// Collector is the cluster whose data planes read the engine's signals, or that of
	// Collectors of its region.
	Collector string
	// Metrics is where the engine's metrics page is, a path below URL or a URL of its
	// own; empty for where engines of the kind have it.
	Metrics string
	// Names are what its metrics are called, lists by what they say; of the kind generic
	// alone. Not to be changed.
	Names map[string][]string
}

// Equal says whether two descriptions of an engine are the same.
func (e SnapshotEngine) Equal(o SnapshotEngine) bool {
	return e.Name == o.Name && e.Region == o.Region && e.URL == o.URL && e.Kind == o.Kind && e.Capacity == o.Capacity &&
		e.Protocol == o.Protocol && e.Collector == o.Collector && e.Metrics == o.Metrics && maps.EqualFunc(e.Names, o.Names, slices.Equal)
}

// SnapshotRow is one model's row: targets in the order of Engines' names,
// weight 0 for those that are only a fallback. Weights add up to 1.
type SnapshotRow struct {
	Model       string
	Targets     []Target
	Shed        [NumPriorities]float64 // fraction of each priority to refuse, 0..1
	Utilisation float64                // load over capacity of the row's engines, as planned
}

// Target is one engine of a row.
type Target struct {
	Engine    int32   // index into Snapshot.Engines
	Weight    float64 // fraction of the row's admitted requests
	Predicted float64 // seconds from the data plane and back, network included
	Network   float64 // seconds, the part of Predicted spent in the network
	Limit     float64 // requests that this data plane may have there at once; 0 has no bound
}

// Collectors is the name of a region's collectors, where clusters' names stand: they read its
// engines and serve no requests. No cluster is called so.
func Collectors(region string) string { return "@" + region }
