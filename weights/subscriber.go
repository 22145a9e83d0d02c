package weights

import (
	"context"
	"log/slog"
	"sync"

	"google.golang.org/grpc"

	"github.com/wardrop-lb/wardrop/api"
	"github.com/wardrop-lb/wardrop/fleet"
)

// Subscriber keeps one data plane's snapshot current. It follows all its upstreams at once
// and applies the newest snapshot, whoever brings it first. Safe for concurrent use.
type Subscriber struct {
	Cluster  string
	Instance string
	// Conns reach the upstreams: every member of the control plane, or relays. Those that
	// say their Target are called so in the log.
	Conns []grpc.ClientConnInterface
	// Apply puts a validated snapshot in force; there is one call at a time. An error
	// refuses the snapshot and is sent back as the NACK's reason.
	Apply func(*fleet.Snapshot) error
	// Path is where snapshots are saved; empty for nowhere.
	Path string
	Log  *slog.Logger

	mu        sync.Mutex
	upstreams []*upstream
	place     place
}

// Restore applies the snapshot saved on disk, if there is one. A file that
// cannot be trusted is set aside and reported; it is never an error to have none.
func (s *Subscriber) Restore() error {
	p, err := load(s.Path)
	if p == nil || err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := newCandidate(p)
	if why := s.apply(c); why != nil {
		return setAside(s.Path, why)
	}
	s.place.saved, s.place.savedAt = c.content(), p.Head.GetPublished().AsTime()
	s.Log.Info("snapshot restored from disk", "path", s.Path, "epoch", c.mark.epoch, "version", c.mark.version)
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

// Applied tells which snapshot is in force, and why the newest that is to be had was refused,
// if it was. An upstream that is only behind the others says nothing here: what counts is
// the one with the newest snapshot among those that are connected.
func (s *Subscriber) Applied() (epoch, version uint64, refused string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.place.mark.epoch, s.place.mark.version, s.refused()
}

func (s *Subscriber) refused() (reason string) {
	var newest mark
	for _, u := range s.upstreams {
		if u.connected && newest.less(u.view.newest) {
			newest = u.view.newest
		}
	}
	for _, u := range s.upstreams {
		if u.connected && u.view.newest == newest && u.view.refused != nil {
			return u.view.refused.Error()
		}
	}
	return ""
}

// Run subscribes until ctx is done, reconnecting with backoff. The data plane
// goes on routing by the last snapshot all the while.
func (s *Subscriber) Run(ctx context.Context) {
	s.mu.Lock()
	for i, conn := range s.Conns {
		s.upstreams = append(s.upstreams, newUpstream(s.Cluster, conn, i))
	}
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, u := range s.upstreams {
		wg.Go(func() { s.follow(ctx, u) })
	}
	wg.Wait()
}
