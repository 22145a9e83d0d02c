package weights

import (
	"context"
	"errors"
	"fmt"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/wardrop-lb/wardrop/api"
)

// upstream is one place that snapshots come from. Its assembly outlives streams; the
// subscriber's lock guards all of it but what says otherwise.
type upstream struct {
	name      string
	conn      grpc.ClientConnInterface
	assembly  assembly
	spoken    int              // the wire that the assembly is of
	connected bool             // a stream is open and was heard of
	lost      bool             // and said so in the log
	views     map[string]*view // by cluster
	spoilt    error            // why the last response could not be read; nil if it could
	away      string           // why it turned us away, which is for good or until it is another
	said      string           // the kind of that
}

func (u *upstream) viewOf(cluster string) *view {
	if u.views[cluster] == nil {
		u.views[cluster] = &view{}
	}
	return u.views[cluster]
}

func (s *Subscriber) newUpstream(conn grpc.ClientConnInterface, i int) *upstream {
	u := &upstream{name: fmt.Sprint(i), conn: conn, views: map[string]*view{}}
	if c, ok := conn.(interface{ Target() string }); ok {
		u.name = c.Target()
	}
	s.speak(u, s.wire())
	return u
}

// speak begins anew with an upstream by a wire.
func (s *Subscriber) speak(u *upstream, wire int) {
	if u.spoken = wire; wire == 1 {
		u.assembly = newAssembly1(s.Cluster)
		return
	}
	u.assembly = newAssembly2(s.Cluster, func(yield func(*assembly2) bool) {
		for _, x := range s.upstreams {
			if a, ok := x.assembly.(*assembly2); ok && x != u && !yield(a) {
				return
			}
		}
	})
}

const (
	backoffFirst = 100 * time.Millisecond
	backoffMax   = 5 * time.Second
	// backoffAway is the most while there is no connection: trying costs nothing then, and the
	// connection has a backoff of its own.
	backoffAway = time.Second
)

// follow subscribes to one upstream until ctx is done, reconnecting with backoff.
func (s *Subscriber) follow(ctx context.Context, u *upstream) {
	backoff := backoffFirst
	for {
		err := s.stream(ctx, u, func() { backoff = backoffFirst })
		if ctx.Err() != nil {
			return
		}
		s.disconnected(u, err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(backoff):
		}
		most := backoffMax
		if status.Code(err) == codes.Unavailable {
			most = backoffAway
		}
		backoff = min(2*backoff, most)
	}
}

func (s *Subscriber) connected(u *upstream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u.connected, u.away = true, ""
	if u.lost {
		u.lost = false
		s.Log.Info("weight path restored", "upstream", u.name)
	}
}

// disconnected forgets what the stream said of the upstream, but not what it sent.
func (s *Subscriber) disconnected(u *upstream, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u.connected = false
	if status.Code(err) == codes.FailedPrecondition {
		u.away = status.Convert(err).Message()
	}
	u.assembly.broken()
	u.spoilt = nil
	for cluster, v := range u.views {
		u.views[cluster] = &view{said: v.said}
	}
	if u.lost {
		return
	}
	u.lost = true
	left := 0
	for _, x := range s.upstreams {
		if !x.lost {
			left++
		}
	}
	if left == 0 {
		s.Log.Warn("weight path lost; routing goes on by the last snapshot", "upstream", u.name, "error", err)
		return
	}
	s.Log.Warn("weight path lost; others go on", "upstream", u.name, "left", left, "error", err)
}

// everything is the name that stands for all resources of a type.
const everything = "*"

// session is the state of one stream.
type session struct {
	s      *Subscriber
	u      *upstream
	stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient

	// Of wire 1:
	parts bool            // they were asked for
	rows  map[string]bool // names of those that were
}

// stream subscribes over one stream until it breaks; received is called with
// every response that was understood.
func (s *Subscriber) stream(ctx context.Context, u *upstream, received func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(u.conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	c := &session{s: s, u: u, stream: stream, rows: map[string]bool{}}
	if err := c.subscribe(api.HeadType, s.heads()...); err != nil {
		return err
	}
	// An upstream with nothing new says no more than its header.
	if header, err := stream.Header(); err != nil {
		return err
	} else if header != nil {
		s.connected(u)
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := c.handle(r); err != nil {
			return err
		}
		received()
	}
}

// heads are the names of the heads to subscribe to.
func (s *Subscriber) heads() []string {
	if s.Cluster != "" {
		return []string{s.Cluster}
	}
	if len(s.Only) > 0 {
		return s.Only
	}
	return []string{everything}
}

// subscribe sends the first request of a type, saying what is held already.
func (c *session) subscribe(typeURL string, names ...string) error {
	wire := structpb.NewNumberValue(float64(c.s.wire()))
	return c.stream.Send(&discovery.DeltaDiscoveryRequest{
		Node: &core.Node{Id: c.s.Instance, Cluster: c.s.Cluster, Metadata: &structpb.Struct{
			Fields: map[string]*structpb.Value{api.WireKey: wire},
		}},
		TypeUrl:                 typeURL,
		ResourceNamesSubscribe:  names,
		InitialResourceVersions: c.u.assembly.held(typeURL),
	})
}

// handle takes a response, applies the snapshots that this completes, and
// answers with ACK or NACK.
func (c *session) handle(r *discovery.DeltaDiscoveryResponse) error {
	answer := &discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()}
	err := c.s.take(c.u, r)
	if err != nil {
		answer.ErrorDetail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: err.Error()}
	}
	if err := c.stream.Send(answer); err != nil {
		return err
	}
	if errors.Is(err, errMisfit) {
		return err
	}
	if a, ok := c.u.assembly.(*assembly1); ok && r.GetTypeUrl() == api.HeadType {
		return c.subscribeParts(a)
	}
	return nil
}

// subscribeParts asks for what heads of wire 1 name.
func (c *session) subscribeParts(a *assembly1) error {
	if !c.parts {
		c.parts = true
		if err := c.subscribe(api.EngineType, api.EngineTableName); err != nil {
			return err
		}
	}
	add, remove := a.wanted(c.rows)
	if len(add)+len(remove) == 0 {
		return nil
	}
	first := len(c.rows) == 0
	for _, n := range add {
		c.rows[n] = true
	}
	for _, n := range remove {
		delete(c.rows, n)
	}
	if first {
		return c.subscribe(api.RowType, add...)
	}
	return c.stream.Send(&discovery.DeltaDiscoveryRequest{
		TypeUrl: api.RowType, ResourceNamesSubscribe: add, ResourceNamesUnsubscribe: remove,
	})
}
