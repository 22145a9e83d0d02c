package weights

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"

	"github.com/wardrop-lb/wardrop/api"
	"github.com/wardrop-lb/wardrop/fleet"
)

// Publisher serves snapshots to data planes, relays and stock clients. Safe for concurrent use.
type Publisher struct {
	server        server.Server
	caches        map[string]*cache.LinearCache // by type URL
	envoy         map[string]*nodeCache         // by type URL, for stock Envoy and gRPC clients
	subscriptions *subscriptions

	mu     sync.Mutex
	served map[string]*fleet.Snapshot // by cluster
	rows   map[string]bool            // names in the row cache
}

// ErrOlder reports snapshots that were not published, for newer ones of their clusters are
// served already.
var ErrOlder = errors.New("older than what is published")

// NewPublisher starts with nothing to serve. ctx ends every stream.
func NewPublisher(ctx context.Context) *Publisher {
	p := &Publisher{
		caches:        map[string]*cache.LinearCache{},
		envoy:         map[string]*nodeCache{},
		subscriptions: newSubscriptions(),
		served:        map[string]*fleet.Snapshot{},
		rows:          map[string]bool{},
	}
	mux := &cache.MuxCache{
		Classify:      func(r *cache.Request) string { return r.GetTypeUrl() },
		ClassifyDelta: func(r *cache.DeltaRequest) string { return r.GetTypeUrl() },
		Caches:        map[string]cache.Cache{},
	}
	for _, t := range []string{api.HeadType, api.EngineType, api.RowType} {
		p.caches[t] = cache.NewLinearCache(t)
		mux.Caches[t] = p.caches[t]
	}
	for _, t := range envoyTypes {
		p.envoy[t] = newNodeCache(t)
		mux.Caches[t] = p.envoy[t]
	}
	p.server = server.NewServer(ctx, mux, p.subscriptions.callbacks())
	return p
}

// Register adds the weight path to a gRPC server.
func (p *Publisher) Register(r grpc.ServiceRegistrar) {
	discovery.RegisterAggregatedDiscoveryServiceServer(r, p.server)
}

// Subscriptions lists the connected clients, by cluster and instance.
func (p *Publisher) Subscriptions() []Subscription { return p.subscriptions.list() }

// Publish replaces what is served by the snapshots, one per cluster. Parts come
// before heads, so that a head never waits for its parts. A subscriber that is
// slow gets the newest when it asks next; nothing queues up.
//
// A snapshot of a lower epoch or version than the one of its cluster that is served is left
// out, and the error is ErrOlder then: whoever leads no more publishes nothing.
func (p *Publisher) Publish(snapshots []*fleet.Snapshot) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	next, older := p.newest(snapshots)
	if err := p.publish(next); err != nil {
		return err
	}
	p.served = next
	if older != nil {
		return fmt.Errorf("%w: %s", ErrOlder, strings.Join(older, ", "))
	}
	return nil
}

// newest is what is to be served: of each cluster the newer snapshot. Clusters that are not
// among what is published are no more, unless what is served of them is newer than all of it.
func (p *Publisher) newest(snapshots []*fleet.Snapshot) (next map[string]*fleet.Snapshot, older []string) {
	next = make(map[string]*fleet.Snapshot, len(snapshots))
	var top *fleet.Snapshot
	for _, s := range snapshots {
		if top == nil || isOlder(top, s) {
			top = s
		}
		next[s.Cluster] = s
		if old := p.served[s.Cluster]; old != nil && isOlder(s, old) {
			next[s.Cluster] = old
			older = append(older, fmt.Sprintf("epoch %d version %d of %s", s.Epoch, s.Version, s.Cluster))
		}
	}
	for cluster, old := range p.served {
		if next[cluster] == nil && (top == nil || isOlder(top, old)) {
			next[cluster] = old
		}
	}
	return next, older
}

func isOlder(a, b *fleet.Snapshot) bool {
	return a.Epoch < b.Epoch || a.Epoch == b.Epoch && a.Version < b.Version
}

func (p *Publisher) publish(snapshots map[string]*fleet.Snapshot) error {
	resources := map[string]map[string]types.Resource{api.HeadType: {}, api.EngineType: {}, api.RowType: {}}
	for _, s := range snapshots {
		enc, err := api.EncodeSnapshot(s)
		if err != nil {
			return err
		}
		resources[api.EngineType][api.EngineTableName] = enc.Engines
		resources[api.HeadType][s.Cluster] = enc.Head
		for _, r := range enc.Rows {
			resources[api.RowType][api.RowName(r.Cluster, r.Model)] = r
		}
	}
	gone := map[string][]string{}
	for name := range p.rows {
		if resources[api.RowType][name] == nil {
			gone[api.RowType] = append(gone[api.RowType], name)
			delete(p.rows, name)
		}
	}
	for name := range resources[api.RowType] {
		p.rows[name] = true
	}
	for cluster := range p.served {
		if snapshots[cluster] == nil {
			gone[api.HeadType] = append(gone[api.HeadType], cluster)
		}
	}
	for _, t := range []string{api.EngineType, api.RowType, api.HeadType} {
		if err := p.caches[t].UpdateResources(resources[t], gone[t]); err != nil {
			return fmt.Errorf("publish %s: %w", t, err)
		}
	}
	return p.publishEnvoy(snapshots)
}

// publishEnvoy serves the same to stock Envoy and gRPC clients: clusters come before their
// endpoints, and those before what refers to them.
func (p *Publisher) publishEnvoy(snapshots map[string]*fleet.Snapshot) error {
	for _, s := range snapshots {
		resources := envoyResources(s)
		for _, t := range envoyTypes {
			if err := p.envoy[t].set(s.Cluster, resources[t]); err != nil {
				return fmt.Errorf("publish %s: %w", t, err)
			}
		}
	}
	return nil
}
