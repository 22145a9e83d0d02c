package weights

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/wardrop-lb/wardrop/api"
	"github.com/wardrop-lb/wardrop/fleet"
)

// Subscriber keeps the snapshot of one cluster current, as a data plane needs it, or those of
// many, as a relay does. It follows all its upstreams at once and applies the newest
// snapshot, whoever brings it first. Safe for concurrent use.
type Subscriber struct {
	// Cluster is the one whose snapshot it is; empty for several.
	Cluster string
	// Only names the clusters to follow where Cluster is empty; empty for all there are.
	Only     []string
	Instance string
	// Conns reach the upstreams: every member of the control plane, or relays. Those that
	// say their Target are called so in the log.
	Conns []grpc.ClientConnInterface
	// Apply puts a validated snapshot in force; there is one call at a time. An error
	// refuses the snapshot and is sent back as the NACK's reason.
	Apply func(*fleet.Snapshot) error
	// Gone tells of one of several clusters that is no more, and Done comes after what came at
	// once was applied or gone; nil for nothing. None of the three may call the Subscriber.
	Gone func(cluster string)
	Done func()
	// Path is where snapshots are saved, empty for nowhere: a file for one cluster, a
	// directory for several.
	Path string
	Log  *slog.Logger

	mu        sync.Mutex
	upstreams []*upstream
	places    map[string]*place // by cluster
	saver     saver
	speaks    int // the wire, if not api.Wire
}

func (s *Subscriber) wire() int { return cmp.Or(s.speaks, api.Wire) }

// Place is a snapshot in force.
type Place struct {
	Cluster        string
	Epoch, Version uint64
	Published      time.Time
	Refused        string // why the newest that is to be had was refused; empty when it was not
}

// Restore applies what is saved on disk, if something is. A file that
// cannot be trusted is set aside and reported; it is never an error to have none.
func (s *Subscriber) Restore() error {
	if s.Cluster != "" {
		return s.restore(s.Path)
	}
	files, err := os.ReadDir(s.Path)
	if s.Path == "" || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range files {
		if filepath.Ext(f.Name()) == extension {
			errs = append(errs, s.restore(filepath.Join(s.Path, f.Name())))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Done != nil && len(s.places) > 0 {
		s.Done()
	}
	return errors.Join(errs...)
}

func (s *Subscriber) restore(path string) error {
	p, err := load(path)
	if p == nil || err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := newCandidate(p.Head, func() (*fleet.Snapshot, error) { return api.DecodeSnapshot(p) })
	if !s.wants(c.cluster) {
		return nil
	}
	if why := s.apply(c); why != nil {
		return setAside(path, why)
	}
	in := s.placeOf(c.cluster)
	in.saved, in.savedAt = c.content(), in.snapshot.Time
	s.Log.Info("snapshot restored from disk", "path", path, "epoch", c.mark.epoch, "version", c.mark.version)
	return nil
}

// wants says whether a cluster is one of those that a relay follows.
func (s *Subscriber) wants(cluster string) bool {
	return s.Cluster != "" || len(s.Only) == 0 || slices.Contains(s.Only, cluster)
}

// Save writes a snapshot to Path, as Run does with those that come.
func (s *Subscriber) Save(snapshot *fleet.Snapshot) error {
	return write(s.file(snapshot.Cluster), snapshot)
}

// extension ends the names of saved snapshots in a directory of several.
const extension = ".snapshot"

// file is where a cluster's snapshot is saved; empty for nowhere.
func (s *Subscriber) file(cluster string) string {
	if s.Cluster != "" || s.Path == "" {
		return s.Path
	}
	return filepath.Join(s.Path, url.PathEscape(cluster)+extension)
}

// Applied tells which snapshot of Cluster is in force, and why the newest that is to be had was
// refused, if it was. An upstream that is only behind the others says nothing here: what
// counts is the one with the newest snapshot among those that are connected.
func (s *Subscriber) Applied() (epoch, version uint64, refused string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.placeOf(s.Cluster)
	return in.mark.epoch, in.mark.version, s.refused(s.Cluster)
}

// Places lists what is in force, by cluster.
func (s *Subscriber) Places() []Place {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Place
	for _, cluster := range slices.Sorted(maps.Keys(s.places)) {
		if in := s.places[cluster]; in.snapshot != nil {
			out = append(out, Place{cluster, in.mark.epoch, in.mark.version, in.snapshot.Time, s.refused(cluster)})
		}
	}
	return out
}

// Upstream is one of the places that snapshots come from.
type Upstream struct {
	Name      string
	Connected bool
}

// Upstreams tells which are connected.
func (s *Subscriber) Upstreams() []Upstream {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Upstream, len(s.upstreams))
	for i, u := range s.upstreams {
		out[i] = Upstream{u.name, u.connected}
	}
	return out
}

func (s *Subscriber) placeOf(cluster string) *place {
	if s.places == nil {
		s.places = map[string]*place{}
	}
	if s.places[cluster] == nil {
		s.places[cluster] = &place{}
	}
	return s.places[cluster]
}

func (s *Subscriber) refused(cluster string) string {
	var newest mark
	if away, none := s.turnedAway(); none {
		return away
	}
	for _, u := range s.upstreams {
		if u.connected && newest.less(u.viewOf(cluster).newest) {
			newest = u.viewOf(cluster).newest
		}
	}
	for _, u := range s.upstreams {
		v := u.viewOf(cluster)
		if !u.connected || v.newest != newest {
			continue
		}
		if v.refused != nil {
			return v.refused.Error()
		}
		if u.spoilt != nil {
			return u.spoilt.Error()
		}
	}
	return ""
}

// turnedAway says why none of the upstreams has us, if that is so.
func (s *Subscriber) turnedAway() (reason string, none bool) {
	for _, u := range s.upstreams {
		if u.connected {
			return "", false
		}
		reason = cmp.Or(reason, u.away)
	}
	return reason, true
}

// Run subscribes until ctx is done, reconnecting with backoff. Whoever routes
// goes on by the last snapshot all the while. It may be called once.
func (s *Subscriber) Run(ctx context.Context) {
	s.mu.Lock()
	for i, conn := range s.Conns {
		s.upstreams = append(s.upstreams, s.newUpstream(conn, i))
	}
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, u := range s.upstreams {
		wg.Go(func() { s.follow(ctx, u) })
	}
	if s.Cluster == "" && s.Path != "" {
		wg.Go(func() { s.saver.run(ctx, s.Log) })
	}
	wg.Wait()
}
