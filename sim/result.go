package sim

import (
	"fmt"
	"math"
	"time"
)

// Result is what a run measured.
type Result struct {
	Policy  string  `json:"policy"`
	Seconds float64 `json:"seconds"` // of virtual time that were measured
	Partial bool    `json:"partial,omitempty"`

	Whole Latency `json:"latency"`     // to the last token
	First Latency `json:"first_token"` // to the first
	Counts
	// Goodput is answers a second whose first token came within the scenario's SLO.
	Goodput float64 `json:"goodput"`
	// HitRate is cached over all prompt tokens; Sticky is cached over those that were in
	// some prompt before, which a router that never moves anything, over caches that never
	// forget, would find.
	HitRate float64 `json:"hit_rate"`
	Sticky  float64 `json:"sticky"`
	// KeysMoved is the part of conversations' turns on another engine than the turn
	// before; Churn the mean part of the traffic whose weights moved, a tick.
	KeysMoved float64 `json:"keys_moved"`
	Churn     float64 `json:"churn"`
	// Oscillation is the part of the engines' variation that lies in one swing.
	Oscillation float64 `json:"oscillation"`
	// Overload is the part of all engines' time with a queue.
	Overload float64 `json:"overload"`
	// Amplification is attempts over requests that were admitted.
	Amplification float64 `json:"amplification"`
	// Unfair is the slowest cluster's mean latency over the fastest's.
	Unfair float64 `json:"unfair"`

	Loads []Series  `json:"-"`
	Moves []Move    `json:"-"`
	Notes []Note    `json:"-"`
	E2E   []float32 `json:"-"`
}

// Move is the part of the traffic, 0 to 1, whose weights moved at a time in seconds.
type Move struct{ At, Part float64 }

// Series is an engine's load over time.
type Series struct {
	Engine string
	Values []float32
	Step   float64 // seconds between two
}

func (w *world) result(name string, until time.Duration, partial bool) *Result {
	m := w.measure
	r := &Result{Policy: name, Partial: partial, Counts: m.count, Seconds: max(0, (until - m.start).Seconds()), Notes: m.notes, E2E: m.e2e, Moves: m.moves}
	r.Whole, r.First = latencyOf(m.e2e), latencyOf(m.first)
	if r.Seconds > 0 {
		r.Goodput = float64(m.good) / r.Seconds
		r.Overload = m.overload / r.Seconds / float64(len(w.engines))
	}
	r.HitRate = ratio(m.count.Cached, m.count.Prompt)
	r.Sticky = ratio(m.count.Cached, m.count.Cacheable)
	r.KeysMoved = ratio(m.count.Moved, m.count.Turns)
	shed := 0
	for _, n := range m.count.Shed {
		shed += n
	}
	r.Amplification = ratio(m.count.Attempts, m.count.Arrived-shed)
	if m.churnTicks > 0 {
		r.Churn = m.churn / m.churnTicks
	}
	r.Oscillation = oscillation(m.loads)
	low, high := math.Inf(1), 0.0
	for _, c := range m.byCluster {
		if c.n > 0 {
			low, high = min(low, c.total/c.n), max(high, c.total/c.n)
		}
	}
	if high > 0 {
		r.Unfair = high / low
	}
	for i, x := range m.loads {
		r.Loads = append(r.Loads, Series{w.fleet.Engines[i].Name, x, time.Duration(w.scenario.Signals.Interval).Seconds()})
	}
	return r
}

func ratio(a, b int) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// Field gives a figure by its name, as expectations write it.
func (r *Result) Field(name string) (float64, error) {
	switch name {
	case "mean":
		return r.Whole.Mean, nil
	case "p50":
		return r.Whole.P50, nil
	case "p90":
		return r.Whole.P90, nil
	case "p99":
		return r.Whole.P99, nil
	case "p999":
		return r.Whole.P999, nil
	case "first_mean":
		return r.First.Mean, nil
	case "first_p50":
		return r.First.P50, nil
	case "first_p99":
		return r.First.P99, nil
	case "goodput":
		return r.Goodput, nil
	case "hit_rate":
		return r.HitRate, nil
	case "sticky":
		return r.Sticky, nil
	case "keys_moved":
		return r.KeysMoved, nil
	case "churn":
		return r.Churn, nil
	case "oscillation":
		return r.Oscillation, nil
	case "overload":
		return r.Overload, nil
	case "amplification":
		return r.Amplification, nil
	case "unfair":
		return r.Unfair, nil
	case "failed":
		return ratio(r.Failed, r.Arrived), nil
	case "left":
		return ratio(r.Left, r.Arrived), nil
	case "shed":
		return ratio(r.Shed[0]+r.Shed[1]+r.Shed[2], r.Arrived), nil
	case "shed_critical", "shed_standard", "shed_batch":
		k := map[string]int{"shed_critical": 0, "shed_standard": 1, "shed_batch": 2}[name]
		return ratio(r.Shed[k], r.Arrived), nil
	}
	return 0, fmt.Errorf("unknown figure %q", name)
}

// words says what an event does.
func (e *Event) words(begins bool) string {
	who := "engines " + e.Engine
	if e.Engine == "" {
		who = "region " + e.Region
	}
	switch {
	case e.Control != "" && begins:
		return "the control plane goes away"
	case e.Control != "":
		return "the control plane is back"
	case e.Do != "" && !begins:
		return who + ": as before"
	case e.Do == "slow":
		return fmt.Sprintf("%s: %v times as slow", who, e.Factor)
	case e.Do != "":
		return who + ": " + e.Do
	case begins:
		return fmt.Sprintf("cluster %s: %v times the demand", e.Cluster, e.Factor)
	}
	return "cluster " + e.Cluster + ": demand as before"
}
