package fleet

import (
	"errors"
	"fmt"
	"math"
)

// Validate reports everything wrong with the view: every error names the field.
// A valid view has unique names, references that resolve, finite numbers in
// range, and a distance from every cluster to every region that holds engines.
func (v *View) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	clusters := map[string]bool{}
	for i, c := range v.Clusters {
		if c.Name == "" {
			bad("clusters[%d]: no name", i)
		} else if clusters[c.Name] {
			bad("clusters[%d]: %q is there twice", i, c.Name)
		}
		clusters[c.Name] = true
	}
	names := map[string]bool{}
	var regions []string // in the order of their first engines
	seen := map[string]bool{}
	for i := range v.Engines {
		e := &v.Engines[i]
		if e.Name == "" {
			bad("engines[%d]: no name", i)
		} else if names[e.Name] {
			bad("engines[%d]: %q is there twice", i, e.Name)
		}
		names[e.Name] = true
		if err := e.validate(); err != nil {
			bad("engines[%d] %q: %w", i, e.Name, err)
		}
		if !seen[e.Region] {
			seen[e.Region] = true
			regions = append(regions, e.Region)
		}
	}
	engineRegion := make(map[string]string, len(v.Engines))
	for i := range v.Engines {
		engineRegion[v.Engines[i].Name] = v.Engines[i].Region
	}
	distances := map[[2]string]bool{}
	single := map[[2]string]bool{} // (cluster, engine)
	for i, d := range v.Distances {
		if !clusters[d.Cluster] {
			bad("distances[%d]: unknown cluster %q", i, d.Cluster)
		}
		seen, to := distances, d.Region
		if d.Engine != "" {
			seen, to = single, d.Engine
			if region, ok := engineRegion[d.Engine]; ok && region != d.Region {
				bad("distances[%d]: engine %q is in region %q, not %q", i, d.Engine, region, d.Region)
			}
		}
		if seen[[2]string{d.Cluster, to}] {
			bad("distances[%d]: %q to %q is there twice", i, d.Cluster, to)
		}
		seen[[2]string{d.Cluster, to}] = true
		if err := inRange("seconds", d.Seconds, 0, math.MaxFloat64); err != nil {
			bad("distances[%d]: %w", i, err)
		}
	}
	for _, c := range v.Clusters {
		for _, region := range regions {
			if !distances[[2]string{c.Name, region}] {
				bad("distances: none from cluster %q to region %q", c.Name, region)
			}
		}
	}
	type key struct {
		cluster, model string
		priority       Priority
	}
	demands := map[key]bool{}
	for i, d := range v.Demands {
		if !clusters[d.Cluster] {
			bad("demand[%d]: unknown cluster %q", i, d.Cluster)
		}
		if d.Model == "" {
			bad("demand[%d]: no model", i)
		}
		if int(d.Priority) >= NumPriorities {
			bad("demand[%d]: unknown priority %d", i, d.Priority)
		}
		k := key{d.Cluster, d.Model, d.Priority}
		if demands[k] {
			bad("demand[%d]: %s of %q at %q is there twice", i, d.Priority, d.Model, d.Cluster)
		}
		demands[k] = true
		if err := inRange("rate", d.Rate, 0, math.MaxFloat64); err != nil {
			bad("demand[%d]: %w", i, err)
		}
	}
	v.validateModels(bad)
	return errors.Join(errs...)
}

// LeastWork and MaxWork bound what a model's requests count, MaxHeld what they hold of
// tokens and slots: what lies beyond is a slip of the unit.
const (
	LeastWork = 1e-6
	MaxWork   = 1e6
	MaxHeld   = 1e15
)

func (v *View) validateModels(bad func(format string, args ...any)) {
	seen := map[string]bool{}
	for i, m := range v.Models {
		if m.Name == "" || seen[m.Name] {
			bad("models[%d]: %q is empty or there twice", i, m.Name)
		}
		seen[m.Name] = true
		if err := m.Validate(); err != nil {
			bad("models[%d]: %w", i, err)
		}
	}
}

// Validate reports what is wrong with the model's figures.
func (m Model) Validate() error {
	if m.Work > 0 && m.Work < LeastWork {
		return fmt.Errorf("work: %v is not in [%v, %v]", m.Work, LeastWork, MaxWork)
	}
	return errors.Join(
		inRange("work", m.Work, 0, MaxWork),
		inRange("first_token", m.FirstToken, 0, MaxWork),
		inRange("decode", m.Decode, 0, MaxWork),
		inRange("token_seconds", m.TokenSeconds, 0, MaxHeld),
		inRange("slot_seconds", m.SlotSeconds, 0, MaxHeld),
	)
}

