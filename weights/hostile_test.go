package weights

import (
	"log/slog"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/wardrop-lb/wardrop/api"
	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/fleet"
)

// offline is a subscriber without a stream, its upstream, and how often it applied.
func offline() (s *Subscriber, u *upstream, applied *int) {
	applied, u = new(int), newUpstream("c", nil, 0)
	return &Subscriber{Cluster: "c", Log: slog.New(slog.DiscardHandler), upstreams: []*upstream{u}, Apply: func(*fleet.Snapshot) error {
		*applied++
		return nil
	}}, u, applied
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
		"another cluster's head":    {TypeUrl: api.HeadType, Resources: []*discovery.Resource{resource(t, "c", &pb.Head{Cluster: "d", Epoch: 1})}},
		"parts without names":       {TypeUrl: api.HeadType, Resources: []*discovery.Resource{resource(t, "c", &pb.Head{Cluster: "c", Parts: []*pb.Part{{}, {TypeUrl: api.RowType}}})}},
		"removal of what never was": {TypeUrl: api.RowType, RemovedResources: []string{"c/x", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			s, u, applied := offline()
			_ = s.take(u, r)
			require.Zero(t, *applied)
			// A whole snapshot afterwards is applied all the same.
			saved, err := api.EncodeSnapshot(plan(1, 1, 0.5))
			require.NoError(t, err)
			for _, part := range []*discovery.DeltaDiscoveryResponse{
				{TypeUrl: api.EngineType, Resources: []*discovery.Resource{resource(t, api.EngineTableName, saved.Engines)}},
				{TypeUrl: api.RowType, Resources: []*discovery.Resource{resource(t, api.RowName("c", "m"), saved.Rows[0])}},
				{TypeUrl: api.HeadType, Resources: []*discovery.Resource{resource(t, "c", saved.Head)}},
			} {
				require.NoError(t, s.take(u, part))
			}
			require.Equal(t, 1, *applied)
		})
	}
}

// FuzzResponses hands a subscriber whatever bytes decode as a response: it must
// neither break nor apply what does not validate.
func FuzzResponses(f *testing.F) {
	saved, err := api.EncodeSnapshot(plan(1, 1, 0.5))
	if err != nil {
		f.Fatal(err)
	}
	for _, r := range []*discovery.DeltaDiscoveryResponse{
		{TypeUrl: api.EngineType, Resources: []*discovery.Resource{resource(f, api.EngineTableName, saved.Engines)}},
		{TypeUrl: api.RowType, Resources: []*discovery.Resource{resource(f, api.RowName("c", "m"), saved.Rows[0])}},
		{TypeUrl: api.HeadType, Resources: []*discovery.Resource{resource(f, "c", saved.Head)}, RemovedResources: []string{"c"}},
	} {
		b, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, b)
	}
	f.Fuzz(func(t *testing.T, one, two []byte) {
		s, u, _ := offline()
		s.Apply = func(snapshot *fleet.Snapshot) error { return snapshot.Validate() }
		for _, data := range [][]byte{one, two} {
			r := &discovery.DeltaDiscoveryResponse{}
			if proto.Unmarshal(data, r) != nil {
				t.Skip("not a response")
			}
			_ = s.take(u, r)
			u.assembly.wanted(map[string]bool{"c/m": true})
		}
	})
}
