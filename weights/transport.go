package weights

import (
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	pb "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// window is how much of a stream, and of a connection, may be under way: a snapshot of any size
// takes the time of one round trip. gRPC's own estimate begins at 64 KiB and takes several.
const window = 16 << 20

// largest is the largest message that either end takes, in bytes.
const largest = 64 << 20

const (
	aliveEvery   = 10 * time.Second // that a peer must give a sign of life
	aliveTimeout = 5 * time.Second  // that it may take
)

// ServerOptions are what a gRPC server of the weight path wants. It notices peers that are gone
// without a word.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window), grpc.MaxRecvMsgSize(largest), grpc.MaxSendMsgSize(largest),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: aliveEvery, Timeout: aliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: aliveEvery / 2, PermitWithoutStream: true}),
		// All data planes are sent the same bytes.
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(proto.Name)}),
	}
}

// DialOptions are what a connection to a server of the weight path wants, beside credentials. It
// comes back within seconds of the server's return.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: aliveEvery, Timeout: aliveTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(largest)),
	}
}

// codec encodes as protobuf's, but that a response's resources are not copied: all subscribers
// are sent the same bytes, and one that does not read holds none of its own.
type codec struct{ encoding.CodecV2 }

// shareFrom is the size from which a resource is worth it.
const shareFrom = 4 << 10

// Fields of the messages that are put together here.
const (
	fieldResources = 2 // of a response
	fieldResource  = 2 // of a resource
	fieldValue     = 2 // of an Any
)

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	r, ok := v.(*discovery.DeltaDiscoveryResponse)
	if !ok || !large(r) {
		return c.CodecV2.Marshal(v)
	}
	rest := &discovery.DeltaDiscoveryResponse{
		SystemVersionInfo: r.SystemVersionInfo, TypeUrl: r.TypeUrl, RemovedResources: r.RemovedResources, Nonce: r.Nonce, ControlPlane: r.ControlPlane,
		RemovedResourceNames: r.RemovedResourceNames, ResourceErrors: r.ResourceErrors,
	}
	own, err := pb.Marshal(rest)
	if err != nil {
		return nil, err
	}
	var out mem.BufferSlice
	for _, res := range r.Resources {
		value := res.GetResource().GetValue()
		if len(value) < shareFrom {
			b, err := pb.Marshal(res)
			if err != nil {
				return nil, err
			}
			own = protowire.AppendBytes(protowire.AppendTag(own, fieldResources, protowire.BytesType), b)
			continue
		}
		if own, err = appendHead(own, res); err != nil {
			return nil, err
		}
		out = append(out, mem.SliceBuffer(own), mem.SliceBuffer(value))
		own = nil
	}
	if len(own) > 0 {
		out = append(out, mem.SliceBuffer(own))
	}
	return out, nil
}

func large(r *discovery.DeltaDiscoveryResponse) bool {
	for _, res := range r.Resources {
		if len(res.GetResource().GetValue()) >= shareFrom {
			return true
		}
	}
	return false
}

// appendHead appends a resource up to its value, which is to follow.
func appendHead(b []byte, res *discovery.Resource) ([]byte, error) {
	size := len(res.Resource.Value)
	about, err := pb.Marshal(&discovery.Resource{
		Name: res.Name, ResourceName: res.ResourceName, Aliases: res.Aliases, Version: res.Version, Ttl: res.Ttl, CacheControl: res.CacheControl, Metadata: res.Metadata,
	})
	if err != nil {
		return nil, err
	}
	kind, err := pb.Marshal(&anypb.Any{TypeUrl: res.Resource.TypeUrl})
	if err != nil {
		return nil, err
	}
	content := len(kind) + protowire.SizeTag(fieldValue) + protowire.SizeBytes(size)
	whole := len(about) + protowire.SizeTag(fieldResource) + protowire.SizeBytes(content)
	b = protowire.AppendVarint(protowire.AppendTag(b, fieldResources, protowire.BytesType), uint64(whole))
	b = append(b, about...)
	b = protowire.AppendVarint(protowire.AppendTag(b, fieldResource, protowire.BytesType), uint64(content))
	b = append(b, kind...)
	return protowire.AppendVarint(protowire.AppendTag(b, fieldValue, protowire.BytesType), uint64(size)), nil
}
