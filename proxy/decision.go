package proxy

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/route"
)

// ringSize is how many decisions a data plane remembers.
const ringSize = 4096

// Decision says how one request was routed and what became of it.
type Decision struct {
	ID         string    `json:"id"`
	Time       time.Time `json:"time"`
	Cluster    string    `json:"cluster"`
	Model      string    `json:"model"`
	Priority   string    `json:"priority"`
	Epoch      uint64    `json:"epoch"` // of the snapshot
	Version    uint64    `json:"version"`
	Aged       float64   `json:"aged,omitempty"`       // part of its weights that age had taken
	Key        string    `json:"key"`                  // where the affinity key came from
	KeyHash    uint64    `json:"key_hash"`             //
	Depth      int       `json:"depth"`                // blocks of the prompt that make the key
	Work       int64     `json:"work"`                 // expected tokens, and as many again as a usual request has
	Spilled    int       `json:"spilled"`              // engines passed over because they were at their bound
	Passed     int       `json:"passed"`               // engines passed over because they fail
	Remembered bool      `json:"remembered,omitempty"` // the prefix went to the first engine before
	Queued     float64   `json:"queued"`               // seconds waited for room
	Status     int       `json:"status"`
	Refused    string    `json:"refused,omitempty"` // code of our own refusal
	Seconds    float64   `json:"seconds"`           // arrival to the answer's end
	Attempts   []Attempt `json:"attempts"`
}

// Attempt is one try at one engine.
type Attempt struct {
	Engine    string  `json:"engine"`
	Outcome   string  `json:"outcome"`
	Error     string  `json:"error,omitempty"`
	FirstByte float64 `json:"first_byte"` // seconds; 0 when none came
	Predicted float64 `json:"predicted"`  // seconds, by the plan
}

// record is a decision in the ring. It is small, for the collector of garbage looks at all of the
// ring every few hundred requests; to record one attempt allocates nothing.
type record struct {
	sequence           uint64
	arrived            int64 // nanoseconds; 0 of a place in the ring that is free
	model, refused     string
	epoch, version     uint64
	aged               float64
	hash               uint64
	work               int64
	queued, seconds    float64
	depth, status      int32
	spilled, passed, n uint16 // n attempts
	key                route.KeySource
	priority           fleet.Priority
	remembered         bool
	first              Attempt
	more               []Attempt // after the first
}

func (r *record) attempt(a Attempt) {
	switch {
	case r.n == 0:
		r.first = a
	case r.n < route.MaxOrder:
		r.more = append(r.more, a)
	default:
		return
	}
	r.n++
}

// last is the attempt that was recorded last; there is one.
func (r *record) last() *Attempt {
	if n := len(r.more); n > 0 {
		return &r.more[n-1]
	}
	return &r.first
}

// decision says what was recorded.
func (r *record) decision(id, cluster string) Decision {
	d := Decision{
		ID: id, Time: time.Unix(0, r.arrived), Cluster: cluster, Model: r.model, Priority: r.priority.String(), Epoch: r.epoch, Version: r.version, Aged: r.aged,
		Key: r.key.String(), KeyHash: r.hash, Depth: int(r.depth), Work: r.work, Spilled: int(r.spilled), Passed: int(r.passed), Remembered: r.remembered,
		Queued: r.queued, Status: int(r.status), Refused: r.refused, Seconds: r.seconds, Attempts: []Attempt{},
	}
	if r.n > 0 {
		d.Attempts = append(append(d.Attempts, r.first), r.more...)
	}
	return d
}

// ring remembers the newest decisions. Safe for concurrent use.
type ring struct {
	instance string
	cluster  string
	next     atomic.Uint64
	slots    [ringSize]struct {
		mu sync.Mutex
		r  record
	}
}

// id names a decision: the data plane's instance and a number.
func (g *ring) id(sequence uint64) string {
	var buf [64]byte
	return string(strconv.AppendUint(append(append(buf[:0], g.instance...), '-'), sequence, 10))
}

func (g *ring) put(r *record) {
	s := &g.slots[r.sequence%ringSize]
	s.mu.Lock()
	s.r = *r
	s.mu.Unlock()
}

// get finds a decision by its id; false when it was never made here or is
// forgotten.
func (g *ring) get(id string) (Decision, bool) {
	number, ok := strings.CutPrefix(id, g.instance+"-")
	sequence, err := strconv.ParseUint(number, 10, 64)
	if !ok || err != nil {
		return Decision{}, false
	}
	s := &g.slots[sequence%ringSize]
	s.mu.Lock()
	r := s.r
	s.mu.Unlock()
	if r.sequence != sequence || r.arrived == 0 {
		return Decision{}, false
	}
	return r.decision(id, g.cluster), true
}

// Decision finds the decision of an x-wardrop-decision header.
func (p *DataPlane) Decision(id string) (Decision, bool) { return p.decisions.get(id) }
