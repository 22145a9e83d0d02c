package route

import (
	"math"
	"slices"
	"strings"

	"github.com/wardrop-lb/wardrop/fleet"
)

// MaxOrder is the most engines that a pick names: the first and its fallbacks.
const MaxOrder = 4

// maxProbes bounds the search for an engine within its bound; beyond it the
// least loaded of those seen is taken.
const maxProbes = 32

// leastEps is what is left of eps for prefixes at full utilisation.
const leastEps = 0.1

// choices is how many engines pickAny looks at: four are nearly as good as all.
const choices = 4

// maxFailing is how many failing engines the search for a next one steps over.
const maxFailing = 12

// Router picks by one snapshot. It is immutable and safe for concurrent use;
// the data plane swaps one for the next.
type Router struct {
	Snapshot *fleet.Snapshot
	rows     map[string]*Row
	rough    bool // tables are not calibrated
}

// New builds the router of a snapshot. eps is how far an engine's work in
// flight may exceed its share. Building takes milliseconds for a thousand
// engines: it belongs off the request path. previous, which may be nil, lends
// the tables of rows whose weights did not change.
func New(s *fleet.Snapshot, flights *Flights, eps float64, previous *Router) *Router {
	return newRouter(s, flights, eps, previous, size{fine, calibrationPasses}, inTurn)
}

// NewSoon is New for who can serve nobody until it is there: its slot tables are not calibrated,
// which takes a third of the time, gives shares that are a few times as rough, and sends nearly
// all keys where New does, which is to take its place soon. run calls job(0), ..., job(n-1), in any
// order or at once, and returns when all are done: each builds a row's table.
func NewSoon(s *fleet.Snapshot, flights *Flights, eps float64, run func(n int, job func(i int))) *Router {
	r := newRouter(s, flights, eps, nil, size{fine, 0}, run)
	r.rough = true
	return r
}

func inTurn(n int, job func(i int)) {
	for i := range n {
		job(i)
	}
}

// NewCoarse is New with slot tables of a sixteenth of the size, which build as much
// faster and have shares four times as rough: for who runs the data planes of many
// clusters at once.
func NewCoarse(s *fleet.Snapshot, flights *Flights, eps float64, previous *Router) *Router {
	return newRouter(s, flights, eps, previous, size{fine / 16, calibrationPasses}, inTurn)
}

func newRouter(s *fleet.Snapshot, flights *Flights, eps float64, previous *Router, tables size, run func(n int, job func(i int))) *Router {
	r := &Router{Snapshot: s, rows: make(map[string]*Row, len(s.Rows))}
	var build []*Row
	for i := range s.Rows {
		row := newRow(s, &s.Rows[i], flights, eps)
		old := previous.Row(row.Model)
		if old != nil && slices.Equal(old.names, row.names) {
			row.names = old.names
		} else {
			old = nil
		}
		if old != nil && !previous.rough && slices.Equal(old.weighted, row.weighted) {
			row.table = old.table
		} else {
			build = append(build, row)
		}
		r.rows[row.Model] = row
	}
	run(len(build), func(i int) { build[i].buildTable(tables) })
	return r
}

// Row finds a model's row; nil when the snapshot has none.
func (r *Router) Row(model string) *Row {
	if r == nil {
		return nil
	}
	return r.rows[model]
}

// Models lists the models of the snapshot, sorted.
func (r *Router) Models() []string {
	names := make([]string, len(r.Snapshot.Rows))
	for i := range names {
		names[i] = r.Snapshot.Rows[i].Model
	}
	return names
}

// Row is one model's part of a router.
type Row struct {
	Model       string
	Shed        [fleet.NumPriorities]float64
	Utilisation float64
	Fastest     float64 // seconds: the least predicted time of the row's engines

	names     []string // of targets; the same as those of the row before, if its engines are
	targets   []Target
	weighted  []float64 // by target
	fallbacks []int32   // targets without slots, nearest first
	table     slotTable
	flights   *rowFlights
	allowance float64          // 1 + eps
	tight     float64          // the same for keys that are only a guess
	places    *places          // where prefixes went; nil when other data planes cannot know
	byID      map[uint32]int32 // targets by engineID, with places
}

// Target is one engine of a row.
type Target struct {
	Engine    fleet.SnapshotEngine
	Weight    float64
	Predicted float64 // seconds from the data plane and back
	Network   float64 // seconds of these in the network
	Limit     float64 // requests that this data plane may have there at once; 0 has no bound
	Share     float64 // of the row's work in flight when weights and predictions hold
	Flight    *Flight
}

