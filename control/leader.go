package control

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/guard"
	"github.com/wardrop-lb/wardrop/policy"
	"github.com/wardrop-lb/wardrop/policy/optimal"
	"github.com/wardrop-lb/wardrop/store"
	"github.com/wardrop-lb/wardrop/suppose"
	"github.com/wardrop-lb/wardrop/tick"
)

// gatherFor is how long a process that has just started waits for every cluster to
// report before it plans with what it has.
const (
	gatherFor  = 3 * time.Second
	gatherPoll = 50 * time.Millisecond
)

// leader is the state of one term.
type leader struct {
	*Control
	epoch, version uint64
	lost           <-chan struct{}
	fenced         uint64 // the epoch above ours that we could not exceed

	guard     guard.Guard
	hold      *guard.Hold // of the last tick
	records   suppose.Recorder
	policy    policy.Policy
	policyOf  config.Policy     // what policy was made of
	snapshots []*fleet.Snapshot // of this term's last plan
	published time.Time         // of the last plan, as others' clocks may have it
	saved     time.Time         // when the plan and what was learned were saved last
	deadline  time.Time         // when this tick's solve must have ended
}

// lead plans until another may lead.
func (c *Control) lead(ctx context.Context, term store.Term) {
	c.log.Info("leading", "epoch", term.Epoch)
	c.gather(ctx)
	c.leading.Store(true)
	defer c.leading.Store(false)
	l := &leader{Control: c, epoch: term.Epoch, lost: term.Lost}
	for next := time.Duration(0); ; next = time.Duration(c.config.Load().Policy.Tick) {
		select {
		case <-ctx.Done():
			return
		case <-l.lost:
			c.log.Warn("no longer leading", "epoch", l.epoch)
			return
		case <-time.After(next):
		}
		if l.fence(ctx) {
			l.tick(time.Now())
			l.forget(ctx, time.Now())
		}
	}
}

// fence takes a higher epoch if a data plane routes by one above ours: the store
// has lost its data, and without this the data planes would refuse every plan. Or this
// leader has been replaced and does not know it yet: then it gets none, and false says
// that there is no use in planning.
func (l *leader) fence(ctx context.Context) bool {
	above := uint64(0)
	for _, p := range l.reports.live(time.Now()) {
		above = max(above, p.Applied.GetEpoch())
	}
	if above <= l.epoch {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, fenceFor)
	defer cancel()
	term, err := l.store.Lead(ctx, above)
	if err != nil {
		if above != l.fenced { // said once
			l.fenced = above
			l.log.Error("data planes route by a higher epoch than ours, and no higher one can be had: another leads", "theirs", above, "ours", l.epoch, "error", err)
		}
		return false
	}
	l.log.Warn("data planes routed by a higher epoch than ours: has the store lost its data?", "theirs", above, "ours", l.epoch, "now", term.Epoch)
	l.epoch, l.lost, l.version, l.snapshots = term.Epoch, term.Lost, 0, nil
	return true
}

// fenceFor bounds the wait for a higher epoch: who cannot have it at once does not lead.
const fenceFor = time.Second

// gather waits until every cluster has reported, so that the first plan rests
// on a whole view. Who has stood by for long enough knows all there is.
func (c *Control) gather(ctx context.Context) {
	deadline := c.started.Add(gatherFor)
	for time.Now().Before(deadline) && ctx.Err() == nil {
		seen := map[string]bool{}
		for _, p := range c.reports.live(time.Now()) {
			seen[p.Cluster] = true
		}
		missing := false
		for _, cl := range c.config.Load().Clusters {
			missing = missing || !seen[cl.Name]
		}
		if !missing {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(gatherPoll):
		}
	}
}

// saveAfter is how long what was learned waits to be saved while plans do not change.
const saveAfter = time.Minute

// leastSolve is the least time that a solve may take: a hundred clusters with ten thousand engines take a fifth.
const leastSolve = 300 * time.Millisecond

// expired tells the optimizer to give up: half a tick is far more than it takes,
// and a late plan is worth less than the last one.
func (l *leader) expired() bool { return time.Now().After(l.deadline) }

