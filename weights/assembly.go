package weights

import (
	"fmt"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/wardrop-lb/wardrop/api"
	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
)

// assembly collects the parts of a snapshot as they arrive. It outlives
// connections: what it holds need not be sent again.
type assembly struct {
	cluster string
	head    *pb.Head
	fresh   bool // the head came over the stream that is open
	parts   map[partKey]part
	names   map[string]map[string]string // type URL -> name -> version, for resuming
}

type partKey struct{ typeURL, name string }

type part struct {
	digest  uint64
	message proto.Message
}

func newAssembly(cluster string) *assembly {
	return &assembly{cluster: cluster, parts: map[partKey]part{}, names: map[string]map[string]string{
		api.HeadType: {}, api.EngineType: {}, api.RowType: {},
	}}
}

// add takes one response's resources. An error means that the response is not
// to be trusted; what was held before stays.
func (a *assembly) add(r *discovery.DeltaDiscoveryResponse) error {
	if a.names[r.GetTypeUrl()] == nil {
		return fmt.Errorf("unknown resource type %q", r.GetTypeUrl())
	}
	for _, res := range r.GetResources() {
		if err := a.addResource(r.GetTypeUrl(), res); err != nil {
			return fmt.Errorf("%s %q: %w", r.GetTypeUrl(), res.GetName(), err)
		}
	}
	for _, name := range r.GetRemovedResources() {
		delete(a.parts, partKey{r.GetTypeUrl(), name})
		delete(a.names[r.GetTypeUrl()], name)
	}
	return nil
}

func (a *assembly) addResource(typeURL string, res *discovery.Resource) error {
	raw := res.GetResource().GetValue()
	if typeURL == api.HeadType {
		var h pb.Head
		if err := proto.Unmarshal(raw, &h); err != nil {
			return err
		}
		if h.Cluster != a.cluster {
			return fmt.Errorf("the head is cluster %q's, not %q's", h.Cluster, a.cluster)
		}
		a.head, a.fresh = &h, true
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

// complete gives the snapshot that the head names, once every part is there with
// the digest that the head wants. A head that came before the stream that is open says
// nothing: the upstream may have begun anew.
func (a *assembly) complete() (*pb.Saved, bool) {
	if a.head == nil || !a.fresh {
		return nil, false
	}
	out := &pb.Saved{Head: a.head}
	for _, want := range a.head.Parts {
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

// wanted lists the rows that the head names and that are not in have.
func (a *assembly) wanted(have map[string]bool) (subscribe, unsubscribe []string) {
	named := map[string]bool{}
	for _, p := range a.head.GetParts() {
		if p.TypeUrl == api.RowType {
			named[p.Name] = true
			if !have[p.Name] {
				subscribe = append(subscribe, p.Name)
			}
		}
	}
	for name := range have {
		if !named[name] {
			unsubscribe = append(unsubscribe, name)
		}
	}
	return subscribe, unsubscribe
}
