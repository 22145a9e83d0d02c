package weights

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/wardrop-lb/wardrop/api"
	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/fleet"
)

// Subscriber keeps one data plane's snapshot current.
type Subscriber struct {
	Cluster  string
	Instance string
	Conn     grpc.ClientConnInterface
	// Apply puts a validated snapshot in force; it is called from one goroutine.
	// An error refuses the snapshot and is sent back as the NACK's reason.
	Apply func(*fleet.Snapshot) error
	// Path is where snapshots are saved; empty for nowhere.
	Path string
	Log  *slog.Logger

	mu       sync.Mutex
	assembly *assembly
	applied  mark
	refused  string
	tried    mark   // the newest snapshot that was put together
	saved    []byte // digests of what is on disk
}

// mark orders snapshots: epochs before versions before times.
type mark struct {
	epoch, version uint64
	time           int64
}

func markOf(h *pb.Head) mark {
	return mark{h.GetEpoch(), h.GetVersion(), h.GetPublished().AsTime().UnixNano()}
}

func (m mark) less(o mark) bool {
	if m.epoch != o.epoch {
		return m.epoch < o.epoch
	}
	if m.version != o.version {
		return m.version < o.version
	}
	return m.time < o.time
}

const (
	backoffFirst = 100 * time.Millisecond
	backoffMax   = 5 * time.Second
)

// Restore applies the snapshot saved on disk, if there is one. A file that
// cannot be trusted is set aside and reported; it is never an error to have none.
func (s *Subscriber) Restore() error {
	p, err := load(s.Path)
	if p == nil || err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.apply(p); err != nil {
		return setAside(s.Path, err)
	}
	s.Log.Info("snapshot restored from disk", "path", s.Path, "epoch", s.applied.epoch, "version", s.applied.version)
	return nil
}

// Save writes a snapshot to Path, as Run does with those that come.
func (s *Subscriber) Save(snapshot *fleet.Snapshot) error {
	p, err := api.EncodeSnapshot(snapshot)
	if err != nil {
		return err
	}
	return store(s.Path, p)
}

// Applied tells which snapshot is in force, and why the newest one was refused
// if it was.
func (s *Subscriber) Applied() (epoch, version uint64, refused string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.applied.epoch, s.applied.version, s.refused
}

// Run subscribes until ctx is done, reconnecting with backoff. The data plane
// goes on routing by the last snapshot all the while.
func (s *Subscriber) Run(ctx context.Context) {
	backoff, lost := backoffFirst, false
	for {
		err := s.stream(ctx, func() {
			if lost {
				s.Log.Info("weight path restored")
			}
			backoff, lost = backoffFirst, false
		})
		if ctx.Err() != nil {
			return
		}
		if !lost {
			lost = true
			s.Log.Warn("weight path lost; routing goes on by the last snapshot", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, backoffMax)
	}
}

// session is the state of one stream.
type session struct {
	s      *Subscriber
	stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	rows   map[string]bool // subscribed row names
}

// stream subscribes over one stream until it breaks; received is called with
// every response.
func (s *Subscriber) stream(ctx context.Context, received func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(s.Conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	if s.assembly == nil {
		s.assembly = newAssembly(s.Cluster)
	}
	s.mu.Unlock()
	c := &session{s: s, stream: stream, rows: map[string]bool{}}
	if err := c.subscribe(api.HeadType, s.Cluster); err != nil {
		return err
	}
	if err := c.subscribe(api.EngineType, api.EngineTableName); err != nil {
		return err
	}
	if err := c.updateRows(); err != nil {
		return err
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		received()
		if err := c.handle(r); err != nil {
			return err
		}
	}
}

// subscribe sends the first request of a type, saying what is held already.
func (c *session) subscribe(typeURL string, names ...string) error {
	return c.stream.Send(&discovery.DeltaDiscoveryRequest{
		Node:                    &core.Node{Id: c.s.Instance, Cluster: c.s.Cluster},
		TypeUrl:                 typeURL,
		ResourceNamesSubscribe:  names,
		InitialResourceVersions: c.s.assembly.names[typeURL],
	})
}

func (c *session) updateRows() error {
	add, remove := c.s.assembly.wanted(c.rows)
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

// handle takes a response, applies the snapshot if this completes it, and
// answers with ACK or NACK.
func (c *session) handle(r *discovery.DeltaDiscoveryResponse) error {
	answer := &discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()}
	_, _, before := c.s.Applied()
	if err := c.s.take(r); err != nil {
		if err.Error() != before { // said once, not at every tick
			c.s.Log.Warn("snapshot refused; the last one stays in force", "error", err)
		}
		answer.ErrorDetail = &status.Status{Code: int32(codes.InvalidArgument), Message: err.Error()}
	}
	if err := c.stream.Send(answer); err != nil {
		return err
	}
	if r.GetTypeUrl() == api.HeadType {
		return c.updateRows()
	}
	return nil
}

// take adds a response and applies the snapshot once it is complete.
func (s *Subscriber) take(r *discovery.DeltaDiscoveryResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.assembly.add(r); err != nil {
		s.refused = err.Error()
		return err
	}
	p, ok := s.assembly.complete()
	if !ok || markOf(p.Head) == s.tried {
		return nil
	}
	s.tried = markOf(p.Head)
	err := s.apply(p)
	s.refused = ""
	if err != nil {
		s.refused = err.Error()
		return err
	}
	s.save(p)
	return nil
}

// apply decodes, checks and applies a snapshot.
func (s *Subscriber) apply(p *pb.Saved) error {
	m := markOf(p.Head)
	if m.less(s.applied) {
		return fmt.Errorf("epoch %d version %d is older than epoch %d version %d in force",
			m.epoch, m.version, s.applied.epoch, s.applied.version)
	}
	snapshot, err := api.DecodeSnapshot(p)
	if err != nil {
		return err
	}
	if snapshot.Cluster != s.Cluster {
		return fmt.Errorf("the snapshot is cluster %q's, not %q's", snapshot.Cluster, s.Cluster)
	}
	if err := s.Apply(snapshot); err != nil {
		return err
	}
	s.applied = m
	return nil
}

// save writes the snapshot when its content differs from what is on disk. A
// failure costs only the next cold start; it is logged and tried again.
func (s *Subscriber) save(p *pb.Saved) {
	key := fmt.Appendf(nil, "%d %d %v", p.Head.Epoch, p.Head.Version, p.Head.Parts)
	if s.Path == "" || string(key) == string(s.saved) {
		return
	}
	if err := store(s.Path, p); err != nil {
		s.Log.Warn("snapshot not saved", "path", s.Path, "error", err)
		return
	}
	s.saved = key
}
