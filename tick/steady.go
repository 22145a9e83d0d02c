package tick

import (
	"math"

	"github.com/wardrop-lb/wardrop/fleet"
)

const (
	// steadyPart is by how much of itself a figure may differ from the one that is published
	// and stay as that is.
	steadyPart = 0.02
	// steadyLimit and steadyRequests are the same of limits, in parts and in requests: they
	// are several times of what is to be expected, and round.
	steadyLimit    = 0.05
	steadyRequests = 1
	// steadyUtilisation is the same of utilisation, which is itself a part.
	steadyUtilisation = 0.01
)

// Steady lets those figures of a cut which have hardly moved stay as they were published last:
// predictions, distances, limits, utilisation and capacities, which follow the load from tick
// to tick and say what is to be expected. Data planes are then sent what is news. Weights and
// shed fractions are kept to the bit by the policy, which knows what moving them costs; they
// are not touched.
//
// What does move is rounded to 32 bits, which is how it is sent. The snapshots of next are
// changed, of last nothing is.
func Steady(last, next []*fleet.Snapshot) {
	before := make(map[string]*fleet.Snapshot, len(last))
	for _, s := range last {
		before[s.Cluster] = s
	}
	var table []fleet.SnapshotEngine // that was looked at: snapshots share theirs
	for _, s := range next {
		old := before[s.Cluster]
		if old == nil {
			old = &fleet.Snapshot{}
		}
		if len(s.Engines) > 0 && (len(table) == 0 || &table[0] != &s.Engines[0]) {
			table = s.Engines
			steadyEngines(old.Engines, table)
		}
		rows := make(map[string]*fleet.SnapshotRow, len(old.Rows))
		for i := range old.Rows {
			rows[old.Rows[i].Model] = &old.Rows[i]
		}
		for i := range s.Rows {
			steadyRow(old, rows[s.Rows[i].Model], s, &s.Rows[i])
		}
	}
}

func steadyEngines(old, engines []fleet.SnapshotEngine) {
	k := 0
	for i := range engines {
		e := &engines[i]
		for k < len(old) && old[k].Name < e.Name {
			k++
		}
		was := math.NaN()
		if k < len(old) && old[k].Name == e.Name {
			was = old[k].Capacity
		}
		e.Capacity = steady(was, e.Capacity, steadyPart)
	}
}

// steadyRow goes through the targets of both rows, which stand in the order of their engines'
// names.
func steadyRow(olds *fleet.Snapshot, old *fleet.SnapshotRow, s *fleet.Snapshot, r *fleet.SnapshotRow) {
	if old == nil {
		old = &fleet.SnapshotRow{Utilisation: math.NaN()}
	}
	if math.Abs(r.Utilisation-old.Utilisation) <= steadyUtilisation {
		r.Utilisation = old.Utilisation
	}
	k := 0
	for i := range r.Targets {
		t := &r.Targets[i]
		name := s.Engines[t.Engine].Name
		for k < len(old.Targets) && olds.Engines[old.Targets[k].Engine].Name < name {
			k++
		}
		was := fleet.Target{Predicted: math.NaN(), Network: math.NaN(), Limit: math.NaN()}
		if k < len(old.Targets) && olds.Engines[old.Targets[k].Engine].Name == name {
			was = old.Targets[k]
		}
		t.Predicted, t.Network = steady(was.Predicted, t.Predicted, steadyPart), steady(was.Network, t.Network, steadyPart)
		if math.Abs(t.Limit-was.Limit) <= max(steadyRequests, steadyLimit*was.Limit) {
			t.Limit = was.Limit
		}
	}
}

// steady is what was unless that is too far off, or is not known.
func steady(was, is, part float64) float64 {
	if math.Abs(is-was) <= part*math.Abs(was) {
		return was
	}
	if narrow := float64(float32(is)); !math.IsInf(narrow, 0) {
		return narrow
	}
	return is
}
