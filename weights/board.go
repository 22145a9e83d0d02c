package weights

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/wardrop-lb/wardrop/api"
	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/fleet"
)

// board serves snapshots by wire 2: in one response all parts of a cluster's snapshot that the
// subscriber lacks, each as what has changed since the version that it holds, if that is the
// last one, and else whole. Parts are encoded when somebody first needs them, once for all.
//
// A subscriber gets a response when it has answered the one before. What is published
// meanwhile does not queue up: the next response has the newest. Safe for concurrent use.
type board struct {
	wire int // that heads say

	mu       sync.Mutex
	postings map[string]*posting // by cluster
	watches  map[uint64]*boardWatch
	last     uint64 // identity of a watch
}

// posting is what is served for a cluster.
type posting struct {
	snapshot *fleet.Snapshot
	table    *piece
	rows     map[string]*piece // by model
	head     *piece
}

// piece is a resource.
type piece struct {
	name, version string
	digest        uint64
	whole         func() *discovery.Resource
	// since is the version, of the resource called sinceName, after which change is enough.
	sinceName, since string
	change           func() *discovery.Resource // nil where all is
}

type boardWatch struct {
	request *cache.DeltaRequest
	sub     cache.Subscription
	out     chan cache.DeltaResponse
}

func newBoard(wire int) *board {
	return &board{wire: wire, postings: map[string]*posting{}, watches: map[uint64]*boardWatch{}}
}

// set replaces what is served.
func (b *board) set(snapshots map[string]*fleet.Snapshot) {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := make(map[string]*posting, len(snapshots))
	tables := map[*fleet.SnapshotEngine]*piece{} // snapshots share them
	for _, cluster := range slices.Sorted(maps.Keys(snapshots)) {
		old := b.postings[cluster]
		if old == nil {
			old = &posting{snapshot: &fleet.Snapshot{}}
		}
		next[cluster] = b.post(old, snapshots[cluster], tables)
	}
	b.postings = next
	for id, w := range b.watches {
		if r := b.respond(w); r != nil {
			delete(b.watches, id)
			w.out <- r // there is room: it is the only one of its type
		}
	}
}

// post makes the pieces of a snapshot, of which those stay that say the same as before.
func (b *board) post(old *posting, s *fleet.Snapshot, tables map[*fleet.SnapshotEngine]*piece) *posting {
	p := &posting{snapshot: s, table: tableOf(old, s, tables), rows: make(map[string]*piece, len(s.Rows))}
	before := make(map[string]*fleet.SnapshotRow, len(old.snapshot.Rows))
	for i := range old.snapshot.Rows {
		before[old.snapshot.Rows[i].Model] = &old.snapshot.Rows[i]
	}
	from, to := old.snapshot.Engines, s.Engines
	places := sync.OnceValue(func() []int32 { return api.Renumber(from, to) })
	for i := range s.Rows {
		r := &s.Rows[i]
		was := before[r.Model]
		if was != nil && p.table == old.table && sameRow(was, r) {
			p.rows[r.Model] = old.rows[r.Model]
			continue
		}
		p.rows[r.Model] = newRow(s, r, was, old.rows[r.Model], places)
	}
	p.head = b.newHead(p)
	return p
}

func sameRow(a, b *fleet.SnapshotRow) bool {
	return a.Shed == b.Shed && a.Utilisation == b.Utilisation && slices.Equal(a.Targets, b.Targets)
}

func tableOf(old *posting, s *fleet.Snapshot, tables map[*fleet.SnapshotEngine]*piece) *piece {
	var key *fleet.SnapshotEngine
	if len(s.Engines) > 0 {
		key = &s.Engines[0]
	}
	if p := tables[key]; p != nil {
		return p
	}
	p := old.table
	if p == nil || !slices.EqualFunc(old.snapshot.Engines, s.Engines, fleet.SnapshotEngine.Equal) {
		p = newTable(s.Engines, old.snapshot.Engines, old.table)
	}
	tables[key] = p
	return p
}

func newTable(engines, were []fleet.SnapshotEngine, old *piece) *piece {
	digest := api.EnginesDigest(engines)
	p := &piece{name: api.EnginesPart(digest), version: versionOf(digest), digest: digest}
	p.whole = sync.OnceValue(func() *discovery.Resource { return p.resource(api.EncodeEngines(engines)) })
	if old != nil {
		since := old.digest
		p.sinceName, p.since = old.name, old.version
		p.change = sync.OnceValue(func() *discovery.Resource { return p.resource(api.EncodeEnginesChange(were, engines, since)) })
	}
	return p
}

// newRow makes a row's piece. It holds on to what the row was, but not to what came before that
// or beside it.
func newRow(s *fleet.Snapshot, r, was *fleet.SnapshotRow, old *piece, places func() []int32) *piece {
	digest, row := api.RowDigest(s.Engines, r), *r
	p := &piece{name: api.RowPart(s.Cluster, r.Model), version: versionOf(digest), digest: digest}
	p.whole = sync.OnceValue(func() *discovery.Resource { return p.resource(api.EncodeRow(&row)) })
	if old != nil {
		before, since := *was, old.digest
		p.sinceName, p.since = old.name, old.version
		p.change = sync.OnceValue(func() *discovery.Resource {
			moved := api.RenumberRow(before, places())
			return p.resource(api.EncodeRowChange(&moved, &row, since))
		})
	}
	return p
}

