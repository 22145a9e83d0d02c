package optimal

import (
	"errors"
	"fmt"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy"
	"github.com/wardrop-lb/wardrop/policy/certify"
	"github.com/wardrop-lb/wardrop/policy/internal/table"
)

// Name is what configuration, metrics and plans call the policy.
const Name = "optimal"

// Options are the policy's settings. The zero value means the defaults.
type Options struct {
	// Problem holds prices and tolerances; nil means policy.DefaultProblem.
	Problem *policy.Problem
	// Run calls job(0), ..., job(n-1), in any order or at once, and returns when
	// all are done; nil means one after the other. The package starts no
	// goroutine of its own: who wants the components solved in parallel says how
	// here. The plan does not depend on it.
	Run func(n int, job func(i int))
	// Warm lets a solve begin where the last call's left off, if the engines are
	// the same and demand has moved by less than a twentieth. That is faster, and the
	// plan then depends on the calls before, as far as the certificate permits.
	Warm bool
	// Expired is asked before every iteration; once it says true, Plan gives up
	// and returns an error. It may be called from all of Run's goroutines. nil
	// means never.
	Expired func() bool
	// Stage is told when a part of Plan is done; nil means nobody. The time
	// between two calls is what the later stage took.
	Stage func(Stage)
	// Trace sees every iterate, from all of Run's goroutines; nil means nobody.
	Trace func(Iteration)
}

// Stage is a part of Plan.
type Stage int

// The stages, in their order. Written and Certified come again when the
// certificate finds fault with the neatest weights.
const (
	Read      Stage = iota // the view and the last plan are numbered
	Solved                 // every component is solved
	Written                // the weights are snapped and written as a plan
	Certified              // the plan is measured
)

// Policy is the optimizer. It keeps its memory between calls, so one value must
// not be used by two goroutines at once.
type Policy struct {
	problem policy.Problem
	invalid error // of the problem
	options Options
	run     func(n int, job func(i int))

	tick    tick
	past    past
	solvers []*solver
	snapper snapper
	result  result
	judge   certify.Checker
	spare   []*fleet.Plan
	job     func(i int)
}

// tick is what one call works on, shared by the components: arrays by engine, row
// and group are written by the component that these belong to.
type tick struct {
	t         *table.Table
	p         *policy.Problem
	past      *past // nil at the start
	tolerance float64
	warm      bool
	expired   func() bool
	trace     func(Iteration)

	coarse *coarse // nil when no component is lean

	far                  []float64 // by place: the greatest distance
	stayLoad, staySlope  []float64 // by engine
	rowPrice             []float64 // by row
	groupPrice           []float64
	groupLow, groupHigh  []float64
	groupMean, groupFlow []float64
}

// New makes the policy. Settings out of range are reported by Plan.
func New(o Options) *Policy {
	p := &Policy{problem: policy.DefaultProblem(), options: o, run: o.Run}
	if o.Problem != nil {
		p.problem = *o.Problem
	}
	p.invalid = p.problem.Validate()
	if p.run == nil {
		p.run = func(n int, job func(i int)) {
			for i := range n {
				job(i)
			}
		}
	}
	p.job = func(i int) { p.solvers[i].solve(&p.tick) }
	return p
}

// Name is Name.
func (*Policy) Name() string { return Name }

// Problem is what the policy solves; policy/certify judges its plans by it.
func (p *Policy) Problem() policy.Problem { return p.problem }

// Recycle gives a plan's memory back, for a later plan to be written into. Nobody
// may hold the plan any more, in whole or in part: neither as the last plan nor
// to read it. Without it every plan has memory of its own.
func (p *Policy) Recycle(plan *fleet.Plan) {
	if plan != nil {
		p.spare = append(p.spare, plan)
	}
}

