package proxy

import (
	"cmp"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/route"
)

const (
	// sampleSize is how many decisions a data plane remembers of those that came to nothing special,
	// notableSize of the others.
	sampleSize  = 4096
	notableSize = 1024
	// slowFactor is by how much a first byte must be later than expected to be notable, and leastSlow
	// how late at least.
	slowFactor = 3
	leastSlow  = 0.1
)

// Kept is why a decision was recorded.
type Kept string

// The reasons. Errors, retries and slow requests are recorded always, others as a sample once there
// are more than a data plane is to record.
const (
	KeptSample Kept = "sample"
	KeptError  Kept = "error" // the client got no answer, or one that tells of a failure or was cut off
	KeptRetry  Kept = "retry" // there was more than one attempt
	KeptSlow   Kept = "slow"  // the first byte came three times as late as expected, waiting for room included
)

// AllKept are the reasons there are; not to be modified.
var AllKept = []Kept{KeptError, KeptRetry, KeptSlow, KeptSample}

// notable is why a request that has ended is worth remembering, KeptSample for no reason. What the
// plan sheds, finds no room or was given up by the client is no error of anybody: a storm of it would
// drive errors out. A request without a status met an error of our own.
func (r *record) notable() Kept {
	gone := r.status == statusClientClosed || r.aborted == codeGone
	switch {
	case r.status >= http.StatusInternalServerError, r.status == 0, r.aborted != "" && !gone, r.n > 0 && r.last().Error != "" && !gone && !r.asked:
		return KeptError
	case r.n > 1 && !r.asked:
		return KeptRetry
	case r.slow:
		return KeptSlow
	}
	return KeptSample
}

// records remembers decisions: the newest, and longer those that are notable. Safe for concurrent use.
type records struct {
	instance, cluster string
	next              atomic.Uint64 // numbers requests
	sample, notable   ring
	pace              pace
	tables            tables
	log               *AccessLog // nil without one
}

func newRecords(instance, cluster string, perSecond float64) *records {
	interval := int64(0)
	if perSecond > 0 {
		interval = int64(1e9 / perSecond)
	}
	return &records{
		instance: instance, cluster: cluster, pace: pace{interval: interval},
		sample: ring{slots: make([]slot, sampleSize)}, notable: ring{slots: make([]slot, notableSize)},
	}
}

// ring holds the newest of the records that it is given.
type ring struct {
	next  atomic.Uint64
	slots []slot
}

type slot struct {
	mu sync.Mutex
	r  record
}

func (g *ring) put(r *record) {
	s := &g.slots[g.next.Add(1)%uint64(len(g.slots))]
	s.mu.Lock()
	s.r = *r
	s.mu.Unlock()
}

// find visits the records, in no order, until visit returns true.
func (g *ring) find(visit func(*record) bool) bool {
	for i := range g.slots {
		s := &g.slots[i]
		s.mu.Lock()
		done := s.r.arrived != 0 && visit(&s.r)
		s.mu.Unlock()
		if done {
			return true
		}
	}
	return false
}

// farAhead is by how much less a clock says than it did, in nanoseconds, if it was set back.
const farAhead = 10e9

// pace lets so many through in a second and, after a pause, as many at once: the generic cell rate
// algorithm (ITU-T I.371). Safe for concurrent use. A clock that is set back begins it anew.
type pace struct {
	interval int64 // nanoseconds; 0 lets none through
	due      atomic.Int64
}

func (p *pace) lets(now int64) bool {
	for p.interval > 0 {
		due := p.due.Load()
		next := max(due, now) + p.interval
		switch {
		case due > now+farAhead+p.interval:
			next = now + p.interval
		case due > now+1e9:
			return false
		}
		if p.due.CompareAndSwap(due, next) {
			return true
		}
	}
	return false
}

// put remembers a request that has ended.
func (g *records) put(r *record) {
	r.kept = r.notable()
	if g.log != nil {
		g.log.put(g, r)
	}
	to := &g.notable
	if r.kept == KeptSample {
		if to = &g.sample; !g.pace.lets(r.arrived + int64(r.seconds*1e9)) {
			return
		}
	}
	if len(r.names) > route.MaxLooks {
		r.names = r.probes.Compact(r.names) // those of all engines are many, and others in each snapshot
	}
	to.put(r)
}

