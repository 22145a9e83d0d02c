package weights

import (
	"errors"
	"fmt"
	"maps"
	"slices"
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
	judged       *head
	newest, peak mark     // of the head that was judged last, and the newest of all
	refused      *refusal // of the one that was judged last
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

// take adds a response and applies the snapshots that it completes. An error is the NACK's
// reason.
func (s *Subscriber) take(u *upstream, r *discovery.DeltaDiscoveryResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	gone, err := u.assembly.add(r)
	if err != nil {
		s.note(u, &u.said, refuse(err))
		u.spoilt = err
		return err
	}
	var errs []error
	applied := false
	for _, cluster := range slices.Sorted(maps.Keys(u.assembly.heads)) {
		h, v := u.assembly.heads[cluster], u.viewOf(cluster)
		if h == v.judged {
			continue
		}
		p, ok := u.assembly.complete(h)
		if !ok {
			continue
		}
		u.spoilt, u.said, v.judged = nil, "", h
		was := s.placeOf(cluster).mark
		v.refused = s.offer(v, newCandidate(p))
		s.note(u, &v.said, v.refused)
		if v.refused != nil {
			errs = append(errs, v.refused)
		}
		applied = applied || s.placeOf(cluster).mark != was
	}
	for _, cluster := range gone {
		applied = s.remove(u, cluster) || applied
	}
	if applied && s.Done != nil {
		s.Done()
	}
	return errors.Join(errs...)
}

// remove forgets a cluster that an upstream has no more, if that knows newer plans than the one
// in force for it. Who serves a single cluster goes on all the same.
func (s *Subscriber) remove(u *upstream, cluster string) bool {
	delete(u.views, cluster)
	in := s.places[cluster]
	if in == nil || s.Cluster != "" {
		return false
	}
	for _, v := range u.views {
		if in.mark.less(v.newest) {
			delete(s.places, cluster)
			s.unsave(cluster)
			if s.Gone != nil {
				s.Gone(cluster)
			}
			return true
		}
	}
	return false
}

// note says a refusal once, not at every tick.
func (s *Subscriber) note(u *upstream, said *string, why *refusal) {
	if why == nil {
		*said = ""
		return
	}
	if why.kind != *said {
		*said = why.kind
		s.Log.Warn("snapshot refused; the last one stays in force", "upstream", u.name, "error", why)
	}
}

// offer judges what an upstream holds now.
func (s *Subscriber) offer(v *view, c candidate) *refusal {
	v.newest = c.mark
	if v.peak.less(c.mark) {
		v.peak = c.mark
	}
	return s.judge(v.peak, c)
}

// judge applies a snapshot that is newer than what is in force, whoever brings it. One that is
// only behind is no fault: the upstream has not heard of the newer yet. A lower epoch is, for
// its leader is deposed, and so is an upstream that takes back what it has sent.
func (s *Subscriber) judge(peak mark, c candidate) *refusal {
	in := s.placeOf(c.Head.Cluster)
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
	case m == in.mark && in.snapshot != nil:
		return compare(in, c)
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
func compare(in *place, c candidate) *refusal {
	snapshot, err := api.DecodeSnapshot(c.Saved)
	if err == nil && !snapshot.RoutesLike(in.snapshot) {
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
	if s.Cluster != "" && snapshot.Cluster != s.Cluster {
		return refuse(fmt.Errorf("the snapshot is cluster %q's, not %q's", snapshot.Cluster, s.Cluster))
	}
	if err := s.Apply(snapshot); err != nil {
		return refuse(err)
	}
	in := s.placeOf(snapshot.Cluster)
	in.mark, in.parts, in.snapshot = c.mark, c.parts, snapshot
	return nil
}
