package proxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/wardrop-lb/wardrop/route"
)

// Recorded is one line of a file of decisions: a table before the decisions by it, or a decision.
type Recorded struct {
	Table    *Table    `json:"table,omitempty"`
	Decision *Decision `json:"decision,omitempty"`
}

// Replayed is a decision that was made again.
type Replayed struct {
	Decision *Decision
	Picked   string // what comes out now; empty if none
	// Err is why it does not come out the same, or cannot be made again: ErrNoTable, ErrNoPick or
	// route.ErrCut.
	Err error
}

// Why decisions cannot be made again.
var (
	ErrNoTable = errors.New("the file holds no weights that were in force then")
	ErrNoPick  = errors.New("it was answered before an engine was picked")
)

// NotReplayed lists them.
var NotReplayed = []error{ErrNoPick, ErrNoTable, route.ErrCut}

// Why is which of NotReplayed it is, nil if the decision was made again.
func (r *Replayed) Why() error {
	for _, err := range NotReplayed {
		if errors.Is(r.Err, err) {
			return err
		}
	}
	return nil
}

// keptRouters is how many tables' routers a replay keeps.
const keptRouters = 4

// Replay makes the decisions of a file again, by the code that made them, and gives each to result.
// It needs nothing but the file. An error says which line is none of such a file's.
func Replay(file io.Reader, result func(Replayed)) error {
	d := json.NewDecoder(file)
	known := map[string]*Table{}
	routers := map[string]*route.Router{}
	for n := 1; ; n++ {
		var line Recorded
		if err := d.Decode(&line); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		switch {
		case line.Table != nil && line.Table.Snapshot != nil:
			t := line.Table
			if err := t.Snapshot.Validate(); err != nil {
				return fmt.Errorf("line %d: %w", n, err)
			}
			known[fmt.Sprint(t.Instance, "-", t.Number)] = t
		case line.Decision != nil:
			x := line.Decision
			name := fmt.Sprint(x.instance(), "-", x.Table)
			if t := known[name]; t != nil && routers[name] == nil {
				if len(routers) == keptRouters { // decisions by one table stand nearly together
					clear(routers)
				}
				routers[name] = t.router()
			}
			out := Replayed{Decision: x}
			out.Picked, out.Err = x.again(routers[name])
			result(out)
		default:
			return fmt.Errorf("line %d holds neither a table nor a decision", n)
		}
	}
}

// instance is the data plane's that made the decision.
func (d *Decision) instance() string { return d.ID[:max(0, strings.LastIndexByte(d.ID, '-'))] }

func (t *Table) router() *route.Router {
	if t.Rough {
		return route.NewSoon(t.Snapshot, route.NewFlights(), t.Bound, parallel)
	}
	return route.New(t.Snapshot, route.NewFlights(), t.Bound, nil)
}

// again makes the decision by a router that has served nobody; nil for an unknown one.
func (d *Decision) again(router *route.Router) (picked string, err error) {
	if len(d.Probes) == 0 {
		return "", ErrNoPick
	}
	if router == nil {
		return "", ErrNoTable
	}
	row := router.Row(d.Model)
	if row == nil {
		return "", fmt.Errorf("its table has no row of %q", d.Model)
	}
	q := route.Query{Hash: d.KeyHash, Work: d.Work, Now: d.Time.UnixNano()}
	var ok bool
	if q.Source, ok = route.ParseKeySource(d.Key); !ok {
		return "", fmt.Errorf("%q is no kind of key", d.Key)
	}
	looks := make([]route.Look, len(d.Probes))
	for i := range looks {
		if looks[i], err = d.Probes[i].look(row.Names()); err != nil {
			return "", err
		}
	}
	order, err := row.Replay(q, looks, d.Cut)
	if len(order) > 0 {
		picked = row.Names()[order[0]]
	}
	if err == nil && picked != d.Picked {
		err = fmt.Errorf("%q comes out, and was %q", picked, d.Picked)
	}
	return picked, err
}

// look is a probe as it was recorded.
func (p *Probe) look(names []string) (l route.Look, err error) {
	kind, ok1 := route.ParseLookKind(p.Look)
	state, ok2 := route.ParseLookState(p.State)
	if !ok1 || !ok2 {
		return l, fmt.Errorf("%q, %q: no probe of this version", p.Look, p.State)
	}
	l = route.Look{Kind: kind, State: state, InFlight: p.InFlight, Bound: p.Bound, Target: -1}
	if p.Engine != "" {
		if l.Target = int32(slices.Index(names, p.Engine)); l.Target < 0 {
			return l, fmt.Errorf("its table has no engine %q", p.Engine)
		}
	}
	return l, nil
}
