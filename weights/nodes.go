package weights

import (
	"context"
	"errors"
	"sync"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"google.golang.org/protobuf/proto"
)

// nodeCache serves the resources of one type by the cluster that a client's node names, so that
// one which asks for all there is gets those of its own cluster. Safe for concurrent use.
type nodeCache struct {
	typeURL string

	mu    sync.Mutex
	nodes map[string]*node
}

type node struct {
	cache  *cache.LinearCache
	served map[string]types.Resource
}

var _ cache.Cache = (*nodeCache)(nil)

func newNodeCache(typeURL string) *nodeCache {
	return &nodeCache{typeURL: typeURL, nodes: map[string]*node{}}
}

// maxNodes bounds the clusters that clients may name before there are such.
const maxNodes = 4096

var errNodes = errors.New("too many clusters are asked for that do not exist")

// of is a cluster's; nil when there are too many.
func (c *nodeCache) of(cluster string) *node {
	n := c.nodes[cluster]
	if n == nil && len(c.nodes) < maxNodes {
		n = &node{cache: cache.NewLinearCache(c.typeURL), served: map[string]types.Resource{}}
		c.nodes[cluster] = n
	}
	return n
}

func (c *nodeCache) find(cluster string) (*cache.LinearCache, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.of(cluster); n != nil {
		return n.cache, nil
	}
	return nil, errNodes
}

// set replaces what a cluster's clients get. What has not changed is not sent again.
func (c *nodeCache) set(cluster string, resources map[string]types.Resource) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.of(cluster)
	if n == nil {
		return errNodes
	}
	changed := map[string]types.Resource{}
	for name, r := range resources {
		if old := n.served[name]; old == nil || !proto.Equal(old, r) {
			changed[name] = r
		}
	}
	var gone []string
	for name := range n.served {
		if resources[name] == nil {
			gone = append(gone, name)
		}
	}
	n.served = resources
	if len(changed) == 0 && len(gone) == 0 {
		return nil
	}
	return n.cache.UpdateResources(changed, gone)
}

// CreateWatch implements cache.Cache.
func (c *nodeCache) CreateWatch(r *cache.Request, sub cache.Subscription, out chan cache.Response) (func(), error) {
	n, err := c.find(r.GetNode().GetCluster())
	if err != nil {
		return nil, err
	}
	return n.CreateWatch(r, sub, out)
}

// CreateDeltaWatch implements cache.Cache.
func (c *nodeCache) CreateDeltaWatch(r *cache.DeltaRequest, sub cache.Subscription, out chan cache.DeltaResponse) (func(), error) {
	n, err := c.find(r.GetNode().GetCluster())
	if err != nil {
		return nil, err
	}
	return n.CreateDeltaWatch(r, sub, out)
}

// Fetch implements cache.Cache.
func (c *nodeCache) Fetch(ctx context.Context, r *discovery.DiscoveryRequest) (cache.Response, error) {
	n, err := c.find(r.GetNode().GetCluster())
	if err != nil {
		return nil, err
	}
	return n.Fetch(ctx, r)
}
