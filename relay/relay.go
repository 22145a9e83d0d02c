package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/signals"
	"github.com/wardrop-lb/wardrop/weights"
)

// Options is what a Relay is made of.
type Options struct {
	// Upstreams reach the members of the control plane, or other relays.
	Upstreams []grpc.ClientConnInterface
	// Publisher serves what comes; nil for one of the relay's own. It may serve snapshots of
	// its owner's too: the newer count.
	Publisher *weights.Publisher
	// Clusters are those that are followed; empty for all.
	Clusters []string
	Instance string // names the relay to its upstreams
	// Path is the directory of the saved snapshots; empty for nowhere.
	Path string
	// Reports has the relay pass reports on; without it only snapshots are.
	Reports  bool
	Registry prometheus.Registerer // nil for no metrics
	Log      *slog.Logger
}

// Relay passes snapshots down and reports up. Safe for concurrent use.
type Relay struct {
	options    Options
	stop       context.CancelFunc // of the publisher, if it is the relay's own
	subscriber *weights.Subscriber
	forwarder  *signals.Forwarder

	mu       sync.Mutex
	inForce  map[string]*fleet.Snapshot // by cluster
	refusing bool                       // the publisher, and the log said so
}

// New makes a relay, and publishes what is saved on disk. A file that cannot be trusted is set
// aside with a warning.
func New(o Options) (*Relay, error) {
	stop := func() {}
	if o.Publisher == nil {
		var ctx context.Context
		ctx, stop = context.WithCancel(context.Background())
		o.Publisher = weights.NewPublisher(ctx)
	}
	r := &Relay{options: o, stop: stop, inForce: map[string]*fleet.Snapshot{}, forwarder: &signals.Forwarder{Conns: o.Upstreams, Log: o.Log}}
	r.subscriber = &weights.Subscriber{
		Only: o.Clusters, Instance: o.Instance, Conns: o.Upstreams, Path: o.Path, Log: o.Log,
		Apply: r.apply, Gone: r.gone, Done: r.publish,
	}
	err := r.subscriber.Restore()
	if errors.Is(err, weights.ErrSetAside) {
		o.Log.Warn("starting without some of the saved snapshots", "error", err)
	} else if err != nil {
		stop()
		return nil, fmt.Errorf("read the saved snapshots: %w", err)
	}
	if o.Registry != nil {
		o.Registry.MustRegister((*collector)(r))
	}
	return r, nil
}

// Register adds the weight path and the signal path to a gRPC server.
func (r *Relay) Register(server grpc.ServiceRegistrar) {
	r.options.Publisher.Register(server)
	pb.RegisterSignalsServer(server, &signals.Receiver{Handle: r.forwarder.Handle, Log: r.options.Log})
}

// Run relays until ctx is done. It may be called once.
func (r *Relay) Run(ctx context.Context) {
	defer r.stop()
	var wg sync.WaitGroup
	wg.Go(func() { r.subscriber.Run(ctx) })
	if r.options.Reports {
		wg.Go(func() { r.forwarder.Run(ctx) })
	}
	wg.Wait()
}

// Ready reports whether there is a snapshot to serve.
func (r *Relay) Ready() bool { return len(r.subscriber.Places()) > 0 }

// Snapshots are those in force, in no order. They are not to be changed.
func (r *Relay) Snapshots() []*fleet.Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.inForce))
}

func (r *Relay) apply(s *fleet.Snapshot) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inForce[s.Cluster] = s
	return nil
}

func (r *Relay) gone(cluster string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.inForce, cluster)
}

// publish serves what is in force. The publisher may know newer snapshots, of its owner who
// leads: they stay.
func (r *Relay) publish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.options.Publisher.Publish(slices.Collect(maps.Values(r.inForce)))
	if err != nil && !r.refusing {
		r.options.Log.Warn("what came from upstream is not served", "error", err)
	}
	r.refusing = err != nil
}

// Status is a relay at a glance.
type Status struct {
	Clusters  []Cluster  `json:"clusters"`
	Upstreams []Upstream `json:"upstreams"`
	Clients   []Client   `json:"clients"`
	// Reporting is how many instances send reports.
	Reporting int `json:"reporting"`
}

// Cluster is a snapshot that is served.
type Cluster struct {
	Cluster string  `json:"cluster"` // or @ and a region: what its collectors are told
	Epoch   uint64  `json:"epoch"`
	Version uint64  `json:"version"`
	Age     float64 `json:"age_seconds"` // since it was published, by the leader's clock
	// Refused is why the newest from upstream is not served instead.
	Refused string `json:"refused,omitempty"`
}

// Upstream is a member of the control plane, or another relay.
type Upstream struct {
	Name      string `json:"name"`
	Connected bool   `json:"connected"`
}

// Client is one that is served.
type Client struct {
	Cluster  string `json:"cluster"` // empty: a relay
	Instance string `json:"instance"`
	Wire     int    `json:"wire"`  // that it speaks; 0: a stock Envoy or gRPC client
	Epoch    uint64 `json:"epoch"` // of the snapshot that it acknowledged last
	Version  uint64 `json:"version"`
	// Refused is why it refused the newest, or was turned away if it is not connected.
	Refused   string  `json:"refused,omitempty"`
	Connected bool    `json:"connected"`
	Since     float64 `json:"since_seconds"`
}

// Status tells how the relay is.
func (r *Relay) Status(now time.Time) Status {
	s := Status{Clusters: []Cluster{}, Upstreams: []Upstream{}, Clients: []Client{}, Reporting: r.forwarder.Instances(now)}
	for _, p := range r.subscriber.Places() {
		s.Clusters = append(s.Clusters, Cluster{p.Cluster, p.Epoch, p.Version, now.Sub(p.Published).Seconds(), p.Refused})
	}
	for _, u := range r.subscriber.Upstreams() {
		s.Upstreams = append(s.Upstreams, Upstream(u))
	}
	for _, c := range r.options.Publisher.Subscriptions() {
		s.Clients = append(s.Clients, Client{c.Cluster, c.Instance, c.Wire, c.Epoch, c.Version, c.Refused, c.Connected, now.Sub(c.Since).Seconds()})
	}
	return s
}
