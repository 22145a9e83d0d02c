package weights

import (
	"errors"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"google.golang.org/protobuf/proto"

	"github.com/wardrop-lb/wardrop/fleet"
)

// stock serves stock Envoy and gRPC clients, by the cluster that a client's node names, so that
// one which asks for all there is gets that of its own cluster. What nobody asks for is not
// made.
type stock struct {
	clusters map[string]*stockCluster
}

type stockCluster struct {
	caches map[string]*cache.LinearCache        // by type URL
	served map[string]map[string]types.Resource // by type URL and name
}

// maxClusters bounds the clusters that clients may name before there are such.
const maxClusters = 4096

var errClusters = errors.New("too many clusters are asked for that do not exist")

// find is what a cluster's clients are served, from its snapshot, which may be nil, on.
func (s *stock) find(cluster string, snapshot *fleet.Snapshot) (*stockCluster, error) {
	c := s.clusters[cluster]
	if c != nil {
		return c, nil
	}
	if len(s.clusters) >= maxClusters {
		return nil, errClusters
	}
	c = &stockCluster{caches: map[string]*cache.LinearCache{}, served: map[string]map[string]types.Resource{}}
	for _, t := range envoyTypes {
		c.caches[t] = cache.NewLinearCache(t)
	}
	s.clusters[cluster] = c
	if snapshot != nil {
		return c, c.set(snapshot)
	}
	return c, nil
}

// set replaces what is served of the clusters that somebody asked for.
func (s *stock) set(snapshots map[string]*fleet.Snapshot) error {
	for cluster, c := range s.clusters {
		if snapshot := snapshots[cluster]; snapshot != nil {
			if err := c.set(snapshot); err != nil {
				return err
			}
		}
	}
	return nil
}

// set replaces what a cluster's clients get: clusters come before their endpoints, and those
// before what refers to them. What has not changed is not sent again.
func (c *stockCluster) set(snapshot *fleet.Snapshot) error {
	resources := envoyResources(snapshot)
	for _, t := range envoyTypes {
		changed := map[string]types.Resource{}
		for name, r := range resources[t] {
			if old := c.served[t][name]; old == nil || !proto.Equal(old, r) {
				changed[name] = r
			}
		}
		var gone []string
		for name := range c.served[t] {
			if resources[t][name] == nil {
				gone = append(gone, name)
			}
		}
		c.served[t] = resources[t]
		if len(changed)+len(gone) == 0 {
			continue
		}
		if err := c.caches[t].UpdateResources(changed, gone); err != nil {
			return err
		}
	}
	return nil
}
