package route

import (
	"errors"
	"fmt"
	"slices"
)

// MaxLooks is how many looks a trace holds. A usual pick takes three to seven; one that finds
// every engine failing or full may take more, and is cut.
const MaxLooks = 32

// LookKind says what a decision looked at.
type LookKind uint8

// The kinds, with what State says of each.
const (
	LookRow     LookKind = iota // the row's work in flight
	LookPlace                   // where the prefix went before; no target for one that is new
	LookChoice                  // one of those of which a request without a key takes the least loaded
	LookProbe                   // an engine of the key's sequence: Within, Over, Failing or Probing
	LookStored                  // the engine that holds what the request goes on from; no target if it cannot be used
	LookNext                    // an engine of the sequence, after the first: Within or Failing
	LookLast                    // what is left when the sequence has ended
	LookCharge                  // taking a place at an engine: Within, Full or Failing
	LookCrowded                 // is most of the row full: Full or Within
	LookAny                     // the fastest engine of all that has room
)

var lookKinds = [...]string{"row", "place", "choice", "probe", "stored", "next", "last", "charge", "crowded", "any"}

func (k LookKind) String() string { return lookKinds[k] }

// LookState is what a look found.
type LookState uint8

// The states of an engine.
const (
	Within  LookState = iota // well, and within its bound or limit
	Over                     // at the bound of what its weight allows
	Failing                  // passed over for its failures
	Probing                  // failing, and this request finds out whether it is back
	Full                     // holds all the requests that this data plane may have there
)

var lookStates = [...]string{"within", "over", "failing", "probing", "full"}

func (s LookState) String() string { return lookStates[s] }

// ParseLookKind reads what String gives; false for anything else.
func ParseLookKind(name string) (LookKind, bool) {
	i := slices.Index(lookKinds[:], name)
	return LookKind(max(i, 0)), i >= 0
}

// ParseLookState reads what String gives; false for anything else.
func ParseLookState(name string) (LookState, bool) {
	i := slices.Index(lookStates[:], name)
	return LookState(max(i, 0)), i >= 0
}

// Look is one thing that a decision looked at. All else that it depends on is in the snapshot and
// in the Query.
type Look struct {
	InFlight int64   // tokens; for LookCharge requests that were there
	Bound    float32 // the bound on InFlight, 0 where there is none
	Target   int32   // index into Targets, -1 for none
	Kind     LookKind
	State    LookState
}

// Trace holds what a decision looked at, in the order in which it did: enough to say why each
// engine was passed over, and to decide again elsewhere, identically. The zero value is empty.
// Not safe for concurrent use.
type Trace struct {
	looks  [MaxLooks]Look
	n      uint8
	picked uint8 // looks until the pick was made: what Take sees comes after
	again  bool  // decides again by what it holds
	cut    bool
	cutAt  bool  // it was cut before the pick was made
	at     uint8 // the next look, when it decides again
	err    error // why it does not come out the same
}

// Looks are what was looked at, of the engine that waited for room its last try; not to be modified.
func (t *Trace) Looks() []Look { return t.looks[:t.n] }

// Cut tells that there were more looks than a trace holds.
func (t *Trace) Cut() bool { return t.cut }

// Compact renumbers the targets that the looks are at, and gives their names: who keeps the trace
// need not keep the names of the row's engines, which are Row.Names.
func (t *Trace) Compact(names []string) []string {
	out := make([]string, 0, t.n)
	for i := range t.looks[:t.n] {
		l := &t.looks[i]
		if l.Target < 0 {
			continue
		}
		name := names[l.Target]
		if l.Target = int32(slices.Index(out, name)); l.Target < 0 {
			l.Target, out = int32(len(out)), append(out, name)
		}
	}
	return out
}

// see records a look and returns it. When it decides again, it returns what was seen then.
func (t *Trace) see(l Look) Look {
	if t.again {
		return t.seen(l)
	}
	if t.n == MaxLooks {
		t.cut = true
		return l
	}
	t.looks[t.n] = l
	t.n++
	return l
}

