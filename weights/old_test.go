package weights

import (
	"fmt"
	"math"
	"os"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/wardrop-lb/wardrop/api"
	"github.com/wardrop-lb/wardrop/fleet"
)

// oldPlane is a data plane of wire 1, put together from its recorded requests, its types'
// descriptors of the time, and what it did with them. It shares no code with what is tested.
type oldPlane struct {
	t      *testing.T
	types  *protoregistry.Files
	stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	head   protoreflect.Message
	parts  map[string]oldPart // by type URL and name
	sent   map[string]int     // resources by type URL
}

type oldPart struct {
	digest  uint64
	message protoreflect.Message
}

func oldTypes(t *testing.T) *protoregistry.Files {
	t.Helper()
	data, err := os.ReadFile("../api/testdata/wire1.descriptors")
	require.NoError(t, err)
	var set descriptorpb.FileDescriptorSet
	require.NoError(t, proto.Unmarshal(data, &set))
	files, err := protodesc.NewFiles(&set)
	require.NoError(t, err)
	return files
}

func dialOld(t *testing.T, addr string) *oldPlane {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context())
	require.NoError(t, err)
	return &oldPlane{t: t, types: oldTypes(t), stream: stream, parts: map[string]oldPart{}, sent: map[string]int{}}
}

func (p *oldPlane) ask(r *discovery.DeltaDiscoveryRequest) {
	p.t.Helper()
	require.NoError(p.t, p.stream.Send(r))
}

// old decodes bytes as a message of the time.
func (p *oldPlane) old(name string, b []byte) protoreflect.Message {
	p.t.Helper()
	d, err := p.types.FindDescriptorByName(protoreflect.FullName("wardrop.v1." + name))
	require.NoError(p.t, err)
	m := dynamicpb.NewMessage(d.(protoreflect.MessageDescriptor))
	require.NoError(p.t, proto.Unmarshal(b, m))
	return m
}

func get(m protoreflect.Message, field protoreflect.Name) protoreflect.Value {
	return m.Get(m.Descriptor().Fields().ByName(field))
}

// next takes a response and acknowledges it. It gives what is in force then, empty while the
// snapshot is not whole.
func (p *oldPlane) next() (r *discovery.DeltaDiscoveryResponse, inForce string) {
	p.t.Helper()
	r, err := p.stream.Recv()
	require.NoError(p.t, err)
	kinds := map[string]string{api.HeadType: "Head", api.EngineType: "EngineTable", api.RowType: "Row"}
	for _, res := range r.Resources {
		p.sent[r.TypeUrl]++
		require.Equal(p.t, r.TypeUrl, res.Resource.TypeUrl)
		m := p.old(kinds[r.TypeUrl], res.Resource.Value)
		if r.TypeUrl == api.HeadType {
			p.head = m
			continue
		}
		require.Empty(p.t, m.GetUnknown(), "an old part is as it was")
		p.parts[r.TypeUrl+res.Name] = oldPart{api.Digest(res.Resource.Value), m}
	}
	for _, name := range r.RemovedResources {
		delete(p.parts, r.TypeUrl+name)
	}
	p.ask(&discovery.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce})
	return r, p.assemble()
}

func (p *oldPlane) assemble() string {
	if p.head == nil {
		return ""
	}
	out := fmt.Sprintf("%d.%d", get(p.head, "epoch").Uint(), get(p.head, "version").Uint())
	wanted := get(p.head, "parts").List()
	for i := range wanted.Len() {
		want := wanted.Get(i).Message()
		got, ok := p.parts[get(want, "type_url").String()+get(want, "name").String()]
		if !ok || got.digest != get(want, "digest").Uint() {
			return ""
		}
		if get(want, "type_url").String() == api.RowType {
			out += " " + p.row(got.message)
		}
	}
	return out
}

func (p *oldPlane) row(m protoreflect.Message) string {
	out := get(m, "model").String()
	targets := get(m, "targets").List()
	for i := range targets.Len() {
		t := targets.Get(i).Message()
		out += fmt.Sprintf(" %s=%x", get(t, "engine"), math.Float64bits(get(t, "weight").Float()))
	}
	return out
}

// describe is a snapshot as an old plane sees it.
func describe(s *fleet.Snapshot) string {
	out := fmt.Sprintf("%d.%d", s.Epoch, s.Version)
	for _, r := range s.Rows {
		out += " " + r.Model
		for _, t := range r.Targets {
			out += fmt.Sprintf(" %s=%x", s.Engines[t.Engine].Name, math.Float64bits(t.Weight))
		}
	}
	return out
}

