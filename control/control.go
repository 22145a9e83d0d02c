package control

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy"
	"github.com/wardrop-lb/wardrop/policy/optimal"
	"github.com/wardrop-lb/wardrop/signals"
	"github.com/wardrop-lb/wardrop/store"
	"github.com/wardrop-lb/wardrop/tick"
	"github.com/wardrop-lb/wardrop/weights"
)

// gatherFor is how long a new leader waits for every cluster to report before
// it plans with what it has.
const (
	gatherFor  = 3 * time.Second
	gatherPoll = 50 * time.Millisecond
)

// Options is what a control plane is made of.
type Options struct {
	Config *config.Config
	Store  store.Store
	// PlanPath is where the last plan is kept for the next leader; empty for
	// nowhere.
	PlanPath string
	Registry prometheus.Registerer
	Log      *slog.Logger
}

// Control is a control plane. Safe for concurrent use.
type Control struct {
	store     store.Store
	planPath  string
	log       *slog.Logger
	metrics   *metrics
	publisher *weights.Publisher
	reports   *reports
	config    atomic.Pointer[config.Config]
	state     atomic.Pointer[State]
	drained   drained
	stop      context.CancelFunc
}

// State is a plan in force and what it came from. It is immutable.
type State struct {
	Plan      *fleet.Plan
	View      *fleet.View
	Published time.Time
	TickTook  time.Duration
	// Trouble is why the policy gave no plan this tick, so that a fallback is in
	// force; empty when all is well.
	Trouble string
	// Forecasts is the demand that was measured.
	Forecasts map[tick.Source]tick.Forecast

	snapshots []*fleet.Snapshot
}

// New makes a control plane that is not running yet.
func New(o Options) *Control {
	ctx, stop := context.WithCancel(context.Background())
	c := &Control{
		store: o.Store, planPath: o.PlanPath, log: o.Log, reports: newReports(),
		publisher: weights.NewPublisher(ctx), stop: stop, drained: drained{names: map[string]bool{}},
	}
	c.config.Store(o.Config)
	c.metrics = newMetrics(c, o.Registry)
	return c
}

// Register adds the signal and weight paths to a gRPC server.
func (c *Control) Register(r grpc.ServiceRegistrar) {
	c.publisher.Register(r)
	pb.RegisterSignalsServer(r, &signals.Receiver{Handle: func(report *pb.ReportRequest) {
		c.reports.add(report, time.Now())
	}})
}

// Reload replaces the configuration; the next tick uses it. Addresses and the
// store stay as they were.
func (c *Control) Reload(cfg *config.Config) { c.config.Store(cfg) }

// State is the plan in force; nil before the first.
func (c *Control) State() *State { return c.state.Load() }

// Run leads and plans until ctx is done. It returns early only when it cannot
// become leader.
func (c *Control) Run(ctx context.Context) error {
	defer c.stop()
	epoch, err := c.store.Lead(ctx, 0)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	last, err := load(c.planPath)
	if err != nil {
		c.log.Warn("starting without the last plan", "error", err)
	}
	c.log.Info("leading", "epoch", epoch)
	c.gather(ctx)
	l := &leader{Control: c, epoch: epoch, last: last.Plan}
	l.memory.Restore(last.Learned)
	c.drained.set(last.Drained)
	l.savedDrained = last.Drained
	for {
		l.fence(ctx)
		l.tick(time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Duration(c.config.Load().Policy.Tick)):
		}
	}
}

// fence takes a higher epoch if a data plane routes by one above ours: the store
// has lost its data, and without this the data planes would refuse every plan.
func (l *leader) fence(ctx context.Context) {
	above := uint64(0)
	for _, p := range l.reports.live(time.Now()) {
		above = max(above, p.Applied.GetEpoch())
	}
	if above <= l.epoch {
		return
	}
	epoch, err := l.store.Lead(ctx, above)
	if err != nil {
		l.log.Error("data planes route by a higher epoch than ours, and no higher one can be had", "theirs", above, "ours", l.epoch, "error", err)
		return
	}
	l.log.Warn("data planes routed by a higher epoch than ours: has the store lost its data?", "theirs", above, "ours", l.epoch, "now", epoch)
	l.epoch, l.version = epoch, 0
}

