package control

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/explain"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/guard"
	"github.com/wardrop-lb/wardrop/history"
	"github.com/wardrop-lb/wardrop/relay"
	"github.com/wardrop-lb/wardrop/signals"
	"github.com/wardrop-lb/wardrop/store"
	"github.com/wardrop-lb/wardrop/suppose"
	"github.com/wardrop-lb/wardrop/tick"
	"github.com/wardrop-lb/wardrop/weights"
)

// Options is what a control plane is made of.
type Options struct {
	Config *config.Config
	Store  store.Store
	// PlanPath is where the last plan is kept for the next leader; empty for
	// nowhere.
	PlanPath string
	// Peers reach the other members: whoever leads is followed and served on, also to clients
	// that know this member alone.
	Peers []grpc.ClientConnInterface
	// Name is this member's; SnapshotPath is the directory where what others plan is kept for
	// a member that leads next; empty for nowhere.
	Name         string
	SnapshotPath string
	// History keeps the plans of the last day; nil for the newest few in memory.
	History *history.History
	// Histories are those of the other members: what they have is taken in, so that it is here
	// when they are gone.
	Histories []history.Source
	Registry  prometheus.Registerer
	Log       *slog.Logger
}

// Control is a control plane. Safe for concurrent use.
type Control struct {
	options   Options
	store     store.Store
	planPath  string
	log       *slog.Logger
	metrics   *metrics
	publisher *weights.Publisher
	reports   *reports
	config    atomic.Pointer[config.Config]
	state     atomic.Pointer[State] // of the plan that this member made last
	changed   change
	overrides overrides
	leading   atomic.Bool
	started   time.Time
	stop      context.CancelFunc

	history  *history.History
	recorded chan *suppose.Record // to be written
	asking   chan struct{}        // turns of questions

	// Of Run alone, over all terms:
	last   *fleet.Plan
	memory tick.Memory
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
	// Hold is why the policy's plan is held back, so that the last one is in force; nil when
	// it is not.
	Hold *guard.Hold
	// Overrides are those that the plan keeps to, by key and value.
	Overrides map[string]string
	// Forecasts is the demand that was measured.
	Forecasts map[tick.Source]tick.Forecast
}

// Known is what was recorded with the plan, for its explanations.
func (s *State) Known() explain.Known {
	k := explain.Known{Overrides: s.Overrides, View: s.View}
	if s.Hold != nil {
		k.Hold = s.Hold.Reason
	}
	return k
}

// New makes a control plane that is not running yet.
func New(o Options) *Control {
	ctx, stop := context.WithCancel(context.Background())
	c := &Control{
		options: o, store: o.Store, planPath: o.PlanPath, log: o.Log, reports: newReports(),
		publisher: weights.NewPublisher(ctx), stop: stop, started: time.Now(),
		history: o.History, recorded: make(chan *suppose.Record, 4), asking: make(chan struct{}, asks),
	}
	if c.history == nil {
		c.history, _ = history.Open("", 0) // in memory: it cannot fail
	}
	c.config.Store(o.Config)
	c.metrics = newMetrics(c, o.Registry)
	return c
}

// Register adds the signal and weight paths to a gRPC server.
func (c *Control) Register(r grpc.ServiceRegistrar) {
	c.publisher.Register(r)
	pb.RegisterSignalsServer(r, &signals.Receiver{Log: c.log, Handle: func(report *pb.ReportRequest) {
		c.reports.add(report, time.Now())
	}})
}

// Reload replaces the configuration; the next tick uses it. Addresses and the
// store stay as they were.
func (c *Control) Reload(cfg *config.Config) { c.config.Store(cfg) }

// State is the plan that this member made last; nil before the first. It is in force while
// the member leads.
func (c *Control) State() *State { return c.state.Load() }

// Leading tells whether this member plans; who else does is what Leader says, as far as it
// is known.
func (c *Control) Leading() bool { return c.leading.Load() }

// Leader is the name of the member that plans; empty while none does, or it is the only one.
func (c *Control) Leader() string { return c.store.Leader() }

// Ready tells whether this member does its part: it has a plan, or stands by for one that
// leads.
func (c *Control) Ready() bool {
	return c.Leading() && c.State() != nil || !c.Leading() && c.Leader() != ""
}

