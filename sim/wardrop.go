package sim

import (
	"math"
	"time"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/guard"
	"github.com/wardrop-lb/wardrop/policy"
	"github.com/wardrop-lb/wardrop/policy/optimal"
	"github.com/wardrop-lb/wardrop/protect"
	"github.com/wardrop-lb/wardrop/route"
	"github.com/wardrop-lb/wardrop/tick"
)

// Policies are the policies of production, by the names that a configuration has for
// them, each with the whole of the control and the data planes.
func Policies() map[string]Maker {
	makers := map[string]Maker{}
	for _, name := range []string{"optimal", "proportional", "static"} {
		makers[name] = func(e Env) Router { return newWardrop(e.(*env), name) }
	}
	return makers
}

const (
	// weightPath is how long a snapshot takes to a data plane, signalPath how long a
	// report takes from it.
	weightPath = 100 * time.Millisecond
	signalPath = 100 * time.Millisecond
	sweepEvery = 500 * time.Millisecond
	// demandWindow is how long a data plane's rates look back.
	demandWindow = 10 * time.Second
	// usualOutput is the output expected of a request that sets no limit, in tokens.
	usualOutput = 256
	maxRetries  = 1
)

// Planned is one tick of one of Policies: what was planned of what, and what went out.
type Planned struct {
	At   time.Duration // since the run began
	View *fleet.View
	Plan *fleet.Plan // in force
	// Fresh says that it routes otherwise than the one before.
	Fresh bool
	// Wanted is the policy's plan, another than Plan where a guard rail holds it back.
	Wanted *fleet.Plan
	Hold   *guard.Hold // nil where none does
	Policy config.Policy
}

// wardrop is production under virtual time: the control plane's ticks and a data plane
// in every cluster, of the rooms that production runs.
type wardrop struct {
	*env
	config  *config.Config
	policy  policy.Policy
	memory  tick.Memory
	guard   guard.Guard
	last    *fleet.Plan
	cuts    []*fleet.Snapshot
	version uint64
	planes  []*plane
	spare   []*carried
}

// carried is what the router keeps of a request on its way.
type carried struct {
	request *Request
	plane   *plane
	row     *route.Row
	pick    route.Pick
	target  int
	charge  route.Charge
	size    float64 // beside a usual request's, at least 1
	work    int64
	retries int
	place   int // in waiting; -1 when it does not wait
	stalled bool
	failed  Outcome
	trip    *Trip // nil where nobody wants to know
}

func newWardrop(e *env, name string) *wardrop {
	c := *e.w.scenario.Config
	c.Engines = append([]config.Engine(nil), c.Engines...)
	c.Policy.Name = name
	w := &wardrop{env: e, config: &c}
	w.policy = tick.Policy(c.Policy, optimal.Options{Warm: true})
	index := map[string]int{}
	for i := range e.w.fleet.Engines {
		index[e.w.fleet.Engines[i].Name] = i
	}
	for i, cl := range e.w.fleet.Clusters {
		p := &plane{w: w, cluster: i, name: cl.Name, flights: route.NewFlights(), index: index, engines: make([]planeEngine, len(e.w.fleet.Engines))}
		for range e.w.fleet.Models {
			p.models = append(p.models, &planeModel{budget: protect.NewRetryBudget(c.Proxy.RetryBudget)})
			p.popularity = append(p.popularity, nil)
		}
		w.planes = append(w.planes, p)
	}
	w.tick(true)
	e.After(sweepEvery, w.sweep)
	return w
}

// wall is the time of day that rooms which want one get.
func wall(now time.Duration) time.Time { return time.Unix(1_700_000_000, 0).Add(now) }

// nanos is the same as a number.
func nanos(now time.Duration) int64 { return wall(now).UnixNano() }