func (b *board) newHead(p *posting) *piece {
	s := p.snapshot
	h := api.EncodeHead(s)
	h.Wire = uint32(b.wire)
	h.Parts = append(h.Parts, &pb.Part{Name: p.table.name, Digest: p.table.digest})
	for i := range s.Rows {
		row := p.rows[s.Rows[i].Model]
		h.Parts = append(h.Parts, &pb.Part{Name: row.name, Digest: row.digest})
	}
	head := &piece{name: s.Cluster}
	r := head.resource(h)
	r.Version = markOfSnapshot(s).String() + "." + versionOf(api.Digest(r.Resource.Value))
	head.version, head.whole = r.Version, func() *discovery.Resource { return r }
	return head
}

func versionOf(digest uint64) string { return strconv.FormatUint(digest, 36) }

// resource is a message as the piece's resource; nil of no message.
func (p *piece) resource(m proto.Message) *discovery.Resource {
	if !m.ProtoReflect().IsValid() {
		return nil
	}
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err) // the texts were checked
	}
	return &discovery.Resource{Name: p.name, Version: p.version, Resource: &anypb.Any{Value: b}}
}

// respond is what a subscriber lacks; nil for nothing.
func (b *board) respond(w *boardWatch) cache.DeltaResponse {
	known := w.sub.ReturnedResources()
	r := &discovery.DeltaDiscoveryResponse{TypeUrl: api.HeadType}
	next := make(map[string]string, len(known)+1)
	var newest mark
	for _, cluster := range b.wanted(w.sub) {
		p := b.postings[cluster]
		if m := markOfSnapshot(p.snapshot); newest.less(m) {
			newest = m
		}
		r.Resources = p.table.add(r.Resources, known, next)
		for i := range p.snapshot.Rows {
			r.Resources = p.rows[p.snapshot.Rows[i].Model].add(r.Resources, known, next)
		}
		r.Resources = p.head.add(r.Resources, known, next)
	}
	if len(next) == 0 {
		return nil // nothing was published yet, or of no cluster that is wanted
	}
	for name := range known {
		if _, ok := next[name]; !ok {
			r.RemovedResources = append(r.RemovedResources, name)
		}
	}
	if len(r.Resources) == 0 && len(r.RemovedResources) == 0 {
		return nil
	}
	slices.Sort(r.RemovedResources)
	r.SystemVersionInfo = newest.String()
	return &cache.DeltaPassthroughResponse{DeltaRequest: w.request, NextVersionMap: next, DeltaDiscoveryResponse: r}
}

// add appends the piece if the subscriber lacks it, and notes that it will not.
func (p *piece) add(to []*discovery.Resource, known, next map[string]string) []*discovery.Resource {
	if _, done := next[p.name]; done {
		return to
	}
	next[p.name] = p.version
	if known[p.name] == p.version {
		return to
	}
	if p.change != nil && known[p.sinceName] == p.since {
		if r := p.change(); r != nil {
			return append(to, r)
		}
	}
	return append(to, p.whole())
}

// wanted lists the clusters that a subscriber follows and that there are.
func (b *board) wanted(sub cache.Subscription) (out []string) {
	if sub.IsWildcard() {
		return slices.Sorted(maps.Keys(b.postings))
	}
	for name := range sub.SubscribedResources() {
		if b.postings[name] != nil {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// CreateDeltaWatch implements cache.ConfigWatcher.
func (b *board) CreateDeltaWatch(r *cache.DeltaRequest, sub cache.Subscription, out chan cache.DeltaResponse) (func(), error) {
	w := &boardWatch{request: r, sub: sub, out: out}
	b.mu.Lock()
	defer b.mu.Unlock()
	if response := b.respond(w); response != nil {
		out <- response
		return nil, nil
	}
	b.last++
	id := b.last
	b.watches[id] = w
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.watches, id)
	}, nil
}

var errDeltaOnly = errors.New("snapshots are served by incremental xDS alone")

// CreateWatch implements cache.ConfigWatcher.
func (b *board) CreateWatch(*cache.Request, cache.Subscription, chan cache.Response) (func(), error) {
	return nil, errDeltaOnly
}

// String is what the version of a head begins with.
func (m mark) String() string { return fmt.Sprintf("%d.%d.%d", m.epoch, m.version, m.time) }

// parseMark reads a head's version; nothing for what is none.
func parseMark(s string) (m mark) {
	fields := strings.Split(s, ".")
	if len(fields) < 3 {
		return mark{}
	}
	var errs [3]error
	m.epoch, errs[0] = strconv.ParseUint(fields[0], 10, 64)
	m.version, errs[1] = strconv.ParseUint(fields[1], 10, 64)
	m.time, errs[2] = strconv.ParseInt(fields[2], 10, 64)
	if errors.Join(errs[:]...) != nil {
		return mark{}
	}
	return m
}