// TestOldRequestsAreServed: who asks as a data plane of wire 1 asked gets what that could use, is
// heard when it refuses, and comes back to what it holds already.
func TestOldRequestsAreServed(t *testing.T) {
	s := start(t, "127.0.0.1:0")
	defer s.stop()
	plans := recordedPlans()
	var asked, refusals []*discovery.DeltaDiscoveryRequest
	for _, r := range recorded[discovery.DeltaDiscoveryRequest](t, "wire1", "first.requests") {
		if r.GetErrorDetail() != nil {
			refusals = append(refusals, r)
		} else if r.GetResponseNonce() == "" {
			asked = append(asked, r)
		}
	}
	require.Len(t, asked, 4, "heads, engines, rows, other rows")
	require.Len(t, refusals, 1)
	p := dialOld(t, s.addr)
	for _, r := range asked[:3] {
		p.ask(r)
	}
	for i, plan := range plans[:4] {
		require.NoError(t, s.publisher.Publish([]*fleet.Snapshot{plan}))
		for inForce := ""; inForce != describe(plan); {
			var r *discovery.DeltaDiscoveryResponse
			if r, inForce = p.next(); i == 2 && r.TypeUrl == api.HeadType {
				p.ask(asked[3])
			}
		}
	}
	refusals[0].ResponseNonce = ""
	p.ask(refusals[0])
	eventually(t, "the refusal is heard", func() bool {
		subs := s.publisher.Subscriptions()
		return len(subs) == 1 && subs[0].Wire == 1 && subs[0].Version == 4 && subs[0].Refused == `row "chat": weights add up to 1.4, not 1`
	})

	// It comes back to the next leader.
	again := start(t, "127.0.0.1:0")
	defer again.stop()
	require.NoError(t, again.publisher.Publish(plans[4:]))
	back := dialOld(t, again.addr)
	back.parts = p.parts // the fourth's, of which only the bad row is another
	for _, r := range recorded[discovery.DeltaDiscoveryRequest](t, "wire1", "second.requests") {
		if r.GetResponseNonce() == "" {
			back.ask(r)
		}
	}
	for inForce := ""; inForce != describe(plans[4]); {
		_, inForce = back.next()
	}
	require.Equal(t, map[string]int{api.HeadType: 1, api.RowType: 1}, back.sent, "but for the bad row it is held already")
}

// TestWhoSpeaksWire1IsServedOnly while somebody does.
func TestWhoSpeaksWire1IsServedOnly(t *testing.T) {
	s := start(t, "127.0.0.1:0")
	defer s.stop()
	require.NoError(t, s.publisher.Publish([]*fleet.Snapshot{plan(1, 1, 0.5)}))
	subscribe(t, "", s.addr).next(t)
	require.Nil(t, s.publisher.wire1, "nobody speaks it")
	old := subscribeAs(t, 1, s.addr)
	require.Equal(t, plan(1, 1, 0.5), old.next(t))
	require.NotNil(t, s.publisher.wire1)
	require.NoError(t, s.publisher.Publish([]*fleet.Snapshot{plan(1, 2, 0.25)}))
	require.Equal(t, plan(1, 2, 0.25), old.next(t))
	old.stop()
	eventually(t, "it is gone", func() bool { return !s.publisher.subscriptions.speaks(1) })
	require.NoError(t, s.publisher.Publish([]*fleet.Snapshot{plan(1, 3, 0.25)}))
	require.Nil(t, s.publisher.wire1)
}

// TestWiresOneApart understand each other, both ways round; those further apart refuse each
// other, and both sides say why.
func TestWiresOneApart(t *testing.T) {
	for _, c := range []struct{ publisher, plane int }{{2, 2}, {3, 2}, {2, 3}, {1, 2}, {2, 1}} {
		t.Run(fmt.Sprintf("publisher %d, data plane %d", c.publisher, c.plane), func(t *testing.T) {
			s := startAs(t, c.publisher)
			defer s.stop()
			p := subscribeAs(t, c.plane, s.addr)
			for v, w := range []float64{0.5, 0.25, 0.5} {
				want := plan(1, uint64(v+1), w)
				require.NoError(t, s.publisher.Publish([]*fleet.Snapshot{want}))
				require.Equal(t, want, p.next(t))
			}
			eventually(t, "it is heard", func() bool {
				subs := s.publisher.Subscriptions()
				return len(subs) == 1 && subs[0].Wire == c.plane && subs[0].Version == 3 && subs[0].Refused == ""
			})
		})
	}
	for _, c := range []struct{ publisher, plane int }{{4, 2}, {2, 4}, {3, 1}} {
		t.Run(fmt.Sprintf("publisher %d, data plane %d", c.publisher, c.plane), func(t *testing.T) {
			s := startAs(t, c.publisher)
			defer s.stop()
			require.NoError(t, s.publisher.Publish([]*fleet.Snapshot{plan(1, 1, 0.5)}))
			p := subscribeAs(t, c.plane, s.addr)
			why := fmt.Sprintf("one end speaks wire %d and this one %d: they must not be more than one apart", c.plane, c.publisher)
			eventually(t, "the publisher says so", func() bool {
				subs := s.publisher.Subscriptions()
				return len(subs) == 1 && !subs[0].Connected && subs[0].Wire == c.plane && subs[0].Refused == why
			})
			eventually(t, "the data plane says so", func() bool { _, _, refused := p.Applied(); return refused == why })
			p.says("weight path lost", why)
			require.Empty(t, p.applied)
			eventually(t, "it tries again", func() bool { return s.streams.Load() > 2 })
			require.Equal(t, 1, p.log.lines("level=WARN"), "said once, not at every attempt")
			require.Zero(t, p.log.lines("restored"))
		})
	}
}

// TestAPublisherFromFarAheadIsRefused, also if it does not notice itself.
func TestAPublisherFromFarAheadIsRefused(t *testing.T) {
	ahead := responses(t, 9, plan(1, 1, 0.5))
	ahead[0].Nonce = "1"
	addr, player := play(t, ahead)
	p := subscribe(t, "", addr)
	why := "one end speaks wire 9 and this one 2: they must not be more than one apart"
	require.Equal(t, why, (<-player.answers).GetErrorDetail().GetMessage())
	_, _, refused := p.Applied()
	require.Equal(t, why, refused)
	require.Empty(t, p.applied)
}
