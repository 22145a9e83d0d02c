package proxy

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/route"
)

// Decision says how one request was routed and what became of it.
type Decision struct {
	ID       string    `json:"id"`
	Trace    string    `json:"trace_id,omitempty"` // W3C trace of the request
	Kept     Kept      `json:"kept"`               // why it was recorded
	Time     time.Time `json:"time"`               // of its arrival
	Cluster  string    `json:"cluster"`
	Path     string    `json:"path,omitempty"`
	Client   string    `json:"client,omitempty"` // its address
	Model    string    `json:"model"`
	Alias    string    `json:"alias,omitempty"` // what the client called the model, if that is an alias
	Priority string    `json:"priority"`
	Epoch    uint64    `json:"epoch"` // of the snapshot
	Version  uint64    `json:"version"`
	Aged     float64   `json:"aged,omitempty"` // part of its weights that age had taken
	// Table is the number of the weights in force, at this data plane: of a snapshot there are
	// several as it ages.
	Table       uint64  `json:"table"`
	Utilisation float64 `json:"utilisation"`             // of the row, as planned
	ShedPart    float64 `json:"shed_fraction,omitempty"` // of its priority that the plan refuses
	Lot         float64 `json:"shed_draw,omitempty"`     // what it drew: below the fraction it is refused
	RetriesLeft float64 `json:"retries_left"`            // in the budget, when it was admitted

	Key        string  `json:"key"`             // where the affinity key came from
	KeyHash    uint64  `json:"key_hash,string"` //
	Depth      int     `json:"depth,omitempty"` // blocks of the prompt that make the key
	Work       int64   `json:"work"`            // expected tokens, and as many again as a usual request has
	Probes     []Probe `json:"probes"`
	Cut        bool    `json:"cut,omitempty"` // there were more probes
	Picked     string  `json:"picked,omitempty"`
	Spilled    int     `json:"spilled,omitempty"`    // engines passed over because they were at their bound
	Passed     int     `json:"passed,omitempty"`     // engines passed over because they fail
	Remembered bool    `json:"remembered,omitempty"` // the prefix went to the picked engine before
	Queued     float64 `json:"queued,omitempty"`     // seconds waited for room

	Attempts []Attempt `json:"attempts"`
	Status   int       `json:"status"`
	Refused  string    `json:"refused,omitempty"` // code of our own refusal
	Aborted  string    `json:"aborted,omitempty"` // code of why an answer was cut off that had begun
	Seconds  float64   `json:"seconds"`           // arrival to the answer's end
	Prompt   int64     `json:"prompt_tokens,omitempty"`
	Output   int64     `json:"output_tokens,omitempty"`
	Cached   int64     `json:"cached_tokens,omitempty"` // of the prompt
}

// Probe is one thing that the decision looked at, in order.
type Probe struct {
	Look   string `json:"look"`             // route.LookKind
	Engine string `json:"engine,omitempty"` // none where it is about the row, or found none
	State  string `json:"state"`            // route.LookState
	// InFlight is what it saw: tokens, of a charge the requests that were there; Bound is what it held
	// that against.
	InFlight int64   `json:"in_flight"`
	Bound    float32 `json:"bound,omitempty"`
}

// Attempt is one try at one engine.
type Attempt struct {
	Engine    string  `json:"engine"`
	After     float64 `json:"after"` // seconds from the request's arrival to this try
	Outcome   string  `json:"outcome"`
	Error     string  `json:"error,omitempty"`
	FirstByte float64 `json:"first_byte"` // seconds from the try; 0 when none came that could be passed on
	// FailedAfter is when it failed, or was given up, seconds from the try.
	FailedAfter float64 `json:"failed_after,omitempty"`
	// Expected is when a first byte was expected, seconds from the try: the part that first bytes of
	// the model take lately of what the plan predicts for a request of this size; of an answer that comes
	// whole at least all of that.
	Expected  float64 `json:"expected_first_byte"`
	Predicted float64 `json:"predicted"` // seconds for a usual request as a whole, by the plan
}

// record is a decision in the ring. It is small where the collector of garbage looks, which it does
// every few hundred requests: what has no pointers stands last. To record one attempt allocates
// nothing.
type record struct {
	model, alias     string
	refused, aborted string
	path, client     string
	names            []string // of the row's engines
	first            Attempt
	more             []Attempt // after the first
	sequence         uint64
	arrived          int64 // nanoseconds; 0 of a place in the ring that is free
	epoch, version   uint64
	table            uint64
	aged             float64
	utilisation      float64
	shedPart, lot    float64
	retriesLeft      float64
	hash             uint64
	work             int64
	queued, seconds  float64
	prompt, output   int64
	cached           int64
	trace            [16]byte
	depth, status    int32
	spilled, passed  uint16
	n                uint16 // attempts
	key              route.KeySource
	priority         fleet.Priority
	kept             Kept
	remembered, slow bool
	asked            bool // the engines were asked in turn, which is no retry
	probes           route.Trace
}

func (r *record) attempt(a Attempt) {
	switch {
	case r.n == 0:
		r.first = a
	case r.n < maxAsked:
		r.more = append(r.more, a)
	default:
		return
	}
	r.n++
}

// brief bounds what is kept of a text that others wrote, in bytes, and makes it UTF-8.
func brief(text string, most int) string {
	if len(text) > most {
		text = strings.Clone(text[:most]) // what is left out is not to be kept in memory
	}
	return strings.ToValidUTF8(text, "\ufffd")
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
		ID: id, Kept: r.kept, Time: time.Unix(0, r.arrived), Cluster: cluster, Path: r.path, Client: r.client, Model: r.model, Alias: r.alias, Priority: r.priority.String(),
		Epoch: r.epoch, Version: r.version, Aged: r.aged, Table: r.table, Utilisation: r.utilisation, ShedPart: r.shedPart, Lot: r.lot, RetriesLeft: r.retriesLeft,
		Key: r.key.String(), KeyHash: r.hash, Depth: int(r.depth), Work: r.work, Cut: r.probes.Cut(),
		Spilled: int(r.spilled), Passed: int(r.passed), Remembered: r.remembered,
		Queued: r.queued, Status: int(r.status), Refused: r.refused, Aborted: r.aborted, Seconds: r.seconds, Probes: []Probe{}, Attempts: []Attempt{},
		Prompt: r.prompt, Output: r.output, Cached: r.cached,
	}
	if r.trace != [16]byte{} {
		d.Trace = hexed(r.trace)
	}
	for _, l := range r.probes.Looks() {
		x := Probe{Look: l.Kind.String(), State: l.State.String(), InFlight: l.InFlight, Bound: l.Bound}
		if l.Target >= 0 {
			x.Engine = r.names[l.Target]
		}
		if d.Picked == "" && l.Kind == route.LookCharge && l.State == route.Within {
			d.Picked = x.Engine
		}
		d.Probes = append(d.Probes, x)
	}
	if r.n > 0 {
		d.Attempts = append(append(d.Attempts, r.first), r.more...)
		// Of two at once the one that was answered is recorded last.
		slices.SortStableFunc(d.Attempts, func(a, b Attempt) int { return cmp.Compare(a.After, b.After) })
	}
	return d
}
