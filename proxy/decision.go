package proxy

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

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

// record is a decision in the ring: of fixed size, so that recording allocates
// nothing.
type record struct {
	Decision
	key      route.KeySource
	attempts [route.MaxOrder]Attempt
	n        int
	sequence uint64
}

func (r *record) attempt(a Attempt) {
	if r.n < len(r.attempts) {
		r.attempts[r.n] = a
		r.n++
	}
}

// ring remembers the newest decisions. Safe for concurrent use.
type ring struct {
	instance string
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
	if r.sequence != sequence || r.Time.IsZero() {
		return Decision{}, false
	}
	d := r.Decision
	d.ID, d.Key = id, r.key.String()
	d.Attempts = append([]Attempt{}, r.attempts[:r.n]...)
	return d, true
}

// Decision finds the decision of an x-wardrop-decision header.
func (p *DataPlane) Decision(id string) (Decision, bool) { return p.decisions.get(id) }
