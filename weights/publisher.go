package weights

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"

	"github.com/wardrop-lb/wardrop/api"
	"github.com/wardrop-lb/wardrop/fleet"
)

// Publisher serves snapshots to data planes, relays and stock clients. Safe for concurrent use.
type Publisher struct {
	wire          int // that it speaks
	server        server.Server
	board         *board
	subscriptions *subscriptions

	mu     sync.Mutex
	served map[string]*fleet.Snapshot // by cluster
	wire1  *wire1                     // nil while nobody speaks it
	stock  *stock
}

// ErrOlder reports snapshots that were not published, for newer ones of their clusters are
// served already.
var ErrOlder = errors.New("older than what is published")

// NewPublisher starts with nothing to serve. ctx ends every stream.
func NewPublisher(ctx context.Context) *Publisher { return newPublisher(ctx, api.Wire) }

func newPublisher(ctx context.Context, wire int) *Publisher {
	p := &Publisher{
		wire: wire, board: newBoard(wire), subscriptions: newSubscriptions(wire),
		served: map[string]*fleet.Snapshot{}, stock: &stock{clusters: map[string]*stockCluster{}},
	}
	p.server = server.NewServer(ctx, (*desk)(p), p.subscriptions.callbacks())
	return p
}

// Register adds the weight path to a gRPC server, which wants ServerOptions.
func (p *Publisher) Register(r grpc.ServiceRegistrar) {
	discovery.RegisterAggregatedDiscoveryServiceServer(r, p.server)
}

// Subscriptions lists the connected clients, by cluster and instance, and those that were
// turned away in the last minute.
func (p *Publisher) Subscriptions() []Subscription { return p.subscriptions.list() }

// Publish replaces what is served by the snapshots, one per cluster. A subscriber that is
// slow gets the newest when it asks next; nothing queues up.
//
// A snapshot of a lower epoch or version than the one of its cluster that is served is left
// out, and the error is ErrOlder then: whoever leads no more publishes nothing.
func (p *Publisher) Publish(snapshots []*fleet.Snapshot) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range snapshots {
		if err := p.check(s); err != nil {
			return err
		}
	}
	next, older := p.newest(snapshots)
	p.board.set(next)
	if p.wire1 != nil && !p.subscriptions.speaks(1) {
		p.wire1 = nil
	}
	if p.wire1 != nil {
		if err := p.wire1.set(next); err != nil {
			return err
		}
	}
	if err := p.stock.set(next); err != nil {
		return err
	}
	p.served = next
	if older != nil {
		return fmt.Errorf("%w: %s", ErrOlder, strings.Join(older, ", "))
	}
	return nil
}

// check refuses what could not be sent.
func (p *Publisher) check(s *fleet.Snapshot) error {
	names := []string{s.Cluster}
	for i := range s.Rows {
		names = append(names, s.Rows[i].Model)
	}
	if old := p.served[s.Cluster]; old == nil || !slices.EqualFunc(old.Engines, s.Engines, fleet.SnapshotEngine.Equal) {
		for i := range s.Engines {
			e := &s.Engines[i]
			names = append(names, e.Name, e.Region, e.URL, e.Kind, e.Protocol, e.Collector, e.Metrics)
			for signal, list := range e.Names {
				names = append(append(names, signal), list...)
			}
		}
	}
	for _, n := range append(names, s.Planes...) {
		if !utf8.ValidString(n) {
			return fmt.Errorf("the snapshot of %q names %q, which is not UTF-8", s.Cluster, n)
		}
	}
	for i := range s.Rows {
		for _, t := range s.Rows[i].Targets {
			if t.Engine < 0 || int(t.Engine) >= len(s.Engines) {
				return fmt.Errorf("the snapshot of %q: row %q: unknown engine %d of %d", s.Cluster, s.Rows[i].Model, t.Engine, len(s.Engines))
			}
		}
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

// desk directs clients to what serves them.
type desk Publisher

var _ cache.Cache = (*desk)(nil)

// wireOf is what a client says that it speaks; 0 if it does not.
func wireOf(n *core.Node) int { return int(n.GetMetadata().GetFields()[api.WireKey].GetNumberValue()) }

func ours(typeURL string) bool { return slices.Contains(wire1Types, typeURL) }

// of finds what serves a request.
func (d *desk) of(typeURL string, node *core.Node) (cache.ConfigWatcher, error) {
	if !ours(typeURL) {
		return d.stockOf(typeURL, node.GetCluster())
	}
	spoken, err := api.Spoken(d.wire, wireOf(node))
	if err != nil {
		return nil, err
	}
	if spoken > 1 {
		if typeURL != api.HeadType {
			return nil, fmt.Errorf("%s comes with the head", typeURL)
		}
		return d.board, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.wire1 == nil {
		d.wire1 = newWire1(d.wire)
		if err := d.wire1.set(d.served); err != nil {
			return nil, err
		}
	}
	return d.wire1.caches[typeURL], nil
}

func (d *desk) stockOf(typeURL, cluster string) (cache.ConfigWatcher, error) {
	if !slices.Contains(envoyTypes, typeURL) {
		return nil, fmt.Errorf("there are no resources of type %s", typeURL)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	c, err := d.stock.find(cluster, d.served[cluster])
	if err != nil {
		return nil, err
	}
	return c.caches[typeURL], nil
}

// CreateWatch implements cache.Cache.
func (d *desk) CreateWatch(r *cache.Request, sub cache.Subscription, out chan cache.Response) (func(), error) {
	c, err := d.of(r.GetTypeUrl(), r.GetNode())
	if err != nil {
		return nil, err
	}
	return c.CreateWatch(r, sub, out)
}

// CreateDeltaWatch implements cache.Cache.
func (d *desk) CreateDeltaWatch(r *cache.DeltaRequest, sub cache.Subscription, out chan cache.DeltaResponse) (func(), error) {
	c, err := d.of(r.GetTypeUrl(), r.GetNode())
	if err != nil {
		return nil, err
	}
	return c.CreateDeltaWatch(r, sub, out)
}

// Fetch implements cache.Cache.
func (d *desk) Fetch(context.Context, *discovery.DiscoveryRequest) (cache.Response, error) {
	return nil, errors.New("resources are served over streams alone")
}