// newRow resolves a row's engines. By Little's law an engine that gets its
// weight holds weight x time of the work in flight: that is its share.
func newRow(s *fleet.Snapshot, sr *fleet.SnapshotRow, flights *Flights, eps float64) *Row {
	row := &Row{Model: sr.Model, Shed: sr.Shed, Utilisation: sr.Utilisation, allowance: 1 + eps, tight: 1 + eps*min(1, max(leastEps, 2*(1-sr.Utilisation)))}
	sum := 0.0
	for _, t := range sr.Targets {
		e := s.Engines[t.Engine]
		target := Target{Engine: e, Weight: t.Weight, Predicted: t.Predicted, Network: t.Network, Limit: t.Limit, Flight: flights.Get(sr.Model, e.Name)}
		target.Share = t.Weight * max(t.Predicted, 1e-3)
		sum += target.Share
		if len(row.targets) == 0 || t.Predicted < row.Fastest {
			row.Fastest = t.Predicted
		}
		row.targets, row.names = append(row.targets, target), append(row.names, e.Name)
		row.weighted = append(row.weighted, t.Weight)
		row.flights = target.Flight.row
	}
	if s.Replicas == 1 {
		row.remember(&flights.places)
	}
	for i := range row.targets {
		t := &row.targets[i]
		t.Share /= sum
		if t.Weight < weightFloor {
			row.fallbacks = append(row.fallbacks, int32(i))
		}
	}
	slices.SortStableFunc(row.fallbacks, func(a, b int32) int {
		x, y := &row.targets[a], &row.targets[b]
		switch {
		case x.Predicted < y.Predicted:
			return -1
		case x.Predicted > y.Predicted:
			return 1
		}
		return strings.Compare(x.Engine.Name, y.Engine.Name)
	})
	return row
}

func (r *Row) buildTable(tables size) {
	r.table = newSlotTable(r.names, r.weighted, tables)
}

// Targets lists the row's engines, sorted by name; not to be modified.
func (r *Row) Targets() []Target { return r.targets }

// Names are the names of Targets; not to be modified. They outlive the row cheaply, for rows of
// the same engines share them.
func (r *Row) Names() []string { return r.names }

// Rough tells that the router was built by NewSoon.
func (r *Router) Rough() bool { return r.rough }

// Pick is the decision for one request: the engine that serves it, and what is
// needed to name the next ones if that fails.
type Pick struct {
	// Spilled counts the engines passed over because they were at their bound,
	// Passed those passed over because they fail.
	Spilled, Passed int
	// Probing tells that the engine fails and that this request is the one that is to
	// find out whether it is back.
	Probing bool
	// Remembered tells that the prefix went to this engine before.
	Remembered bool

	// home tells that the engine is where the prefix's cache is to be expected.
	home bool
	// learn tells that where the request goes is to be remembered, for the prefix place.
	learn bool
	place uint64

	hash  uint64 // of the next probe
	order [MaxOrder]int32
	n     int
	trace *Trace // may be nil
}

// Len is the number of engines named so far.
func (p *Pick) Len() int { return p.n }

// At gives the index in Targets of the i-th choice.
func (p *Pick) At(i int) int { return int(p.order[i]) }

func (p *Pick) has(i int32) bool { return slices.Contains(p.order[:p.n], i) }

func (p *Pick) add(i int32) int {
	p.order[p.n] = i
	p.n++
	return int(i)
}

// pick chooses for a request whose key hashes to h and whose expected work is
// work tokens, at time now in nanoseconds: the first engine of the key's probe
// sequence that is neither failing nor at its bound, or one that fails and is due
// to be probed.
//
// The bound is that of consistent hashing with bounded loads (Mirrokni, Thorup
// and Zadimoghaddam 2018), weighted by each engine's share.
func (r *Row) pick(h uint64, work, now int64, allowance float64, trace *Trace) Pick {
	p := Pick{hash: h, trace: trace}
	total := float64(r.inFlight(trace))
	least, leastLoad := int32(-1), 0.0
	var over [MaxOrder]int32
	for n := 0; n < MaxOrder && n < len(r.targets); {
		i, ok := r.probe(&p, over[:n])
		if !ok {
			break
		}
		t := &r.targets[i]
		limit := allowance*t.Share*total + float64(work)
		load, state := t.look(i, limit, now, true, trace)
		switch state {
		case Within, Probing:
			p.Probing = state == Probing
			p.add(i)
			return p
		case Failing:
			p.Passed++
		default:
			p.Spilled++
			if rel := load / limit; least < 0 || rel < leastLoad {
				least, leastLoad = i, rel
			}
		}
		over[n] = i
		n++
	}
	p.hash = h // all are at their bound or failing: begin anew for the next choices
	if least >= 0 {
		p.add(least)
	} else {
		r.Next(&p)
	}
	return p
}