// gather waits until every cluster has reported, so that the first plan rests
// on a whole view.
func (c *Control) gather(ctx context.Context) {
	deadline := time.Now().Add(gatherFor)
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

// leader is the state of one term.
type leader struct {
	*Control
	epoch, version uint64
	last           *fleet.Plan

	policy   policy.Policy
	policyOf config.Policy // what policy was made of
	memory   tick.Memory
	saved    time.Time // when the plan and what was learned were saved last

	savedDrained []string
	deadline     time.Time // when this tick's solve must have ended
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
	cfg := l.inForce()
	l.deadline = time.Now().Add(max(time.Duration(cfg.Policy.Tick)/2, leastSolve))
	if l.policy == nil || l.policyOf != cfg.Policy {
		l.policy, l.policyOf = tick.Policy(cfg.Policy, optimal.Options{Warm: true, Run: parallel, Expired: l.expired}), cfg.Policy
	}
	planes := l.reports.live(now)
	view := tick.View(cfg, planes, now)
	l.memory.Apply(view, planes, cfg.Policy.Name, now)
	plan, trouble := l.plan(view)
	snapshots := tick.Cut(cfg, view, plan, tick.Members(planes))
	old := l.state.Load()
	changed := old == nil || !tick.Same(old.snapshots, snapshots)
	if changed {
		l.version++
	}
	plan.Epoch, plan.Version, plan.Time = l.epoch, l.version, now
	for _, s := range snapshots {
		s.Epoch, s.Version, s.Time, s.GoodFor = l.epoch, l.version, now, time.Duration(cfg.Control.GoodFor)
	}
	if err := l.publisher.Publish(snapshots); err != nil {
		l.log.Error("plan not published; the last one stays in force", "error", err)
		return
	}
	l.last = plan
	l.state.Store(&State{Plan: plan, View: view, Published: now, TickTook: time.Since(now), Trouble: trouble, Forecasts: l.memory.Forecasts(), snapshots: snapshots})
	l.metrics.ticks.Observe(time.Since(now).Seconds())
	if changed {
		l.log.Debug("plan published", "epoch", l.epoch, "version", l.version, "gap", plan.Gap)
	}
	drained := l.drained.list()
	if changed || now.Sub(l.saved) > saveAfter || !slices.Equal(drained, l.savedDrained) {
		l.saved, l.savedDrained = now, drained
		if err := save(l.planPath, saved{plan, l.memory.Learned(), drained}); err != nil {
			l.log.Warn("plan not saved for the next leader", "error", err)
		}
	}
}

// plan asks the policy, and falls back to the last plan on the engines that
// live, which without a last plan is capacity-proportional.
func (l *leader) plan(view *fleet.View) (*fleet.Plan, string) {
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

// DataPlane is a data plane as the control plane sees it.
type DataPlane struct {
	Cluster  string  `json:"cluster"` // or @ and the region that it collects
	Instance string  `json:"instance"`
	Epoch    uint64  `json:"epoch"` // of the snapshot it routes by
	Version  uint64  `json:"version"`
	Age      float64 `json:"age_seconds"` // of its last report
	Refused  string  `json:"refused,omitempty"`
}

// DataPlanes lists the data planes that report, by cluster and instance.
func (c *Control) DataPlanes(now time.Time) []DataPlane {
	out := []DataPlane{}
	for _, p := range c.reports.live(now) {
		out = append(out, DataPlane{
			Cluster: p.Member(), Instance: p.Instance, Age: now.Sub(p.Received).Seconds(),
			Epoch: p.Applied.GetEpoch(), Version: p.Applied.GetVersion(), Refused: p.Applied.GetRefused(),
		})
	}
	return out
}