// id names a decision: the data plane's instance and a number.
func (g *records) id(sequence uint64) string {
	var buf [64]byte
	return string(strconv.AppendUint(append(append(buf[:0], g.instance...), '-'), sequence, 10))
}

// get finds a decision by its id; false when it was never made here, not recorded or is forgotten.
func (g *records) get(id string) (d Decision, ok bool) {
	number, ok := strings.CutPrefix(id, g.instance+"-")
	sequence, err := strconv.ParseUint(number, 10, 64)
	if !ok || err != nil {
		return Decision{}, false
	}
	found := func(r *record) bool {
		if r.sequence != sequence {
			return false
		}
		d = r.decision(id, g.cluster)
		return true
	}
	return d, g.notable.find(found) || g.sample.find(found)
}

// list gives the decisions that are wanted, the oldest first.
func (g *records) list(wanted func(*record) bool) []Decision {
	var out []Decision
	for _, ring := range []*ring{&g.sample, &g.notable} {
		ring.find(func(r *record) bool {
			if wanted(r) {
				out = append(out, r.decision(g.id(r.sequence), g.cluster))
			}
			return false
		})
	}
	slices.SortFunc(out, func(a, b Decision) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.ID, b.ID)) })
	return out
}

// Decision finds the decision of an x-wardrop-decision header. It says false when it was never made
// here, or is forgotten, or was not of the sample.
func (p *DataPlane) Decision(id string) (Decision, bool) { return p.records.get(id) }

// Wanted says which decisions are asked for; the zero value wants all.
type Wanted struct {
	Model, Engine string // that they asked for, maybe by an alias; that was tried or passed over
	Kept          Kept
	Since         time.Time // of their arrival
}

func (w *Wanted) has(r *record) bool {
	switch {
	case w.Model != "" && r.model != w.Model && r.alias != w.Model, w.Kept != "" && r.kept != w.Kept, r.arrived < w.Since.UnixNano() && !w.Since.IsZero():
		return false
	case w.Engine == "" || r.n > 0 && r.first.Engine == w.Engine:
		return true
	}
	for _, l := range r.probes.Looks() {
		if l.Target >= 0 && r.names[l.Target] == w.Engine {
			return true
		}
	}
	return slices.ContainsFunc(r.more, func(a Attempt) bool { return a.Engine == w.Engine })
}

// Decisions lists those that are remembered, the oldest first.
func (p *DataPlane) Decisions(w Wanted) []Decision { return p.records.list(w.has) }

// Table is a snapshot as it was in force, for decisions to be made again.
type Table struct {
	Instance string          `json:"instance"` // of the data plane
	Number   uint64          `json:"number"`
	Bound    float64         `json:"bound"` // how far an engine's work in flight may exceed its share
	Rough    bool            `json:"rough,omitempty"`
	Snapshot *fleet.Snapshot `json:"snapshot"`
}

const (
	// keptTables and keptTargets bound the tables that are remembered: about 4 MiB of targets.
	keptTables  = 64
	keptTargets = 40_000
)

// tables remembers the last ones that were in force. Safe for concurrent use.
type tables struct {
	mu   sync.Mutex
	list []Table
}

func (t *tables) put(table Table) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.list = append(t.list, table)
	targets, keep := 0, 0
	for i := len(t.list) - 1; i >= 0 && keep < keptTables; i-- {
		targets += len(t.list[i].Snapshot.Engines)
		for _, row := range t.list[i].Snapshot.Rows {
			targets += len(row.Targets)
		}
		if keep > 0 && targets > keptTargets {
			break
		}
		keep++
	}
	t.list = slices.Delete(t.list, 0, len(t.list)-keep)
}

// Tables lists those of the last ones in force that decisions refer to.
func (p *DataPlane) Tables(of []Decision) []Table {
	used := map[uint64]bool{}
	for i := range of {
		used[of[i].Table] = true
	}
	t := &p.records.tables
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []Table
	for _, x := range t.list {
		if used[x.Number] {
			out = append(out, x)
		}
	}
	return out
}

func hexed(id [16]byte) string { return hex.EncodeToString(id[:]) }