// Run leads or stands by until ctx is done: it plans while it leads, and until then keeps a
// view as live as the leader's. It returns early only when it can never lead.
func (c *Control) Run(ctx context.Context) error {
	defer c.stop()
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	running.Go(func() { c.keepHistory(ctx) })
	for _, source := range c.options.Histories {
		running.Go(func() { c.followHistory(ctx, source) })
	}
	running.Go(func() { c.store.Watch(ctx, c.overrides.set) })
	last, err := load(c.planPath)
	if err != nil {
		c.log.Warn("starting without the last plan", "error", err)
	}
	c.last = last.Plan
	c.memory.Restore(last.Learned)
	c.memory.RestoreHeard(last.Heard, time.Now())
	peers, err := c.follow(ctx, &running)
	if err != nil {
		return err
	}
	for {
		term, err := c.standBy(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		c.goOn(peers)
		c.lead(ctx, term)
		if ctx.Err() != nil {
			return nil
		}
	}
}

// follow serves what the other members plan; nil where there are none.
func (c *Control) follow(ctx context.Context, running *sync.WaitGroup) (*relay.Relay, error) {
	if len(c.options.Peers) == 0 {
		return nil, nil
	}
	r, err := relay.New(relay.Options{
		Upstreams: c.options.Peers, Publisher: c.publisher, Instance: "member " + c.options.Name, Path: c.options.SnapshotPath, Log: c.log,
	})
	if err != nil {
		return nil, err
	}
	running.Go(func() { r.Run(ctx) })
	return r, nil
}

// goOn has the next term begin with the newest plan there is, of whoever made it.
func (c *Control) goOn(peers *relay.Relay) {
	if peers == nil {
		return
	}
	theirs := tick.Planned(peers.Snapshots())
	if theirs != nil && (c.last == nil || cmp.Or(cmp.Compare(theirs.Epoch, c.last.Epoch), cmp.Compare(theirs.Version, c.last.Version)) > 0) {
		c.last = theirs
	}
}

// standBy remembers what a leader would until this process leads.
func (c *Control) standBy(ctx context.Context) (store.Term, error) {
	type outcome struct {
		term store.Term
		err  error
	}
	ended := make(chan outcome, 1)
	go func() {
		term, err := c.store.Lead(ctx, 0)
		ended <- outcome{term, err}
	}()
	for {
		select {
		case o := <-ended:
			return o.term, o.err
		case <-time.After(time.Duration(c.config.Load().Policy.Tick)):
			now := time.Now()
			cfg, planes := c.inForce(now), c.reports.live(now)
			c.memory.Apply(tick.View(cfg, planes, now), planes, cfg.Policy.Name, now)
		}
	}
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

// Follower is connected to the weight path and reports nothing: a stock Envoy or gRPC client, a
// relay, a member that stands by. Or it has been turned away.
type Follower struct {
	Kind      string  `json:"kind"` // "stock", "relay" (members follow as relays do) or "turned away"
	Cluster   string  `json:"cluster,omitempty"`
	Instance  string  `json:"instance"`
	Wire      int     `json:"wire,omitempty"`  // version of the wire that it speaks; 0 of stock clients
	Epoch     uint64  `json:"epoch,omitempty"` // of the newest snapshot that it has acknowledged
	Version   uint64  `json:"version,omitempty"`
	Refused   string  `json:"refused,omitempty"` // why it refused that, or was turned away
	Connected float64 `json:"connected_seconds"`
}

// Followers lists who is connected to this member's weight path and is no data plane.
func (c *Control) Followers(now time.Time) []Follower {
	out := []Follower{}
	for _, s := range c.publisher.Subscriptions() {
		f := Follower{"", s.Cluster, s.Instance, s.Wire, s.Epoch, s.Version, s.Refused, now.Sub(s.Since).Seconds()}
		switch {
		case !s.Connected:
			f.Kind = "turned away"
		case s.Wire == 0:
			f.Kind = "stock"
		case s.Cluster == "":
			f.Kind = "relay"
		default:
			continue // its reports say more
		}
		out = append(out, f)
	}
	return out
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