// Plan solves the view. The plan's rows, arcs and terms are those that
// fleet.Plan describes; latency, congestion and cap prices are the solver's, at
// the loads before snapping, so that the totals of a row's used arcs agree.
//
// Where the last weights of a whole component still fit and cost no more than
// most of MaxGap above the optimum, they stay to the bit: unchanged input moves
// nothing, and neither does demand that moves by a per cent where the churn price
// suits the engines' latencies.
//
// A row without demand keeps its last weights on the engines that live, or goes
// where a request would cost least, in proportion to spare capacity. A model
// that no engine serves is shed entirely. An engine that left the view since the
// last plan gives up its traffic at once; what the other engines had is theirs
// at the old weights, and staying put is worth the churn price there alone.
//
// It is an error when the view or the settings are not valid, when the solver
// fails or time is up, or when the certificate does not confirm the plan: last
// should then stay in force (see policy.Rescale).
//
// A call allocates nothing but the plan while views differ in figures alone, and
// not even that where Recycle has given one back.
func (p *Policy) Plan(view *fleet.View, last *fleet.Plan) (*fleet.Plan, error) {
	if p.invalid != nil {
		return nil, fmt.Errorf("optimal: %w", p.invalid)
	}
	if err := p.see(view); err != nil {
		return nil, fmt.Errorf("optimal: %w", err)
	}
	p.tick.past = nil
	if last != nil {
		p.past.read(p.tick.t, last)
		p.tick.past = &p.past
	}
	p.tell(Read)
	if err := p.solve(); err != nil {
		return nil, fmt.Errorf("optimal: %w", err)
	}
	p.tell(Solved)
	plan := p.blank()
	// The neatest weights that the certificate accepts.
	var failed error
	gap := 0.0
	for level := neat; level <= raw; level++ {
		p.snapper.snap(level)
		if p.snapper.crowded() && p.tick.tolerance > tight {
			p.tick.tolerance = tight
			for _, s := range p.solvers {
				s.tighten()
			}
			if err := p.collect(); err != nil {
				return nil, fmt.Errorf("optimal: %w", err)
			}
			p.snapper.snap(level)
		}
		p.snapper.write(plan)
		p.tell(Written)
		cert, err := p.judge.Measure(view, last, plan, p.problem)
		p.tell(Certified)
		limit := p.problem.MaxGap
		if level != raw && !p.result.stayed {
			// Leave the next plan some room to keep these weights.
			limit *= 0.5
		}
		if err == nil && cert.Gap <= limit {
			plan.Objective, plan.Bound, plan.Gap = cert.Objective, cert.Bound, cert.Gap
			return plan, nil
		}
		failed, gap = err, cert.Gap
	}
	p.Recycle(plan)
	if failed == nil {
		failed = fmt.Errorf("gap %.3g exceeds %.3g", gap, p.problem.MaxGap)
	}
	return nil, fmt.Errorf("optimal: %w", failed)
}

func (p *Policy) tell(s Stage) {
	if p.options.Stage != nil {
		p.options.Stage(s)
	}
}

func (p *Policy) blank() *fleet.Plan {
	if n := len(p.spare); n > 0 {
		plan := p.spare[n-1]
		p.spare = p.spare[:n-1]
		return plan
	}
	return &fleet.Plan{}
}

// see takes in the view: by its figures alone where only they differ.
func (p *Policy) see(view *fleet.View) error {
	t := &p.tick
	if t.t == nil || !t.t.Update(view) {
		t.t = nil
		if err := view.Validate(); err != nil {
			return err
		}
		t.t = table.New(view)
		p.setComponents()
	}
	t.p, t.warm, t.expired, t.trace = &p.problem, p.options.Warm, p.options.Expired, p.options.Trace
	t.tolerance = loose
	if p.problem.MaxGap < 1e-5 {
		t.tolerance = tight // the certificate's limit must not be used up by the solver
	}
	for _, s := range p.solvers {
		s.build.c.setBase(t.t, t.p, t.far)
	}
	if t.coarse != nil {
		t.coarse.see(t.t)
	}
	return nil
}

// setComponents prepares for a new set of engines.
func (p *Policy) setComponents() {
	t := &p.tick
	all := components(t.t)
	p.solvers, t.coarse = p.solvers[:0], nil
	for i := range all {
		s := &solver{}
		s.build.t, s.build.p, s.build.c = t.t, &p.problem, &all[i]
		s.inner.component = i
		p.solvers = append(p.solvers, s)
		if all[i].lean = isLean(t.t, &all[i]); all[i].lean && t.coarse == nil {
			t.coarse = &coarse{}
		}
	}
	t.far = resize(t.far, t.t.Places)
	for place := range t.far {
		t.far[place] = t.t.Farthest(int32(place))
	}
	engines, rows, groups := len(t.t.Engines), len(t.t.Rate), t.t.Groups()
	t.stayLoad, t.staySlope = resize(t.stayLoad, engines), resize(t.staySlope, engines)
	t.rowPrice, t.groupPrice = resize(t.rowPrice, rows), resize(t.groupPrice, groups)
	t.groupLow, t.groupHigh = resize(t.groupLow, groups), resize(t.groupHigh, groups)
	t.groupMean, t.groupFlow = resize(t.groupMean, groups), resize(t.groupFlow, groups)
}

// solve answers every component with demand.
func (p *Policy) solve() error {
	p.run(len(p.solvers), p.job)
	return p.collect()
}

// collect adds up the components' answers.
func (p *Policy) collect() error {
	r := &p.result
	r.reset(&p.tick)
	p.snapper.result = r
	var errs []error
	for _, s := range p.solvers {
		if s.err != nil {
			errs = append(errs, s.err)
			continue
		}
		r.takeComponent(s)
	}
	return errors.Join(errs...)
}
