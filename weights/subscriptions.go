package weights

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/wardrop-lb/wardrop/api"
	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
)

// Subscription is one connected client of the weight path as the publisher sees it.
type Subscription struct {
	Cluster  string // empty for a relay
	Instance string
	Stock    bool // a stock Envoy or gRPC client
	// Epoch and Version are those of the newest snapshot that it acknowledged; 0 before the
	// first, and of stock clients.
	Epoch, Version uint64
	Refused        string // reason of the last NACK; empty after an ACK of the head
	Since          time.Time
}

// subscriptions follows the streams that are open. Safe for concurrent use.
type subscriptions struct {
	mu   sync.Mutex
	open map[streamID]*subscription
}

// streamID is a stream's: the two forms of the protocol count theirs apart.
type streamID struct {
	delta bool
	id    int64
}

type subscription struct {
	Subscription
	sent map[string]mark // by nonce: the newest head of a response that was not answered yet
}

func newSubscriptions() *subscriptions { return &subscriptions{open: map[streamID]*subscription{}} }

// callbacks tell of what happens on the streams.
func (s *subscriptions) callbacks() server.CallbackFuncs {
	return server.CallbackFuncs{
		DeltaStreamOpenFunc: func(ctx context.Context, id int64, _ string) error {
			s.opened(streamID{true, id})
			// The header says at once that the stream is open, also while there is nothing to send.
			return grpc.SendHeader(ctx, nil)
		},
		DeltaStreamClosedFunc: func(id int64, _ *core.Node) { s.closed(streamID{true, id}) },
		StreamDeltaRequestFunc: func(id int64, r *discovery.DeltaDiscoveryRequest) error {
			s.asked(streamID{true, id}, r.GetNode(), r.GetTypeUrl(), r.GetResponseNonce(), r.GetErrorDetail())
			return nil
		},
		StreamDeltaResponseFunc: func(id int64, _ *discovery.DeltaDiscoveryRequest, r *discovery.DeltaDiscoveryResponse) {
			s.answered(streamID{true, id}, r)
		},
		StreamOpenFunc:   func(_ context.Context, id int64, _ string) error { s.opened(streamID{false, id}); return nil },
		StreamClosedFunc: func(id int64, _ *core.Node) { s.closed(streamID{false, id}) },
		StreamRequestFunc: func(id int64, r *discovery.DiscoveryRequest) error {
			s.asked(streamID{false, id}, r.GetNode(), r.GetTypeUrl(), r.GetResponseNonce(), r.GetErrorDetail())
			return nil
		},
	}
}

func (s *subscriptions) opened(id streamID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[id] = &subscription{Subscription{Since: time.Now()}, map[string]mark{}}
}

func (s *subscriptions) closed(id streamID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, id)
}

// asked takes a request, which may answer a response.
func (s *subscriptions) asked(id streamID, node *core.Node, typeURL, nonce string, refused *status.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.open[id]
	if node != nil {
		x.Cluster, x.Instance = node.GetCluster(), node.GetId()
	}
	x.Stock = typeURL != api.HeadType && typeURL != api.EngineType && typeURL != api.RowType
	m := x.sent[nonce]
	delete(x.sent, nonce)
	switch {
	case refused != nil:
		x.Refused = refused.GetMessage()
	case nonce != "" && (typeURL == api.HeadType || x.Stock):
		x.Refused = ""
		if m != (mark{}) {
			x.Epoch, x.Version = m.epoch, m.version
		}
	}
}

// answered notes which snapshot a response brings.
func (s *subscriptions) answered(id streamID, r *discovery.DeltaDiscoveryResponse) {
	if r.GetTypeUrl() != api.HeadType {
		return
	}
	var newest mark
	for _, res := range r.GetResources() {
		var h pb.Head
		if proto.Unmarshal(res.GetResource().GetValue(), &h) == nil && newest.less(markOf(&h)) {
			newest = markOf(&h)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[id].sent[r.GetNonce()] = newest
}

// list gives those that have said who they are, by cluster and instance.
func (s *subscriptions) list() []Subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Subscription, 0, len(s.open))
	for _, x := range s.open {
		if x.Instance != "" || x.Cluster != "" {
			out = append(out, x.Subscription)
		}
	}
	slices.SortFunc(out, func(a, b Subscription) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Instance, b.Instance), a.Since.Compare(b.Since))
	})
	return out
}
