package weights

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/stream/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/wardrop-lb/wardrop/api"
	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/fleet"
)

// offline is a subscriber without a stream, its upstream, and how often it applied.
func offline() (s *Subscriber, u *upstream, applied *int) {
	applied = new(int)
	s = &Subscriber{Cluster: "c", Log: slog.New(slog.DiscardHandler), Apply: func(*fleet.Snapshot) error {
		*applied++
		return nil
	}}
	u = s.newUpstream(nil, 0)
	s.upstreams = []*upstream{u}
	return s, u, applied
}

// responses are a whole snapshot as an upstream sends it that speaks a wire.
func responses(t require.TestingT, wire int, s *fleet.Snapshot) []*discovery.DeltaDiscoveryResponse {
	if wire > 1 {
		b := newBoard(wire)
		b.set(map[string]*fleet.Snapshot{s.Cluster: s})
		sub := stream.NewDeltaSubscription([]string{s.Cluster}, nil, nil, false)
		r, err := b.respond(&boardWatch{sub: sub}).GetDeltaDiscoveryResponse()
		require.NoError(t, err)
		return []*discovery.DeltaDiscoveryResponse{r}
	}
	saved, err := api.EncodeSnapshot(s)
	require.NoError(t, err)
	saved.Head.Wire = 0
	out := []*discovery.DeltaDiscoveryResponse{
		{TypeUrl: api.HeadType, Resources: []*discovery.Resource{resource(t, s.Cluster, saved.Head)}},
		{TypeUrl: api.EngineType, Resources: []*discovery.Resource{resource(t, api.EngineTableName, saved.Engines)}},
		{TypeUrl: api.RowType},
	}
	for _, r := range saved.Rows {
		out[2].Resources = append(out[2].Resources, resource(t, api.RowName(r.Cluster, r.Model), r))
	}
	return out
}

func resource(t require.TestingT, name string, m proto.Message) *discovery.Resource {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	require.NoError(t, err)
	return &discovery.Resource{Name: name, Resource: &anypb.Any{Value: b}}
}

// TestIncompleteResponses: whatever fields a response lacks, nothing is applied
// that was not sent whole, and nothing breaks.
func TestIncompleteResponses(t *testing.T) {
	for name, r := range map[string]*discovery.DeltaDiscoveryResponse{
		"nothing":                   {},
		"no type":                   {Resources: []*discovery.Resource{{Name: "c"}}},
		"unknown type":              {TypeUrl: "type.googleapis.com/other"},
		"no resources":              {TypeUrl: api.HeadType},
		"no content":                {TypeUrl: api.HeadType, Resources: []*discovery.Resource{{Name: "c"}}},
		"a nameless engine table":   {TypeUrl: api.EngineType, Resources: []*discovery.Resource{{}}},
		"an empty row":              {TypeUrl: api.RowType, Resources: []*discovery.Resource{{Name: "c/m"}}},
		"no protobuf":               {TypeUrl: api.RowType, Resources: []*discovery.Resource{{Name: "c/m", Resource: &anypb.Any{Value: []byte{0xff}}}}},
		"a head without parts":      {TypeUrl: api.HeadType, Resources: []*discovery.Resource{resource(t, "c", &pb.Head{Cluster: "c", Epoch: 1})}},
		"the same of wire 2":        {TypeUrl: api.HeadType, Resources: []*discovery.Resource{resource(t, "c", &pb.Head{Cluster: "c", Epoch: 1, Wire: 2})}},
		"another cluster's head":    {TypeUrl: api.HeadType, Resources: []*discovery.Resource{resource(t, "c", &pb.Head{Cluster: "d", Epoch: 1, Wire: 2})}},
		"parts without names":       {TypeUrl: api.HeadType, Resources: []*discovery.Resource{resource(t, "c", &pb.Head{Cluster: "c", Parts: []*pb.Part{{}, {TypeUrl: api.RowType}}})}},
		"parts that did not come":   {TypeUrl: api.HeadType, Resources: []*discovery.Resource{resource(t, "c", &pb.Head{Cluster: "c", Wire: 2, Parts: []*pb.Part{{Name: api.EnginesPart(1), Digest: 1}}})}},
		"a table that lies":         {TypeUrl: api.HeadType, Resources: []*discovery.Resource{resource(t, api.EnginesPart(1), api.EncodeEngines(nil))}},
		"a change of what":          {TypeUrl: api.HeadType, Resources: []*discovery.Resource{resource(t, api.EnginesPart(1), &pb.Update{Since: 7})}},
		"a row alone":               {TypeUrl: api.HeadType, Resources: []*discovery.Resource{resource(t, api.RowPart("c", "m"), &pb.Update{})}},
		"removal of what never was": {TypeUrl: api.RowType, RemovedResources: []string{"c/x", ""}},
		"the same of wire 2's":      {TypeUrl: api.HeadType, RemovedResources: []string{"d", "row c x", "row c", "engines", "engines 1", ""}},
		"a wire from far ahead":     {TypeUrl: api.HeadType, Resources: []*discovery.Resource{resource(t, "c", &pb.Head{Cluster: "c", Epoch: 1, Wire: 9})}},
	} {
		for _, wire := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, wire %d", name, wire), func(t *testing.T) {
				s, u, applied := offline()
				s.speak(u, wire)
				_ = s.take(u, r)
				require.Zero(t, *applied)
				// A whole snapshot afterwards is applied all the same.
				for _, part := range responses(t, wire, plan(1, 1, 0.5)) {
					require.NoError(t, s.take(u, part))
				}
				require.Equal(t, 1, *applied)
			})
		}
	}
}

// FuzzResponses hands a subscriber whatever bytes decode as responses: it must
// neither break nor apply what does not validate.
func FuzzResponses(f *testing.F) {
	for _, wire := range []int{1, 2} {
		all := responses(f, wire, plan(1, 1, 0.5))
		for i := range all {
			one, err := proto.Marshal(all[i])
			require.NoError(f, err)
			two, err := proto.Marshal(all[(i+1)%len(all)])
			require.NoError(f, err)
			f.Add(wire == 1, one, two)
		}
	}
	f.Fuzz(func(t *testing.T, old bool, one, two []byte) {
		s, u, _ := offline()
		if old {
			s.speak(u, 1)
		}
		s.Apply = func(snapshot *fleet.Snapshot) error { return snapshot.Validate() }
		for _, data := range [][]byte{one, two} {
			r := &discovery.DeltaDiscoveryResponse{}
			if proto.Unmarshal(data, r) != nil {
				t.Skip("not a response")
			}
			if err := s.take(u, r); err != nil && strings.Contains(err.Error(), "add up") && u.spoilt != nil {
				t.Fatal("what does not validate is no misfit")
			}
			if a, ok := u.assembly.(*assembly1); ok {
				a.wanted(map[string]bool{"c/m": true})
			}
		}
	})
}
