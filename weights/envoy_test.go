package weights

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/xds"
	"pgregory.net/rapid"

	"github.com/wardrop-lb/wardrop/fleet"
)

// spread is a snapshot of one row of engines at some addresses.
func spread(version uint64, addresses []string, weights ...float64) *fleet.Snapshot {
	s := &fleet.Snapshot{Epoch: 1, Version: version, Cluster: "c", Time: time.Unix(int64(version), 0), Rows: []fleet.SnapshotRow{{Model: "demo"}}}
	for i, w := range weights {
		s.Engines = append(s.Engines, fleet.SnapshotEngine{Name: fmt.Sprintf("e%d", i), Region: "r", URL: "http://" + addresses[i]})
		s.Rows[0].Targets = append(s.Rows[0].Targets, fleet.Target{Engine: int32(i), Weight: w, Predicted: 1})
	}
	return s
}

// TestWhatEnvoyTakes: weights add up to a million but for rounding, none is 0, no address is
// there twice, priorities have no gaps, whatever the row is.
func TestWhatEnvoyTakes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &fleet.Snapshot{Cluster: "c", Rows: []fleet.SnapshotRow{{Model: "m"}}}
		sum := 0.0
		for i := range rapid.IntRange(1, 30).Draw(t, "engines") {
			u := rapid.SampledFrom([]string{"http://127.0.0.1:%d", "https://[::1]", "http://name:%d", "unix:///x", "http://10.0.0.9:80", "http://127.0.0.1:99999", ":"}).Draw(t, "url")
			if u == "http://127.0.0.1:%d" || u == "http://name:%d" {
				u = fmt.Sprintf(u, 1000+i)
			}
			w := rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0, 1)).Draw(t, "weight")
			sum += w
			s.Engines = append(s.Engines, fleet.SnapshotEngine{Name: fmt.Sprint(i), URL: u})
			s.Rows[0].Targets = append(s.Rows[0].Targets, fleet.Target{Engine: int32(i), Weight: w})
		}
		for i := range s.Rows[0].Targets {
			if sum > 0 {
				s.Rows[0].Targets[i].Weight /= sum
			}
		}
		load, ok := envoyResources(s)[resourcev3.EndpointType]["c/m"].(*endpoint.ClusterLoadAssignment)
		if !ok {
			require.Empty(t, envoyResources(s)[resourcev3.ClusterType], "no cluster without endpoints")
			return
		}
		total, last, seen := uint64(0), uint32(0), map[string]bool{}
		require.Zero(t, load.Endpoints[0].Priority)
		for _, l := range load.Endpoints {
			require.Positive(t, l.LoadBalancingWeight.Value)
			require.True(t, l.Priority == last || l.Priority == last+1)
			last = l.Priority
			if l.Priority == 0 {
				total += uint64(l.LoadBalancingWeight.Value)
			}
			at := l.LbEndpoints[0].GetEndpoint().Address.String()
			require.False(t, seen[at], "%s is there twice", at)
			seen[at] = true
		}
		require.LessOrEqual(t, total, uint64(envoyWeights+30*envoyWeights), "far from 32 bits")
		require.NoError(t, load.ValidateAll())
		require.NoError(t, envoyResources(s)[resourcev3.ClusterType]["c/m"].(*clusterv3.Cluster).ValidateAll())
	})
}

func TestShedIsDropped(t *testing.T) {
	s := spread(1, []string{"127.0.0.1:1"}, 1)
	s.Rows[0].Shed[fleet.Standard] = 0.25
	load := envoyResources(s)[resourcev3.EndpointType]["c/demo"].(*endpoint.ClusterLoadAssignment)
	require.Equal(t, uint32(250_000), load.Policy.DropOverloads[0].DropPercentage.Numerator)
}

// grpcEngines are servers that count the calls that they get.
func grpcEngines(t *testing.T, n int) (addresses []string, calls []*atomic.Int64) {
	t.Helper()
	for range n {
		c := &atomic.Int64{}
		s := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			c.Add(1)
			return next(ctx, req)
		}))
		grpc_health_v1.RegisterHealthServer(s, health.NewServer())
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		go func() { _ = s.Serve(l) }()
		t.Cleanup(s.Stop)
		addresses, calls = append(addresses, l.Addr().String()), append(calls, c)
	}
	return addresses, calls
}

// TestStockGRPCClientFollowsThePlan: grpc-go's own xDS client spreads calls by the weights, follows
// new ones and goes on by the last when the control plane is gone.
func TestStockGRPCClientFollowsThePlan(t *testing.T) {
	addresses, calls := grpcEngines(t, 3)
	ctx, cancel := context.WithCancel(t.Context())
	p := NewPublisher(ctx)
	server := grpc.NewServer()
	p.Register(server)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(l) }()
	require.NoError(t, p.Publish([]*fleet.Snapshot{spread(1, addresses, 0.6, 0.3, 0.1)}))

	resolver, err := xds.NewXDSResolverWithConfigForTesting([]byte(fmt.Sprintf(
		`{"xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}], "node": {"id": "x", "cluster": "c"}}`, l.Addr())))
	require.NoError(t, err)
	conn, err := grpc.NewClient("xds:///c/demo", grpc.WithResolvers(resolver), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	shares := func() []float64 {
		const n = 1000
		for i := range calls {
			calls[i].Store(0)
		}
		for range n {
			_, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}, grpc.WaitForReady(true))
			require.NoError(t, err)
		}
		out := make([]float64, len(calls))
		for i := range calls {
			out[i] = float64(calls[i].Load()) / n
		}
		return out
	}
	near := func(want ...float64) bool {
		for i, got := range shares() {
			if got < want[i]-0.06 || got > want[i]+0.06 {
				return false
			}
		}
		return true
	}
	require.Eventually(t, func() bool { return near(0.6, 0.3, 0.1) }, 20*time.Second, time.Millisecond)
	require.NoError(t, p.Publish([]*fleet.Snapshot{spread(2, addresses, 0.1, 0.1, 0.8)}))
	require.Eventually(t, func() bool { return near(0.1, 0.1, 0.8) }, 20*time.Second, time.Millisecond)
	cancel()
	server.Stop()
	<-served
	require.True(t, near(0.1, 0.1, 0.8), "the control plane is gone")
	require.NoError(t, conn.Close())
}

// TestUnknownNodesAreBounded: clients cannot fill the memory by naming clusters.
func TestUnknownNodesAreBounded(t *testing.T) {
	s := &stock{clusters: map[string]*stockCluster{}}
	for i := range 2 * maxClusters {
		_, err := s.find(fmt.Sprint(i), nil)
		require.Equal(t, i >= maxClusters, err != nil)
	}
	require.Len(t, s.clusters, maxClusters)
}
