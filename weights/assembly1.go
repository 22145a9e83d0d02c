package weights

import (
	"fmt"
	"maps"
	"slices"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/wardrop-lb/wardrop/api"
	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/fleet"
)

// assembly collects the parts of an upstream's snapshots as they arrive. It outlives
// streams: what it holds need not be sent again.
type assembly interface {
	// add takes a response, and tells which clusters are no more. An error means that the
	// response is not to be trusted.
	add(r *discovery.DeltaDiscoveryResponse) (gone []string, err error)
	// broken forgets that heads came, with the stream that they came over: the upstream may
	// begin anew.
	broken()
	// whole gives the candidates of heads that came over the stream that is open, once all
	// their parts are there, by cluster.
	whole() []*candidate
	// held are the versions of a type's resources that are there, by name.
	held(typeURL string) map[string]string
}

// assembly1 is that of wire 1: parts arrive by type, in any order.
type assembly1 struct {
	cluster string // whose head alone may come; empty for any
	heads   map[string]*head
	parts   map[partKey]part
	names   map[string]map[string]string // type URL -> name -> version, for resuming
}

type head struct {
	*pb.Head
	fresh     bool // it came over the stream that is open
	candidate *candidate
}

type partKey struct{ typeURL, name string }

type part struct {
	digest  uint64
	message proto.Message
}

func newAssembly1(cluster string) *assembly1 {
	return &assembly1{cluster: cluster, heads: map[string]*head{}, parts: map[partKey]part{}, names: map[string]map[string]string{
		api.HeadType: {}, api.EngineType: {}, api.RowType: {},
	}}
}

func (a *assembly1) add(r *discovery.DeltaDiscoveryResponse) (gone []string, err error) {
	if a.names[r.GetTypeUrl()] == nil {
		return nil, fmt.Errorf("unknown resource type %q", r.GetTypeUrl())
	}
	for _, res := range r.GetResources() {
		if err := a.addResource(r.GetTypeUrl(), res); err != nil {
			return nil, fmt.Errorf("%s %q: %w", r.GetTypeUrl(), res.GetName(), err)
		}
	}
	for _, name := range r.GetRemovedResources() {
		if r.GetTypeUrl() == api.HeadType {
			delete(a.heads, name)
			gone = append(gone, name)
		}
		delete(a.parts, partKey{r.GetTypeUrl(), name})
		delete(a.names[r.GetTypeUrl()], name)
	}
	return gone, nil
}

func (a *assembly1) addResource(typeURL string, res *discovery.Resource) error {
	raw := res.GetResource().GetValue()
	if typeURL == api.HeadType {
		h := &head{&pb.Head{}, true, nil}
		if err := proto.Unmarshal(raw, h.Head); err != nil {
			return err
		}
		if h.Cluster != res.GetName() || a.cluster != "" && h.Cluster != a.cluster {
			return fmt.Errorf("the head is cluster %q's, not %q's", h.Cluster, res.GetName())
		}
		a.heads[h.Cluster] = h
	} else {
		var m proto.Message = &pb.Row{}
		if typeURL == api.EngineType {
			m = &pb.EngineTable{}
		}
		if err := proto.Unmarshal(raw, m); err != nil {
			return err
		}
		a.parts[partKey{typeURL, res.GetName()}] = part{api.Digest(raw), m}
	}
	a.names[typeURL][res.GetName()] = res.GetVersion()
	return nil
}

func (a *assembly1) broken() {
	for _, h := range a.heads {
		h.fresh = false
	}
}

func (a *assembly1) held(typeURL string) map[string]string { return a.names[typeURL] }

func (a *assembly1) whole() (out []*candidate) {
	for _, cluster := range slices.Sorted(maps.Keys(a.heads)) {
		h := a.heads[cluster]
		if h.candidate == nil && h.fresh {
			h.candidate = a.complete(h)
		}
		if h.candidate != nil && h.fresh {
			out = append(out, h.candidate)
		}
	}
	return out
}

// complete gives the snapshot that a head names, once every part is there with the digest that
// the head wants; nil before.
func (a *assembly1) complete(h *head) *candidate {
	p := &pb.Saved{Head: h.Head}
	for _, want := range h.Parts {
		got, ok := a.parts[partKey{want.TypeUrl, want.Name}]
		if !ok || got.digest != want.Digest {
			return nil
		}
		switch m := got.message.(type) {
		case *pb.EngineTable:
			p.Engines = m
		case *pb.Row:
			p.Rows = append(p.Rows, m)
		}
	}
	return newCandidate(h.Head, func() (*fleet.Snapshot, error) { return api.DecodeSnapshot(p) })
}

// wanted lists the rows that the heads name and that are not in have, and what nobody names any
// more.
func (a *assembly1) wanted(have map[string]bool) (subscribe, unsubscribe []string) {
	named := map[string]bool{}
	for _, h := range a.heads {
		for _, p := range h.Parts {
			if p.TypeUrl == api.RowType {
				named[p.Name] = true
				if !have[p.Name] {
					subscribe = append(subscribe, p.Name)
				}
			}
		}
	}
	for name := range have {
		if !named[name] {
			unsubscribe = append(unsubscribe, name)
		}
	}
	slices.Sort(subscribe)
	return subscribe, unsubscribe
}
