package weights

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"

	"github.com/wardrop-lb/wardrop/api"
	"github.com/wardrop-lb/wardrop/fleet"
)

// Publisher serves snapshots to data planes. Safe for concurrent use.
type Publisher struct {
	server server.Server
	caches map[string]*cache.LinearCache // by type URL
	envoy  map[string]*nodeCache         // by type URL, for stock Envoy and gRPC clients

	mu          sync.Mutex
	rows        map[string]bool // names in the row cache
	subscribers map[int64]*Subscription
}

// Subscription is one connected data plane as the publisher sees it.
type Subscription struct {
	Cluster  string
	Instance string
	Refused  string // reason of the last NACK; empty after an ACK of the head
}

// NewPublisher starts with nothing to serve. ctx ends every stream.
func NewPublisher(ctx context.Context) *Publisher {
	p := &Publisher{
		caches:      map[string]*cache.LinearCache{},
		envoy:       map[string]*nodeCache{},
		rows:        map[string]bool{},
		subscribers: map[int64]*Subscription{},
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
	p.server = server.NewServer(ctx, mux, server.CallbackFuncs{
		// The header says at once that the stream is open, also while there is nothing to send.
		DeltaStreamOpenFunc:    func(ctx context.Context, _ int64, _ string) error { return grpc.SendHeader(ctx, nil) },
		StreamDeltaRequestFunc: p.onRequest,
		DeltaStreamClosedFunc:  p.onClosed,
	})
	return p
}

// Register adds the weight path to a gRPC server.
func (p *Publisher) Register(r grpc.ServiceRegistrar) {
	discovery.RegisterAggregatedDiscoveryServiceServer(r, p.server)
}

// Publish replaces what is served by the snapshots, one per cluster. Parts come
// before heads, so that a head never waits for its parts. A subscriber that is
// slow gets the newest when it asks next; nothing queues up.
func (p *Publisher) Publish(snapshots []*fleet.Snapshot) error {
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
	p.mu.Lock()
	defer p.mu.Unlock()
	var gone []string
	for name := range p.rows {
		if resources[api.RowType][name] == nil {
			gone = append(gone, name)
			delete(p.rows, name)
		}
	}
	for name := range resources[api.RowType] {
		p.rows[name] = true
	}
	for _, t := range []string{api.EngineType, api.RowType, api.HeadType} {
		var remove []string
		if t == api.RowType {
			remove = gone
		}
		if err := p.caches[t].UpdateResources(resources[t], remove); err != nil {
			return fmt.Errorf("publish %s: %w", t, err)
		}
	}
	return p.publishEnvoy(snapshots)
}

// publishEnvoy serves the same to stock Envoy and gRPC clients: clusters come before their
// endpoints, and those before what refers to them.
func (p *Publisher) publishEnvoy(snapshots []*fleet.Snapshot) error {
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

// Subscriptions lists the connected data planes, sorted by cluster and instance.
func (p *Publisher) Subscriptions() []Subscription {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Subscription, 0, len(p.subscribers))
	for _, s := range p.subscribers {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b Subscription) int {
		return strings.Compare(a.Cluster+"\x00"+a.Instance, b.Cluster+"\x00"+b.Instance)
	})
	return out
}

func (p *Publisher) onRequest(stream int64, r *discovery.DeltaDiscoveryRequest) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.subscribers[stream]
	if s == nil {
		s = &Subscription{}
		p.subscribers[stream] = s
	}
	if n := r.GetNode(); n != nil {
		s.Cluster, s.Instance = n.GetCluster(), n.GetId()
	}
	if e := r.GetErrorDetail(); e != nil {
		s.Refused = e.GetMessage()
	} else if r.GetTypeUrl() == api.HeadType && r.GetResponseNonce() != "" {
		s.Refused = ""
	}
	return nil
}

func (p *Publisher) onClosed(stream int64, _ *core.Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.subscribers, stream)
}
