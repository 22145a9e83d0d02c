package proportional

import (
	"errors"
	"fmt"
	"math"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy/internal/table"
)

// Name is what configuration calls the policy.
const Name = "proportional"

// Options are the controller's settings.
type Options struct {
	Gain      float64 // relative change of a weight per relative error of its score, 0..10
	Smoothing float64 // weight of the last smoothed score, 0 (none) up to but not 1
	Delay     int     // ticks by which scores come late, 0..100
}

// Validate reports what is out of range.
func (o Options) Validate() error {
	var errs []error
	if !(o.Gain >= 0 && o.Gain <= 10) {
		errs = append(errs, fmt.Errorf("gain: %v is not in [0, 10]", o.Gain))
	}
	if !(o.Smoothing >= 0 && o.Smoothing < 1) {
		errs = append(errs, fmt.Errorf("smoothing: %v is not in [0, 1)", o.Smoothing))
	}
	if o.Delay < 0 || o.Delay > 100 {
		errs = append(errs, fmt.Errorf("delay: %d is not in [0, 100]", o.Delay))
	}
	return errors.Join(errs...)
}

const (
	// A weight at most halves or doubles in a tick, and never falls under a
	// hundredth of an even share: an engine without traffic has no score to
	// recover by.
	mostStep   = 2.0
	leastShare = 0.01
)

// Limit is the largest loop gain a = gain x elasticity at which the error
// e(k+1) = e(k) - a e(k-delay) dies away (Levin and May 1976); the elasticity is
// by how many per cent a score rises when its engine's load rises by one, which
// for processor sharing is 1/(1 - u/u_max): ten at nine tenths of saturation.
func Limit(delay int) float64 {
	d := float64(delay)
	return 2 * math.Cos(d*math.Pi/(2*d+1))
}

// Policy is the controller. It keeps the scores of past ticks, so plans depend on
// the calls before; one value must not be used by two goroutines at once.
type Policy struct {
	options Options
	scores  map[string]*score
}

// score is one engine's.
type score struct {
	smoothed float64
	known    bool
	past     []float64 // newest last, at most delay+1
}

// New makes the controller. Settings out of range are reported by Plan.
func New(o Options) *Policy { return &Policy{options: o, scores: map[string]*score{}} }

// Name is Name.
func (*Policy) Name() string { return Name }

// Plan nudges the last plan's weights by the engines' scores, fleet.Engine.Busy;
// rows that it lacks begin in proportion to capacity. An engine without a score
// keeps its weight. Loads and terms are recorded as with the static policy, and
// nothing is shed. The error is that of view.Validate or of the options.
func (p *Policy) Plan(view *fleet.View, last *fleet.Plan) (*fleet.Plan, error) {
	if err := errors.Join(view.Validate(), p.options.Validate()); err != nil {
		return nil, fmt.Errorf("proportional: %w", err)
	}
	t := table.New(view)
	p.observe(t)
	plan, index := t.Plan(Name)
	known := t.Last(last)
	for c := range int32(len(t.Clusters)) {
		for m := range int32(len(t.Models)) {
			at := t.RowIndex(c, m)
			if index[at] < 0 || len(t.Serving(m)) == 0 {
				continue
			}
			arcs := plan.Rows[index[at]].Arcs
			for j := range arcs {
				if known != nil && known.Known[at] {
					arcs[j].Weight = known.Weight[t.Row(c, m)+j]
				} else {
					arcs[j].Weight = t.Cap[arcs[j].Engine]
				}
			}
			p.nudge(t, arcs)
		}
	}
	t.SetLoads(plan, index)
	t.SetTerms(plan, index)
	return plan, nil
}

// observe smooths the engines' scores and forgets those of engines that left.
func (p *Policy) observe(t *table.Table) {
	next := make(map[string]*score, len(t.Engines))
	for i := range t.Engines {
		e := t.Engines[i]
		s := p.scores[e.Name]
		if s == nil {
			s = &score{}
		}
		next[e.Name] = s
		if !(e.Busy >= 0) {
			continue
		}
		s.past = append(s.past, e.Busy)
		s.past = s.past[max(0, len(s.past)-p.options.Delay-1):]
		if late := s.past[0]; s.known {
			s.smoothed = p.options.Smoothing*s.smoothed + (1-p.options.Smoothing)*late
		} else {
			s.smoothed, s.known = late, true
		}
	}
	p.scores = next
}

// nudge moves a row's weights towards the engines that are less busy than the
// mean, and makes them add up to 1.
func (p *Policy) nudge(t *table.Table, arcs []fleet.Arc) {
	mean, n := 0.0, 0.0
	for _, a := range arcs {
		if s := p.scores[t.Engines[a.Engine].Name]; s.known {
			mean += s.smoothed
			n++
		}
	}
	normalise(arcs)
	if n == 0 || mean == 0 {
		return
	}
	mean /= n
	for j := range arcs {
		a := &arcs[j]
		if s := p.scores[t.Engines[a.Engine].Name]; s.known {
			step := 1 + p.options.Gain*(mean-s.smoothed)/mean
			a.Weight *= min(max(step, 1/mostStep), mostStep)
		}
		a.Weight = max(a.Weight, leastShare/float64(len(arcs)))
	}
	normalise(arcs)
}

func normalise(arcs []fleet.Arc) {
	sum := 0.0
	for _, a := range arcs {
		sum += a.Weight
	}
	for j := range arcs {
		arcs[j].Weight /= sum
	}
}
