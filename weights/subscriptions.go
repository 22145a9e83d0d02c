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
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/wardrop-lb/wardrop/api"
	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
)

// Subscription is one client of the weight path as the publisher sees it.
type Subscription struct {
	Cluster  string // empty for a relay
	Instance string
	Wire     int // capability version that it speaks; 0 of stock Envoy and gRPC clients
	// Epoch and Version are those of the newest snapshot that it acknowledged, or said that it
	// held when it came; 0 before the first, and of stock clients.
	Epoch, Version uint64
	Refused        string // reason of the last NACK, empty after an ACK; or why the client was turned away
	Connected      bool
	Since          time.Time // when it connected, or was turned away
}

const (
	awayFor = time.Minute // that a client that was turned away is listed
	maxAway = 1000        // of them
)

// subscriptions follows the streams that are open. Safe for concurrent use.
type subscriptions struct {
	wire int // that the publisher speaks

	mu   sync.Mutex
	open map[streamID]*subscription
	away map[string]Subscription // by instance
}

// streamID is a stream's: the two forms of the protocol count theirs apart.
type streamID struct {
	delta bool
	id    int64
}

type subscription struct {
	Subscription
	welcome func() error    // sends the stream's header; nil once that is done
	known   bool            // it has said who it is
	sent    map[string]mark // by nonce: the newest head of a response that was not answered yet
}

func newSubscriptions(wire int) *subscriptions {
	return &subscriptions{wire: wire, open: map[streamID]*subscription{}, away: map[string]Subscription{}}
}

// callbacks tell of what happens on the streams.
func (s *subscriptions) callbacks() server.CallbackFuncs {
	return server.CallbackFuncs{
		DeltaStreamOpenFunc: func(ctx context.Context, id int64, _ string) error {
			s.opened(streamID{true, id}, func() error { return grpc.SendHeader(ctx, nil) })
			return nil
		},
		DeltaStreamClosedFunc: func(id int64, _ *core.Node) { s.closed(streamID{true, id}) },
		StreamDeltaRequestFunc: func(id int64, r *discovery.DeltaDiscoveryRequest) error {
			return s.asked(streamID{true, id}, r.GetTypeUrl(), r.GetNode(), r.GetResponseNonce(), r.GetErrorDetail(), r.GetInitialResourceVersions())
		},
		StreamDeltaResponseFunc: func(id int64, _ *discovery.DeltaDiscoveryRequest, r *discovery.DeltaDiscoveryResponse) {
			s.answered(streamID{true, id}, r)
		},
		StreamOpenFunc:   func(_ context.Context, id int64, _ string) error { s.opened(streamID{false, id}, nil); return nil },
		StreamClosedFunc: func(id int64, _ *core.Node) { s.closed(streamID{false, id}) },
		StreamRequestFunc: func(id int64, r *discovery.DiscoveryRequest) error {
			return s.asked(streamID{false, id}, r.GetTypeUrl(), r.GetNode(), r.GetResponseNonce(), r.GetErrorDetail(), nil)
		},
	}
}

func (s *subscriptions) opened(id streamID, welcome func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[id] = &subscription{Subscription{Since: time.Now(), Connected: true}, welcome, false, map[string]mark{}}
}

func (s *subscriptions) closed(id streamID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, id)
}

// asked takes a request, which may answer a response. An error ends the stream.
func (s *subscriptions) asked(id streamID, typeURL string, node *core.Node, nonce string, refused *rpcstatus.Status, held map[string]string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.open[id]
	if node != nil {
		x.Cluster, x.Instance, x.known = node.GetCluster(), node.GetId(), true
		if ours(typeURL) {
			x.Wire = max(wireOf(node), 1)
			if _, err := api.Spoken(s.wire, x.Wire); err != nil {
				return s.turnAway(x, err)
			}
		}
	}
	if x.welcome != nil { // it says at once that the client is served, also while there is nothing to send
		if err := x.welcome(); err != nil {
			return err
		}
		x.welcome = nil
	}
	for _, version := range held {
		x.acknowledge(parseMark(version))
	}
	m := x.sent[nonce]
	delete(x.sent, nonce)
	switch {
	case refused != nil:
		x.Refused = refused.GetMessage()
	case nonce != "" && (typeURL == api.HeadType || x.Wire == 0):
		x.Refused = ""
		x.acknowledge(m)
	}
	return nil
}

func (x *subscription) acknowledge(m mark) {
	if (mark{epoch: x.Epoch, version: x.Version}).less(m) {
		x.Epoch, x.Version = m.epoch, m.version
	}
}

// turnAway remembers a client that speaks too new or too old a wire.
func (s *subscriptions) turnAway(x *subscription, why error) error {
	away := x.Subscription
	away.Connected, away.Refused = false, why.Error()
	for instance, old := range s.away {
		if time.Since(old.Since) > awayFor {
			delete(s.away, instance)
		}
	}
	if len(s.away) < maxAway {
		s.away[x.Instance] = away
	}
	x.known = false
	return status.Error(codes.FailedPrecondition, why.Error())
}

// answered notes which snapshot a response brings.
func (s *subscriptions) answered(id streamID, r *discovery.DeltaDiscoveryResponse) {
	if r.GetTypeUrl() != api.HeadType {
		return
	}
	newest := parseMark(r.GetSystemVersionInfo())
	if newest == (mark{}) { // wire 1
		for _, res := range r.GetResources() {
			var h pb.Head
			if proto.Unmarshal(res.GetResource().GetValue(), &h) == nil && newest.less(markOf(&h)) {
				newest = markOf(&h)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[id].sent[r.GetNonce()] = newest
}

// speaks tells whether a wire is spoken with somebody who is connected.
func (s *subscriptions) speaks(wire int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.open {
		if spoken, err := api.Spoken(s.wire, x.Wire); x.Wire > 0 && err == nil && spoken == wire {
			return true
		}
	}
	return false
}

// list gives those that have said who they are, by cluster and instance.
func (s *subscriptions) list() []Subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Subscription, 0, len(s.open))
	for _, x := range s.open {
		if x.known {
			out = append(out, x.Subscription)
		}
	}
	for _, x := range s.away {
		if time.Since(x.Since) <= awayFor {
			out = append(out, x)
		}
	}
	slices.SortFunc(out, func(a, b Subscription) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Instance, b.Instance), a.Since.Compare(b.Since))
	})
	return out
}