// tick plans and publishes, unless the control plane is away.
func (w *wardrop) tick(first bool) {
	w.After(time.Duration(w.config.Policy.Tick), func() { w.tick(false) })
	if !w.w.control {
		return
	}
	for i := range w.config.Engines {
		w.config.Engines[i].Drain = w.Drained(i)
	}
	now := wall(w.Now())
	var reports []tick.Report
	for _, p := range w.planes {
		reports = append(reports, tick.Report{ReportRequest: p.report(), Received: now.Add(-signalPath)})
	}
	view := tick.View(w.config, reports, now)
	w.memory.Apply(view, reports, w.config.Policy.Name, now)
	plan, err := w.policy.Plan(view, w.last)
	in := w.memory.Guard(w.config)
	if err != nil {
		plan, in.Trouble = policy.Rescale(view, w.last), true
	}
	wanted := plan
	verdict := w.guard.Check(view, w.last, plan, in, now)
	plan = verdict.Plan
	if w.last != nil {
		w.w.measure.moved(movedPart(w.last, plan))
	}
	w.last = plan
	cuts := tick.Cut(w.config, view, plan, tick.Members(reports))
	fresh := w.cuts == nil || !tick.Same(w.cuts, cuts)
	if fresh {
		w.version++
	}
	w.cuts = cuts
	plan.Epoch, plan.Version, plan.Time = 1, w.version, now
	if w.w.told != nil {
		w.w.told(Planned{At: w.Now(), View: view, Plan: plan, Fresh: fresh, Wanted: wanted, Hold: verdict.Hold, Policy: w.config.Policy})
	}
	for i, p := range w.planes {
		s := cuts[i]
		s.Epoch, s.Version, s.Time = 1, w.version, now
		if first {
			p.apply(s)
		} else {
			w.After(weightPath, func() { p.apply(s) })
		}
	}
}

// movedPart is the part of the traffic whose weights differ: half the sum of all
// differences.
func movedPart(last, plan *fleet.Plan) float64 {
	moved, all := 0.0, 0.0
	for i := range plan.Rows {
		r := &plan.Rows[i]
		all += r.Rate
		if old := last.Row(r.Cluster, r.Model); old != nil {
			moved += 0.5 * r.Rate * difference(plan.Engines, r.Arcs, last.Engines, old.Arcs)
		}
	}
	if all == 0 {
		return 0
	}
	return moved / all
}

// difference adds up by how much weights differ; both plans have engines by name.
func difference(engines []fleet.EngineLoad, arcs []fleet.Arc, old []fleet.EngineLoad, before []fleet.Arc) float64 {
	sum := 0.0
	for i, j := 0, 0; i < len(arcs) || j < len(before); {
		switch {
		case j == len(before) || i < len(arcs) && engines[arcs[i].Engine].Name < old[before[j].Engine].Name:
			sum += arcs[i].Weight
			i++
		case i == len(arcs) || engines[arcs[i].Engine].Name > old[before[j].Engine].Name:
			sum += before[j].Weight
			j++
		default:
			sum += math.Abs(arcs[i].Weight - before[j].Weight)
			i, j = i+1, j+1
		}
	}
	return sum
}

// Route picks for a request that arrives, and names the next engine for one whose
// attempt has failed.
func (w *wardrop) Route(r *Request) (int, bool) {
	if c, ok := r.State.(*carried); ok && c != nil {
		return w.retry(r, c)
	}
	p := w.planes[r.Cluster]
	m := p.models[r.Model]
	m.demand[r.Priority]++
	row := p.router.Row(w.w.fleet.Models[r.Model])
	t := w.trip(r, p, row)
	if row == nil || shed(r, row) {
		w.told(r, t, "shed")
		return 0, false
	}
	c := w.carry()
	c.request, c.plane, c.row, c.trip = r, p, row, t
	c.size, c.work = m.sizeOf(r)
	m.budget.Admit(row.Utilisation)
	now := nanos(w.Now())
	h, source, depth := p.key(r, row, now)
	q := route.Query{Source: source, Hash: h, Work: c.work, Now: now}
	if t != nil {
		t.Depth, t.RetriesLeft, q.Trace = depth, m.budget.Left(), &route.Trace{}
	}
	c.pick = row.Decide(q)
	charge, ok := row.Take(&c.pick, c.work, now)
	if t != nil {
		t.decided(&q, c, q.Trace)
	}
	if !ok {
		w.told(r, t, "full")
		w.spare = append(w.spare, c)
		return 0, false
	}
	c.charge, c.target = charge, c.pick.At(0)
	return w.send(r, c)
}

