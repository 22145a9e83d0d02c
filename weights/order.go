package weights

import (
	"fmt"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/wardrop-lb/wardrop/api"
	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/fleet"
)

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

// candidate is a whole snapshot that an upstream holds.
type candidate struct {
	*pb.Saved
	mark  mark
	parts uint64 // digest of what the head names
}

func newCandidate(p *pb.Saved) candidate {
	var b []byte
	for _, part := range p.Head.GetParts() {
		b = fmt.Appendf(b, "%s %q %x\n", part.TypeUrl, part.Name, part.Digest)
	}
	return candidate{p, markOf(p.Head), api.Digest(b)}
}

// content is what there is to save of a snapshot: time alone makes no new file each time.
type content struct{ epoch, version, parts uint64 }

func (c candidate) content() content { return content{c.mark.epoch, c.mark.version, c.parts} }

// refusal says why a snapshot was refused.
type refusal struct {
	error
	kind string // the same while it would be the same to an operator: said once in the log
}

func refuse(err error) *refusal { return &refusal{err, err.Error()} }

// view is what one upstream holds of a cluster, as far as this stream has told.
type view struct {
	newest, peak mark // what it sent last, and the newest that it sent
	parts        uint64
	refused      *refusal // of the newest
	said         string   // the kind of refusal that was logged last
}

// place is what is in force for a cluster.
type place struct {
	mark     mark
	parts    uint64
	snapshot *fleet.Snapshot // nil before the first
	saved    content         // what is on disk
	savedAt  time.Time       // when that was published

	tried      mark // the newest snapshot that was refused for what it is
	triedParts uint64
	why        *refusal
}

// take adds a response and applies the snapshot once it is complete. An error is the NACK's
// reason.
func (s *Subscriber) take(u *upstream, r *discovery.DeltaDiscoveryResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := &u.view
	if err := u.assembly.add(r); err != nil {
		s.note(u, refuse(err))
		return err
	}
	p, ok := u.assembly.complete()
	if !ok {
		return nil
	}
	c := newCandidate(p)
	if c.mark == v.newest && c.parts == v.parts {
		return nil // judged already
	}
	v.newest, v.parts = c.mark, c.parts
	if v.peak.less(c.mark) {
		v.peak = c.mark
	}
	why := s.judge(v.peak, c)
	s.note(u, why)
	if why != nil {
		return why
	}
	return nil
}

// note keeps what came of an upstream's newest snapshot.
func (s *Subscriber) note(u *upstream, why *refusal) {
	u.view.refused = why
	if why == nil {
		u.view.said = ""
		return
	}
	if why.kind != u.view.said { // said once, not at every tick
		u.view.said = why.kind
		s.Log.Warn("snapshot refused; the last one stays in force", "upstream", u.name, "error", why)
	}
}

// judge applies a snapshot that is newer than what is in force, whoever brings it. One that is
// only behind is no fault: the upstream has not heard of the newer yet. A lower epoch is, for
// its leader is deposed, and so is an upstream that takes back what it has sent.
func (s *Subscriber) judge(peak mark, c candidate) *refusal {
	in := &s.place
	m := c.mark
	switch {
	case m.epoch < in.mark.epoch:
		return &refusal{fmt.Errorf("epoch %d version %d is older than epoch %d version %d in force",
			m.epoch, m.version, in.mark.epoch, in.mark.version), fmt.Sprintf("epoch %d", m.epoch)}
	case m.epoch == peak.epoch && m.version < peak.version:
		return &refusal{fmt.Errorf("epoch %d goes back from version %d to %d", m.epoch, peak.version, m.version), "back"}
	case m.less(in.mark):
		return nil
	case m == in.mark && c.parts == in.parts:
		return nil
	case m == in.mark:
		return s.compare(c)
	case m == in.tried && c.parts == in.triedParts:
		return in.why
	}
	if why := s.apply(c); why != nil {
		in.tried, in.triedParts, in.why = m, c.parts, why
		return why
	}
	s.save(c)
	return nil
}

// compare refuses what is called like the snapshot in force and is another: then two lead in
// one epoch.
func (s *Subscriber) compare(c candidate) *refusal {
	snapshot, err := api.DecodeSnapshot(c.Saved)
	if err == nil && !snapshot.RoutesLike(s.place.snapshot) {
		err = fmt.Errorf("epoch %d version %d differs from the one in force that is called the same", c.mark.epoch, c.mark.version)
	}
	if err != nil {
		return &refusal{err, "two"}
	}
	return nil
}

// apply decodes, checks and applies a snapshot.
func (s *Subscriber) apply(c candidate) *refusal {
	snapshot, err := api.DecodeSnapshot(c.Saved)
	if err != nil {
		return refuse(err)
	}
	if snapshot.Cluster != s.Cluster {
		return refuse(fmt.Errorf("the snapshot is cluster %q's, not %q's", snapshot.Cluster, s.Cluster))
	}
	if err := s.Apply(snapshot); err != nil {
		return refuse(err)
	}
	s.place.mark, s.place.parts, s.place.snapshot = c.mark, c.parts, snapshot
	return nil
}

// save writes the snapshot when its content differs from what is on disk, or when that is
// older than it is good for, so that who starts from it knows how old it is. A failure
// costs only the next cold start; it is logged and tried again.
func (s *Subscriber) save(c candidate) {
	published := c.Head.GetPublished().AsTime()
	if s.Path == "" || c.content() == s.place.saved && published.Sub(s.place.savedAt) <= c.Head.GetGoodFor().AsDuration() {
		return
	}
	if err := store(s.Path, c.Saved); err != nil {
		s.Log.Warn("snapshot not saved", "path", s.Path, "error", err)
		return
	}
	s.place.saved, s.place.savedAt = c.content(), published
}
