package weights

import (
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/wardrop-lb/wardrop/api"
	"github.com/wardrop-lb/wardrop/fleet"
)

// megabyte is how many models make a cluster's snapshot a megabyte, with rows of a thousand
// engines.
const megabyte = 43

// silent subscribes to cluster-00 and reads nothing. Its windows are as small as they come.
func silent(tb testing.TB, addr string) discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient {
	tb.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithInitialWindowSize(1<<16), grpc.WithInitialConnWindowSize(1<<16))
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = conn.Close() })
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(tb.Context(), grpc.MaxCallRecvMsgSize(largest))
	require.NoError(tb, err)
	require.NoError(tb, stream.Send(&discovery.DeltaDiscoveryRequest{
		TypeUrl: api.HeadType, ResourceNamesSubscribe: []string{"cluster-00"}, Node: &core.Node{Id: "silent", Metadata: &structpb.Struct{
			Fields: map[string]*structpb.Value{api.WireKey: structpb.NewNumberValue(api.Wire)},
		}},
	}))
	return stream
}

// TestSubscribersThatDoNotReadCostNothing: a hundred that are sent a megabyte and read none of it,
// while a hundred plans are published, hold one response each, all of the same bytes. Once one
// reads it is sent the newest, and nothing of what was in between.
func TestSubscribersThatDoNotReadCostNothing(t *testing.T) {
	p := publisherChild(t, "127.0.0.1:0", 1, megabyte)
	defer p.end(false)
	const n, plans = 100, 100
	before := p.publish(0)
	var last discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	for range n {
		last = silent(t, p.addr)
	}
	eventually(t, "each was sent something", func() bool { return p.publish(0).messages == n })
	u := p.publish(plans)
	t.Logf("heap of %.1f MiB, and %.1f without subscribers; resident %.1f and %.1f", u.heap, before.heap, u.resident, before.resident)
	require.Less(t, u.heap-before.heap, 32.0, "MiB for a hundred")
	r, err := last.Recv()
	require.NoError(t, err)
	require.NoError(t, last.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: api.HeadType, ResponseNonce: r.Nonce}))
	r, err = last.Recv()
	require.NoError(t, err)
	require.Equal(t, uint64(plans+1), parseMark(r.SystemVersionInfo).version, "the newest")
	require.Equal(t, int64(n+1), p.publish(0).messages, "one response each, and one more for whom has read")
}

// TestManyAtOnce: when a leader dies and the next one comes, all data planes come at once; each
// gets the next leader's plan, and together they cost its publisher little.
func TestManyAtOnce(t *testing.T) {
	const n, models = 200, 4
	p := publisherChild(t, "127.0.0.1:0", 1, models)
	defer func() { p.end(false) }()
	planes := follow(t, p.addr, n, []*fleet.Snapshot{{Cluster: "cluster-00"}})
	defer planes.stop()
	planes.arrive(t, n, 1)
	p.end(true)
	p = publisherChild(t, p.addr, 2, models)
	alone := p.publish(1)
	planes.arrive(t, n, 2)
	u := p.publish(0)
	t.Logf("heap of %.1f MiB, and %.1f before; %d bytes each", u.heap, alone.heap, u.bytes/n)
	require.Less(t, u.heap-alone.heap, 32.0, "MiB for two hundred")
}
