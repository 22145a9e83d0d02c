package route

import (
	"math"
	"slices"
	"time"

	"github.com/wardrop-lb/wardrop/fleet"
)

const (
	// agesFor is how many times as long as a plan is good for it takes until nothing of it is left.
	agesFor = 20
	// ageSteps is in how many steps that goes: each costs a slot table.
	ageSteps = 10
)

// Aged is the part of a snapshot's weights that age has taken: 0 as long as it is good, then
// clamp((age - goodFor) / (20 goodFor), 0, 1) in steps of a tenth, downwards. What is good for
// no time at all says nothing of how long, and never ages.
func Aged(age, goodFor time.Duration) float64 {
	if goodFor <= 0 || age <= goodFor {
		return 0
	}
	steps := (age - goodFor) / goodFor / (agesFor / ageSteps)
	return float64(min(steps, ageSteps)) / ageSteps
}

// Age blends the weights of a snapshot that is not renewed towards ones that need no plan: part
// of them, 0 to 1, are in proportion to the capacities of the row's engines that are healthy,
// those without weight included. If all clusters do so, none of them overloads an engine while
// there is room elsewhere, whatever has become of demand. An engine whose capacity is not known
// keeps its weight; if none is healthy, all count as if they were. What the plan refuses is
// blended towards nothing: data planes refuse by themselves what finds no room. Limits,
// predictions and all else stay.
//
// The weights of a row add up to exactly 1. The snapshot is not changed; with part 0 it is the
// result.
func Age(s *fleet.Snapshot, part float64, healthy func(model, engine string) bool) *fleet.Snapshot {
	if part <= 0 {
		return s
	}
	out := *s
	out.Rows = slices.Clone(s.Rows)
	for i := range out.Rows {
		r := &out.Rows[i]
		r.Targets = slices.Clone(r.Targets)
		for k := range r.Shed {
			r.Shed[k] *= 1 - part
		}
		goal := withoutPlan(s.Engines, r, healthy)
		for j := range r.Targets {
			t := &r.Targets[j]
			t.Weight += part * (goal[j] - t.Weight)
			if part == 1 {
				t.Weight = goal[j]
			}
		}
		exact(r.Targets)
	}
	return &out
}

// withoutPlan is the weights that a row would have without a plan.
func withoutPlan(engines []fleet.SnapshotEngine, r *fleet.SnapshotRow, healthy func(model, engine string) bool) []float64 {
	counts := make([]bool, len(r.Targets))
	for j, t := range r.Targets {
		counts[j] = healthy(r.Model, engines[t.Engine].Name)
	}
	kept, capacity := tally(engines, r, counts)
	if kept+capacity == 0 {
		for j := range counts {
			counts[j] = true
		}
		kept, capacity = tally(engines, r, counts)
	}
	goal := make([]float64, len(r.Targets))
	for j, t := range r.Targets {
		switch c := engines[t.Engine].Capacity; {
		case !counts[j]:
		case c > 0:
			goal[j] = max(0, 1-kept) * c / capacity
		case capacity > 0:
			goal[j] = t.Weight
		default:
			goal[j] = t.Weight / kept
		}
	}
	return goal
}

// tally adds up the capacities of the engines that count, and the weights of those of which no
// capacity is known.
func tally(engines []fleet.SnapshotEngine, r *fleet.SnapshotRow, counts []bool) (kept, capacity float64) {
	for j, t := range r.Targets {
		if c := engines[t.Engine].Capacity; counts[j] && c > 0 {
			capacity += c
		} else if counts[j] {
			kept += t.Weight
		}
	}
	return kept, capacity
}

// grain is what weights are rounded to: their sums are then exact, in any order.
const grain = 1.0 / (1 << 52)

// exact makes weights add up to 1: the largest takes what rounding has left.
func exact(targets []fleet.Target) {
	largest, sum := 0, 0.0
	for j := range targets {
		t := &targets[j]
		t.Weight = math.Floor(t.Weight/grain) * grain
		sum += t.Weight
		if t.Weight > targets[largest].Weight {
			largest = j
		}
	}
	if len(targets) > 0 {
		targets[largest].Weight += 1 - sum
	}
}
