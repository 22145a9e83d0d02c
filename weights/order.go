package weights

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

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

func markOfSnapshot(s *fleet.Snapshot) mark { return mark{s.Epoch, s.Version, s.Time.UnixNano()} }

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
	cluster string
	mark    mark
	parts   uint64 // digest of what the head names
	decode  func() (*fleet.Snapshot, error)
}

func newCandidate(h *pb.Head, decode func() (*fleet.Snapshot, error)) *candidate {
	var b []byte
	for _, p := range h.GetParts() {
		b = binary.LittleEndian.AppendUint64(append(append(b, p.TypeUrl...), p.Name...), p.Digest)
	}
	return &candidate{h.GetCluster(), markOf(h), api.Digest(b), decode}
}

// content is what there is to save of a snapshot: time alone makes no new file each time.
type content struct{ epoch, version, parts uint64 }

func (c *candidate) content() content { return content{c.mark.epoch, c.mark.version, c.parts} }

// refusal says why a snapshot was refused.
type refusal struct {
	error
	kind string // the same while it would be the same to an operator: said once in the log
}

// Unwrap gives the reason.
func (r *refusal) Unwrap() error { return r.error }

func refuse(err error) *refusal { return &refusal{err, err.Error()} }

// view is what one upstream holds of a cluster, as far as this stream has told.
type view struct {
	judged       *candidate
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
	gone, why := s.put(u, r)
	if why != nil {
		s.note(u, &u.said, why)
		u.spoilt = why
		return why
	}
	var errs []error
	applied := false
	for _, c := range u.assembly.whole() {
		v := u.viewOf(c.cluster)
		if c == v.judged {
			continue
		}
		u.spoilt, u.said, v.judged = nil, "", c
		was := s.placeOf(c.cluster).mark
		v.refused = s.offer(v, c)
		s.note(u, &v.said, v.refused)
		if v.refused != nil {
			errs = append(errs, v.refused)
		}
		applied = applied || s.placeOf(c.cluster).mark != was
	}
	for _, cluster := range gone {
		applied = s.remove(u, cluster) || applied
	}
	if applied && s.Done != nil {
		s.Done()
	}
	return errors.Join(errs...)
}

// errMisfit says that what an upstream sends does not fit to what it sent before.
var errMisfit = errors.New("the upstream must begin anew")

// put adds a response to what its upstream sent before.
func (s *Subscriber) put(u *upstream, r *discovery.DeltaDiscoveryResponse) (gone []string, why *refusal) {
	spoken, err := s.spoken(r)
	if err != nil {
		return nil, &refusal{err, "wire"}
	}
	if spoken != 0 && spoken != u.spoken {
		s.speak(u, spoken)
	}
	gone, err = u.assembly.add(r)
	if err != nil && u.spoken > 1 {
		s.speak(u, u.spoken)
		err = fmt.Errorf("%w: %w", errMisfit, err)
	}
	if err != nil {
		return nil, refuse(err)
	}
	return gone, nil
}

// spoken is the wire of a response, 0 if it does not say.
func (s *Subscriber) spoken(r *discovery.DeltaDiscoveryResponse) (int, error) {
	if r.GetTypeUrl() != api.HeadType {
		return 0, nil
	}
	for _, res := range r.GetResources() {
		table, _, model := api.SplitPart(res.GetName())
		if table || model != "" {
			continue
		}
		h := &pb.Head{}
		if proto.Unmarshal(res.GetResource().GetValue(), h) == nil {
			return api.Spoken(s.wire(), int(h.Wire))
		}
	}
	return 0, nil
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
func (s *Subscriber) offer(v *view, c *candidate) *refusal {
	v.newest = c.mark
	if v.peak.less(c.mark) {
		v.peak = c.mark
	}
	return s.judge(v.peak, c)
}

// judge applies a snapshot that is newer than what is in force, whoever brings it. One that is
// only behind is no fault: the upstream has not heard of the newer yet. A lower epoch is, for
// its leader is deposed, and so is an upstream that takes back what it has sent.
func (s *Subscriber) judge(peak mark, c *candidate) *refusal {
	in := s.placeOf(c.cluster)
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
func compare(in *place, c *candidate) *refusal {
	snapshot, err := c.decode()
	if err == nil && !snapshot.RoutesLike(in.snapshot) {
		err = fmt.Errorf("epoch %d version %d differs from the one in force that is called the same", c.mark.epoch, c.mark.version)
	}
	if err != nil {
		return &refusal{err, "two"}
	}
	return nil
}

// apply decodes, checks and applies a snapshot.
func (s *Subscriber) apply(c *candidate) *refusal {
	snapshot, err := c.decode()
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
