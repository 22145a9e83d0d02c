package weights

import (
	"cmp"
	"math"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/wardrop-lb/wardrop/api"
	"github.com/wardrop-lb/wardrop/fleet"
)

// envoyTypes are the resources of stock Envoy and gRPC clients.
var envoyTypes = []string{resourcev3.ClusterType, resourcev3.EndpointType, resourcev3.ListenerType}

const (
	// envoyWeights is what the weights of a row add up to there: clients refuse a sum
	// beyond 32 bits, and a weight of 0.
	envoyWeights        = 1_000_000
	envoyConnectTimeout = time.Second
	// envoyUnbounded is more requests than an engine ever holds: Envoy's own default, 1024, is
	// not. Whoever uses Envoy's request path has Envoy's protections and none of ours.
	envoyUnbounded = 1 << 20
	perMillion     = 1_000_000
)

// envoyResources are a snapshot's rows as stock Envoy and gRPC clients take them, by type: a
// cluster, its endpoints, and for gRPC clients a listener, all called CLUSTER/MODEL. Each engine
// is a locality of its own, since that is the weight that both honour when they spread requests
// (round robin). Engines without weight are the priority below. What the plan refuses of
// standard priority is dropped.
//
// Engines whose URL holds no IP address are left out, for endpoints are addresses.
func envoyResources(s *fleet.Snapshot) map[string]map[string]types.Resource {
	out := map[string]map[string]types.Resource{}
	for _, t := range envoyTypes {
		out[t] = map[string]types.Resource{}
	}
	for i := range s.Rows {
		r := &s.Rows[i]
		name := api.RowName(s.Cluster, r.Model)
		load := assignment(name, s, r)
		if len(load.Endpoints) == 0 {
			continue
		}
		out[resourcev3.EndpointType][name] = load
		out[resourcev3.ClusterType][name] = envoyCluster(name)
		out[resourcev3.ListenerType][name] = grpcListener(name)
	}
	return out
}

func assignment(name string, s *fleet.Snapshot, r *fleet.SnapshotRow) *endpoint.ClusterLoadAssignment {
	out := &endpoint.ClusterLoadAssignment{ClusterName: name, Policy: &endpoint.ClusterLoadAssignment_Policy{
		// Weights are the plan's: Envoy must not move traffic by its own idea of health.
		OverprovisioningFactor: wrapperspb.UInt32(math.MaxUint32),
	}}
	if shed := r.Shed[fleet.Standard]; shed > 0 {
		out.Policy.DropOverloads = []*endpoint.ClusterLoadAssignment_Policy_DropOverload{{
			Category: "shed", DropPercentage: &typev3.FractionalPercent{Numerator: uint32(math.Round(shed * perMillion)), Denominator: typev3.FractionalPercent_MILLION},
		}}
	}
	seen := map[netip.AddrPort]bool{} // the same address twice is refused
	var spare []*endpoint.LocalityLbEndpoints
	for _, t := range r.Targets {
		e := &s.Engines[t.Engine]
		at, ok := addressOf(e.URL)
		if !ok || seen[at] {
			continue
		}
		seen[at] = true
		l := locality(e, at, t.Weight)
		if t.Weight > 0 {
			out.Endpoints = append(out.Endpoints, l)
		} else {
			spare = append(spare, l)
		}
	}
	if len(out.Endpoints) > 0 { // priorities have no gaps
		for _, l := range spare {
			l.Priority = 1
		}
	}
	out.Endpoints = append(out.Endpoints, spare...)
	slices.SortStableFunc(out.Endpoints, func(a, b *endpoint.LocalityLbEndpoints) int { return cmp.Compare(a.Priority, b.Priority) })
	return out
}

func locality(e *fleet.SnapshotEngine, at netip.AddrPort, weight float64) *endpoint.LocalityLbEndpoints {
	address := &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
		Address: at.Addr().String(), PortSpecifier: &core.SocketAddress_PortValue{PortValue: uint32(at.Port())},
	}}}
	return &endpoint.LocalityLbEndpoints{
		Locality:            &core.Locality{Region: e.Region, SubZone: e.Name},
		LoadBalancingWeight: wrapperspb.UInt32(uint32(max(1, math.Round(weight*envoyWeights)))),
		LbEndpoints: []*endpoint.LbEndpoint{{
			HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{Address: address, Hostname: e.Name}},
		}},
	}
}

// addressOf is the address that a URL names by its digits.
func addressOf(text string) (netip.AddrPort, bool) {
	u, err := url.Parse(text)
	if err != nil {
		return netip.AddrPort{}, false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		return netip.AddrPort{}, false
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(ip, uint16(n)), true
}

func envoyCluster(name string) *clusterv3.Cluster {
	unbounded := wrapperspb.UInt32(envoyUnbounded)
	return &clusterv3.Cluster{
		Name: name, ConnectTimeout: durationpb.New(envoyConnectTimeout), LbPolicy: clusterv3.Cluster_ROUND_ROBIN,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{ServiceName: name, EdsConfig: &core.ConfigSource{
			ResourceApiVersion: core.ApiVersion_V3, ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}},
		}},
		CommonLbConfig: &clusterv3.Cluster_CommonLbConfig{
			HealthyPanicThreshold: &typev3.Percent{},
			LocalityConfigSpecifier: &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig_{
				LocalityWeightedLbConfig: &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig{},
			},
		},
		CircuitBreakers: &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
			MaxConnections: unbounded, MaxPendingRequests: unbounded, MaxRequests: unbounded, MaxRetries: unbounded,
		}}},
	}
}

// grpcListener lets a gRPC client dial xds:///CLUSTER/MODEL.
func grpcListener(name string) *listener.Listener {
	manager := &hcm.HttpConnectionManager{
		RouteSpecifier: &hcm.HttpConnectionManager_RouteConfig{RouteConfig: &route.RouteConfiguration{
			Name: name, VirtualHosts: []*route.VirtualHost{{Name: "all", Domains: []string{"*"}, Routes: []*route.Route{{
				Match:  &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: ""}},
				Action: &route.Route_Route{Route: &route.RouteAction{ClusterSpecifier: &route.RouteAction_Cluster{Cluster: name}}},
			}}}},
		}},
		HttpFilters: []*hcm.HttpFilter{{Name: "router", ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: packed(&router.Router{})}}},
	}
	return &listener.Listener{Name: name, ApiListener: &listener.ApiListener{ApiListener: packed(manager)}}
}

// packed wraps a message of our own making, which cannot fail.
func packed(m proto.Message) *anypb.Any {
	out, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return out
}