func (e *Engine) validate() error {
	if len(e.Models) == 0 {
		return errors.New("models: none")
	}
	seen := map[string]bool{}
	for _, m := range e.Models {
		if m == "" || seen[m] {
			return fmt.Errorf("models: %q is empty or there twice", m)
		}
		seen[m] = true
	}
	return errors.Join(
		e.Profile.Validate(),
		inRange("offset", e.Offset, 0, math.MaxFloat64),
		inRange("penalty", e.Penalty, 0, math.MaxFloat64),
		inRange("weight", e.Weight, 0, math.MaxFloat64),
		inRange("slowdown", e.Slowdown, 0, math.MaxFloat64),
		e.validateRamp(),
	)
}

func (e *Engine) validateRamp() error {
	if !(e.Ramp >= 0 && e.Ramp <= 1) {
		return fmt.Errorf("ramp: %v is not in [0, 1]", e.Ramp)
	}
	return nil
}

// Validate reports what is wrong with the profile.
func (p Profile) Validate() error {
	const tiny = math.SmallestNonzeroFloat64
	return errors.Join(
		inRange("profile.t0", p.T0, tiny, math.MaxFloat64),
		inRange("profile.u_max", p.UMax, tiny, math.MaxFloat64),
		inRange("profile.batch", p.Batch, tiny, math.MaxFloat64),
		inRange("profile.kappa", p.Kappa, tiny, 0.95),
		inRange("profile.first_token", p.FirstToken, 0, p.T0),
		inRange("profile.spread", p.Spread, 0, MaxSpread),
		inRange("profile.tokens", p.Tokens, 0, math.MaxFloat64),
		inRange("profile.slots", p.Slots, 0, math.MaxFloat64),
	)
}

func inRange(field string, x, low, high float64) error {
	switch {
	case x >= low && x <= high:
		return nil
	case low == 0 && high == math.MaxFloat64:
		return fmt.Errorf("%s: %v is not a number of at least 0", field, x)
	case low == 0:
		return fmt.Errorf("%s: %v is not in [0, %v]", field, x, high)
	case high == math.MaxFloat64:
		return fmt.Errorf("%s: %v is not a number above 0", field, x)
	}
	return fmt.Errorf("%s: %v is not in (0, %v]", field, x, high)
}

// Validate reports what is wrong with the snapshot: every row must name known
// engines, hold finite weights that add up to 1 and shed fractions in 0..1. A
// row with no weight at all is refused: nothing could serve its requests.
func (s *Snapshot) Validate() error {
	if err := s.ValidateHead(); err != nil {
		return err
	}
	for i := range s.Rows {
		if err := s.Rows[i].Validate(len(s.Engines)); err != nil {
			return fmt.Errorf("row %q: %w", s.Rows[i].Model, err)
		}
	}
	return nil
}

// ValidateHead reports what is wrong with a snapshot beside its rows, which Validate looks at
// too.
func (s *Snapshot) ValidateHead() error {
	if s.Cluster == "" {
		return errors.New("snapshot: no cluster")
	}
	for i := 1; i < len(s.Rows); i++ {
		if s.Rows[i-1].Model >= s.Rows[i].Model {
			return fmt.Errorf("row %q: rows are not sorted by model", s.Rows[i].Model)
		}
	}
	return nil
}

// weightTolerance bounds the rounding in a row's sum of weights.
const weightTolerance = 1e-6

// Validate reports what is wrong with the row of a snapshot of that many engines.
func (r *SnapshotRow) Validate(engines int) error {
	sum := 0.0
	for i := range r.Targets {
		t := &r.Targets[i]
		if t.Engine < 0 || int(t.Engine) >= engines {
			return fmt.Errorf("unknown engine %d of %d", t.Engine, engines)
		}
		if !t.inRange() {
			return errors.Join(
				inRange("weight", t.Weight, 0, 1+weightTolerance),
				inRange("predicted", t.Predicted, 0, math.MaxFloat64),
				inRange("network", t.Network, 0, math.MaxFloat64),
				inRange("limit", t.Limit, 0, math.MaxFloat64),
			)
		}
		sum += t.Weight
	}
	if math.Abs(sum-1) > weightTolerance {
		return fmt.Errorf("weights add up to %v, not 1", sum)
	}
	if err := inRange("utilisation", r.Utilisation, 0, math.MaxFloat64); err != nil {
		return err
	}
	for _, f := range r.Shed {
		if !(f >= 0 && f <= 1) {
			return fmt.Errorf("shed: %v is not a fraction", f)
		}
	}
	return nil
}

// inRange says whether nothing is wrong with a target's numbers: there are many of them.
func (t *Target) inRange() bool {
	return t.Weight >= 0 && t.Weight <= 1+weightTolerance && t.Predicted >= 0 && t.Predicted <= math.MaxFloat64 &&
		t.Network >= 0 && t.Network <= math.MaxFloat64 && t.Limit >= 0 && t.Limit <= math.MaxFloat64
}