// inFlight is the row's work in flight.
func (r *Row) inFlight(trace *Trace) int64 {
	work := r.flights.work.Load()
	if trace != nil {
		work = trace.see(Look{Kind: LookRow, Target: -1, InFlight: work}).InFlight
	}
	return work
}

// look tells how a target stands to its bound. Of one that fails it takes the turn to be probed,
// if that is due and wanted.
func (t *Target) look(i int32, bound float64, now int64, probe bool, trace *Trace) (load float64, state LookState) {
	work, failing := t.Flight.work.Load(), t.Flight.PassedOver()
	within := float64(work) < bound
	switch {
	case failing && probe && within && !t.full() && t.Flight.admits(now):
		state = Probing
	case failing:
		state = Failing
	case !within:
		state = Over
	}
	if trace != nil {
		was := trace.see(Look{Kind: LookProbe, Target: i, InFlight: work, Bound: float32(bound), State: state})
		work, state = was.InFlight, was.State
		trace.sameBound(was, bound)
	}
	return float64(work), state
}

// pickAny chooses for a request without a key, h being random: of a few engines of the
// sequence the one that holds least of what its share allows, which evens out what
// chance and slow engines do (Mitzenmacher 2001).
func (r *Row) pickAny(h uint64, work, now int64, trace *Trace) Pick {
	best, lowest := h, math.Inf(1)
	for range choices {
		i := r.table.slots[h&r.table.mask]
		t := &r.targets[i]
		load := t.Flight.work.Load()
		if trace != nil {
			load = trace.see(Look{Kind: LookChoice, Target: int32(i), InFlight: load}).InFlight
		}
		if x := float64(load) / t.Share; x < lowest {
			best, lowest = h, x
		}
		h = mix(h + phi)
	}
	return r.pick(best, work, now, r.allowance, trace)
}

// probe gives the next engine of a pick's sequence that is not in seen.
func (r *Row) probe(p *Pick, seen []int32) (int32, bool) {
	for range maxProbes {
		i := int32(r.table.slots[p.hash&r.table.mask])
		p.hash = mix(p.hash + phi)
		if !slices.Contains(seen, i) {
			return i, true
		}
	}
	return 0, false
}

// Next names another engine for a picked request: the next well one of the
// sequence, else the nearest well one of no weight, else one that is passed over,
// for a failing engine is still better than none. It reports false when there is
// none, or when MaxOrder have been named.
func (r *Row) Next(p *Pick) (target int, ok bool) {
	if p.n == MaxOrder {
		return 0, false
	}
	failing := int32(-1)
	var seen [MaxOrder + maxFailing]int32
	for n := copy(seen[:], p.order[:p.n]); n < len(seen); n++ {
		i, ok := r.probe(p, seen[:n])
		if !ok {
			break
		}
		if !r.passedOver(i, p.trace) {
			return p.add(i), true
		}
		if failing < 0 {
			failing = i
		}
		seen[n] = i
	}
	i := r.last(p, failing)
	if p.trace != nil {
		i = p.trace.see(Look{Kind: LookLast, Target: i}).Target
	}
	if i < 0 {
		return 0, false
	}
	return p.add(i), true
}

func (r *Row) passedOver(i int32, trace *Trace) bool {
	failing := r.targets[i].Flight.PassedOver()
	if trace != nil {
		l := Look{Kind: LookNext, Target: i}
		if failing {
			l.State = Failing
		}
		failing = trace.see(l).State == Failing
	}
	return failing
}

// last is who comes after the sequence; failing is its first that is passed over, -1 for none.
func (r *Row) last(p *Pick, failing int32) int32 {
	for _, i := range r.fallbacks {
		if !p.has(i) && !r.targets[i].Flight.PassedOver() {
			return i
		}
	}
	// Probing may miss an engine of little weight.
	for i := range r.targets {
		if !p.has(int32(i)) && !r.targets[i].Flight.PassedOver() {
			return int32(i)
		}
	}
	if failing >= 0 {
		return failing
	}
	for _, i := range r.fallbacks {
		if !p.has(i) {
			return i
		}
	}
	return -1
}

// PassOver passes a failing engine over from now until a time, unless that would
// take more than half of the row's capacity out at once; the first engine of a
// row with several may always be passed over. It reports whether it did.
func (r *Row) PassOver(target int, now, until int64) bool {
	r.flights.passing.Lock()
	defer r.flights.passing.Unlock()
	total, passed, others := 0.0, 0.0, 0
	for i := range r.targets {
		t := &r.targets[i]
		total += t.Engine.Capacity
		if i != target && t.Flight.PassedOver() {
			passed += t.Engine.Capacity
			others++
		}
	}
	t := &r.targets[target]
	first := others == 0 && len(r.targets) > 1
	if !first && passed+t.Engine.Capacity > total/2 {
		return false
	}
	t.Flight.passOver(now, until)
	return true
}
