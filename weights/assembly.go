package weights

import (
	"fmt"
	"slices"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/wardrop-lb/wardrop/api"
	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
)

// assembly collects the parts of an upstream's snapshots as they arrive. It outlives
// streams: what it holds need not be sent again.
type assembly struct {
	cluster string // whose head alone may come; empty for any
	heads   map[string]*head
	parts   map[partKey]part
	names   map[string]map[string]string // type URL -> name -> version, for resuming
}

type head struct {
	*pb.Head
	fresh bool // it came over the stream that is open
}

type partKey struct{ typeURL, name string }

type part struct {
	digest  uint64
	message proto.Message
}

func newAssembly(cluster string) *assembly {
	return &assembly{cluster: cluster, heads: map[string]*head{}, parts: map[partKey]part{}, names: map[string]map[string]string{
		api.HeadType: {}, api.EngineType: {}, api.RowType: {},
	}}
}

// add takes one response's resources, and tells which clusters are no more. An error means that
// the response is not to be trusted; what was held before stays.
func (a *assembly) add(r *discovery.DeltaDiscoveryResponse) (gone []string, err error) {
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

func (a *assembly) addResource(typeURL string, res *discovery.Resource) error {
	raw := res.GetResource().GetValue()
	if typeURL == api.HeadType {
		h := &head{&pb.Head{}, true}
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

// broken forgets that heads came, with the stream that they came over: the upstream may begin
// anew.
func (a *assembly) broken() {
	for _, h := range a.heads {
		h.fresh = false
	}
}

// complete gives a snapshot that a head names, once every part is there with the digest that
// the head wants.
func (a *assembly) complete(h *head) (*pb.Saved, bool) {
	if !h.fresh {
		return nil, false
	}
	out := &pb.Saved{Head: h.Head}
	for _, want := range h.Parts {
		p, ok := a.parts[partKey{want.TypeUrl, want.Name}]
		if !ok || p.digest != want.Digest {
			return nil, false
		}
		switch m := p.message.(type) {
		case *pb.EngineTable:
			out.Engines = m
		case *pb.Row:
			out.Rows = append(out.Rows, m)
		}
	}
	return out, true
}

// wanted lists the rows that the heads name and that are not in have, and what nobody names any
// more.
func (a *assembly) wanted(have map[string]bool) (subscribe, unsubscribe []string) {
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