func (w *wardrop) carry() *carried {
	if n := len(w.spare); n > 0 {
		c := w.spare[n-1]
		w.spare = w.spare[:n-1]
		*c = carried{place: -1}
		return c
	}
	return &carried{place: -1}
}

// send notes that a request is on its way.
func (w *wardrop) send(r *Request, c *carried) (int, bool) {
	i := c.plane.index[c.row.Targets()[c.target].Engine.Name]
	e := &c.plane.engines[i]
	if len(e.waiting) == 0 {
		e.since = w.Now()
	}
	c.place = len(e.waiting)
	e.waiting = append(e.waiting, c)
	if e.sent == nil {
		e.sent = make([]sent, len(c.plane.models))
	}
	e.sent[r.Model].attempts++
	e.sent[r.Model].inFlight++
	e.sent[r.Model].begun += w.Now()
	w.try(r, c)
	r.State = c
	return i, true
}

// settle takes a request out of those that wait for an engine.
func (c *carried) settle() {
	if c.place < 0 {
		return
	}
	e := &c.plane.engines[c.request.Engine]
	n := len(e.waiting) - 1
	e.waiting[c.place] = e.waiting[n]
	e.waiting[c.place].place = c.place
	e.waiting = e.waiting[:n]
	c.place = -1
}

// retry names the next engine, if the budget lets it.
func (w *wardrop) retry(r *Request, c *carried) (int, bool) {
	target, charge, ok := c.row.TakeNext(&c.pick, c.work, nanos(w.Now()))
	if ok && c.failed != Unreachable {
		c.retries++
		ok = c.retries <= maxRetries && c.plane.models[r.Model].budget.Spend(c.row.Utilisation)
	}
	if !ok {
		charge.Release()
		w.told(r, c.trip, "")
		r.State = nil
		w.spare = append(w.spare, c)
		return 0, false
	}
	c.charge, c.target, c.stalled = charge, target, false
	return w.send(r, c)
}

// FirstToken records what the first token says about the engine.
func (w *wardrop) FirstToken(r *Request) {
	c := r.State.(*carried)
	c.settle()
	now := nanos(w.Now())
	t := &c.row.Targets()[c.target]
	t.Flight.Recovered(nanos(r.Sent))
	e := &c.plane.engines[r.Engine]
	e.beat = w.Now()
	waited, typical := (w.Now() - r.Sent).Seconds(), &c.plane.models[r.Model].typical
	typical.Observe(waited, c.size*t.Predicted)
	e.outlier.ObserveFirstByte(waited, typical.Of(c.size*t.Predicted), now)
}

// Done releases what the request held and judges the engine.
func (w *wardrop) Done(r *Request, o Outcome) {
	c := r.State.(*carried)
	c.settle()
	c.charge.Release()
	c.failed = o
	c.tried(r, o)
	e := &c.plane.engines[r.Engine]
	e.sent[r.Model].inFlight--
	e.sent[r.Model].spent += w.Now() - r.Sent
	e.sent[r.Model].begun -= r.Sent
	if o == Failed || o == Unreachable {
		e.sent[r.Model].failed++
	}
	switch o {
	case Answered:
		e.outlier.Observe(protect.Success, nanos(w.Now()))
		e.beat = w.Now()
	case Failed:
		if !c.stalled { // the sweep that found it has judged
			w.passOver(c.plane, c.row, c.target, r.Engine, protect.Failure)
		}
	case Unreachable:
		w.passOver(c.plane, c.row, c.target, r.Engine, protect.Unreachable)
	}
	if o == Answered || o == Cancelled || r.FirstToken > 0 {
		w.told(r, c.trip, "")
		r.State = nil
		w.spare = append(w.spare, c)
	}
}

func (w *wardrop) passOver(p *plane, row *route.Row, target, engine int, o protect.Outcome) {
	now := nanos(w.Now())
	if lease := p.engines[engine].outlier.Observe(o, now); lease > 0 {
		row.PassOver(target, now, now+int64(lease))
	}
}

// sweep finds engines that accept and never answer: nothing of what waits has come
// for too long, and their own counters stand still.
func (w *wardrop) sweep() {
	w.After(sweepEvery, w.sweep)
	for _, p := range w.planes {
		for i := range p.engines {
			p.sweepEngine(i)
		}
	}
}