// seen is the look that comes next. Targets that the snapshot decides must be the same.
func (t *Trace) seen(l Look) Look {
	if t.err != nil {
		return l
	}
	if t.at == t.n {
		t.err = errors.New("it looks further than was recorded")
		return l
	}
	was := t.looks[t.at]
	t.at++
	found := l.Kind == LookPlace || l.Kind == LookStored || l.Kind == LookLast || l.Kind == LookAny
	switch {
	case was.Kind != l.Kind:
		t.err = fmt.Errorf("look %d is for the %v, and was for the %v", t.at, l.Kind, was.Kind)
	case !found && was.Target != l.Target:
		t.err = fmt.Errorf("look %d, for the %v, is at target %d and was at %d", t.at, l.Kind, l.Target, was.Target)
	}
	return was
}

// sameBound holds the bound of a probe against what was recorded of it.
func (t *Trace) sameBound(was Look, bound float64) {
	over := float64(was.InFlight) >= bound
	if t.again && t.err == nil && (was.Bound != float32(bound) || was.State != Failing && over != (was.State == Over)) {
		t.err = fmt.Errorf("the bound of target %d is %g, and was %g", was.Target, bound, was.Bound)
	}
}

// begin forgets all for another decision.
func (t *Trace) begin() {
	if !t.again {
		t.n, t.picked, t.cut, t.cutAt = 0, 0, false, false
	}
}

// chosen marks the end of the pick.
func (t *Trace) chosen() {
	if !t.again {
		t.picked, t.cutAt = t.n, t.cut
	}
}

// tries forgets an earlier try to take a place.
func (t *Trace) tries() {
	if !t.again {
		t.n, t.cut = t.picked, t.cutAt
	}
}

// Query is what a decision depends on, beside the row and what it looks at.
type Query struct {
	Source KeySource
	Hash   uint64 // of the key; random without one
	Work   int64  // expected, tokens
	Now    int64  // nanoseconds
	Trace  *Trace // nil to record nothing
}

// Decide picks an engine for a request: by its key the first of the key's sequence that is well and
// within its bound, by a prefix the one that had it before, and without a key the least loaded of a
// few. The trace goes on with Prefer, Take and TakeNext. It allocates nothing.
func (r *Row) Decide(q Query) Pick {
	if q.Trace != nil {
		q.Trace.begin()
	}
	var p Pick
	switch q.Source {
	case KeyNone:
		p = r.pickAny(q.Hash, q.Work, q.Now, q.Trace)
	case KeyPrefix:
		p = r.pickPrefix(q.Hash, q.Work, q.Now, q.Trace)
	default:
		p = r.pick(q.Hash, q.Work, q.Now, r.allowance, q.Trace)
	}
	if q.Trace != nil {
		q.Trace.chosen()
	}
	return p
}

// Replay decides again what a trace recorded, by this row and what was seen then: the very code
// that decided. It returns the engines in whose favour it came out, as indices into Targets, the
// first and those that followed it. An error says where it departs from what was recorded, or
// that the record was cut. The row's router must be of no other use.
func (r *Row) Replay(q Query, looks []Look, cut bool) ([]int, error) {
	if cut || len(looks) > MaxLooks {
		return nil, ErrCut
	}
	t := &Trace{again: true}
	t.n = uint8(copy(t.looks[:], looks))
	for _, l := range looks {
		if int(l.Target) >= len(r.targets) || l.Target < -1 {
			return nil, fmt.Errorf("the row has no target %d", l.Target)
		}
	}
	q.Trace = t
	p := r.Decide(q)
	if t.at < t.n && t.looks[t.at].Kind == LookStored {
		r.Prefer(&p, "")
	}
	var order []int
	if t.at < t.n {
		if c, ok := r.Take(&p, q.Work, q.Now); ok {
			order = append(order, p.At(0))
			c.Release()
		}
	}
	for t.at < t.n && t.err == nil {
		was := t.at
		if i, c, ok := r.TakeNext(&p, q.Work, q.Now); ok {
			order = append(order, i)
			c.Release()
		} else if t.at == was {
			t.err = fmt.Errorf("it looks at %d things, and %d were recorded", t.at, t.n)
		}
	}
	return order, t.err
}

// ErrCut is why a decision cannot be replayed that looked at more than a trace holds.
var ErrCut = errors.New("the decision looked at more than was recorded")