// tick plans once and publishes.
func (l *leader) tick(now time.Time) {
	begin := time.Now()
	cfg := l.inForce(now)
	l.deadline = begin.Add(max(time.Duration(cfg.Policy.Tick)/2, leastSolve))
	switched := l.policy != nil && l.policyOf.Name != cfg.Policy.Name
	if l.policy == nil || l.policyOf != cfg.Policy {
		l.policy, l.policyOf = tick.Policy(cfg.Policy, optimal.Options{Warm: true, Run: parallel, Expired: l.expired}), cfg.Policy
	}
	planes := l.reports.live(now)
	view := tick.View(cfg, planes, now)
	l.memory.Apply(view, planes, cfg.Policy.Name, now)
	pins := l.pins(now)
	frozen := l.pinned(view, now)
	plan, trouble := l.plan(view, frozen)
	in := l.memory.Guard(cfg)
	in.Trouble = trouble != "" || frozen
	in.Released = frozen || l.released(switched, now)
	wanted := plan
	plan = l.guarded(view, plan, in, now)
	snapshots := tick.Cut(cfg, view, plan, tick.Members(planes))
	tick.Steady(l.snapshots, snapshots)
	// Data planes take what is younger within a version: a clock that went back makes a new one.
	at := now.Round(0)
	changed := !tick.Same(l.snapshots, snapshots) || at.Before(l.published)
	if changed {
		l.version++
	}
	l.published = at
	plan.Epoch, plan.Version, plan.Time = l.epoch, l.version, l.published
	for _, s := range snapshots {
		s.Epoch, s.Version, s.Time, s.GoodFor = l.epoch, l.version, l.published, time.Duration(cfg.Control.GoodFor)
	}
	if err := l.publisher.Publish(snapshots); err != nil {
		l.log.Error("plan not published; the last one stays in force", "error", err)
		return
	}
	l.last, l.snapshots = plan, snapshots
	took := time.Since(begin)
	l.state.Store(&State{Plan: plan, View: view, Published: now, TickTook: took, Trouble: trouble, Hold: l.hold, Overrides: pins, Forecasts: l.memory.Forecasts()})
	l.changed.happened()
	l.metrics.ticks.Observe(took.Seconds())
	l.record(cfg, pins, view, plan, wanted, changed)
	if changed {
		l.log.Debug("plan published", "epoch", l.epoch, "version", l.version, "gap", plan.Gap)
	}
	if changed || now.Sub(l.saved) > saveAfter {
		l.saved = now
		if err := save(l.planPath, saved{plan, l.memory.Learned(), l.memory.Heard()}); err != nil {
			l.log.Warn("plan not saved for the next leader", "error", err)
		}
	}
}

// plan asks the policy, and falls back to the last plan on the engines that
// live, which without a last plan is capacity-proportional. The same is what frozen
// weights are.
func (l *leader) plan(view *fleet.View, frozen bool) (*fleet.Plan, string) {
	if frozen {
		return policy.Rescale(view, l.last), ""
	}
	before := "" // why there was no plan a tick ago
	if s := l.state.Load(); s != nil {
		before = s.Trouble
	}
	plan, err := l.policy.Plan(view, l.last)
	if err == nil {
		if before != "" {
			l.log.Info("the policy plans again", "policy", l.policy.Name())
		}
		return plan, ""
	}
	l.metrics.failures.Inc()
	if err.Error() != before { // said once, not at every tick
		l.log.Error("no plan from the policy; the last one is rescaled", "policy", l.policy.Name(), "error", err)
	}
	return policy.Rescale(view, l.last), err.Error()
}

// guarded gives the plan that may go out.
func (l *leader) guarded(view *fleet.View, plan *fleet.Plan, in guard.Inputs, now time.Time) *fleet.Plan {
	v := l.guard.Check(view, l.last, plan, in, now)
	if v.RolledBack {
		l.metrics.rollbacks.Inc()
	}
	before := l.hold
	l.hold = v.Hold
	switch {
	case v.Hold != nil && (before == nil || before.Rail != v.Hold.Rail || v.RolledBack): // said once, not at every tick
		l.log.Warn("the policy's plan is held back; `wardrop override release` lets it through", "rail", v.Hold.Rail, "reason", v.Hold.Reason)
	case v.Hold == nil && before != nil:
		l.log.Info("the policy's plan goes out again", "rail", before.Rail, "held_for", now.Sub(before.Since), "ticks", before.Ticks)
	}
	return v.Plan
}

// parallel runs jobs on all cores; plans do not depend on how many there are.
func parallel(n int, job func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				job(int(i - 1))
			}
		})
	}
	wg.Wait()
}

// Solve makes one plan of a configuration's expected demand, offline, by its
// policy; o is how the optimizer runs, its problem the configuration's if nil.
func Solve(c *config.Config, o optimal.Options) (*fleet.Plan, error) {
	if o.Trace == nil { // else one after the other, so that the iterations can be read
		o.Run = parallel
	}
	plan, err := tick.Policy(c.Policy, o).Plan(c.View(), nil)
	if err != nil {
		return nil, fmt.Errorf("solve: %w", err)
	}
	return plan, nil
}
