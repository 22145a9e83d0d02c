package sim

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/wardrop-lb/wardrop/enginemodel"
)

// world is one run: a scenario under one router.
type world struct {
	clock
	scenario *Scenario
	fleet    *Fleet
	router   Router
	engines  []engine
	played   *played // in place of the router and the engines' models; nil in a simulation
	sources  []*source
	random   *rand.Rand // of routers
	jitter   *rand.Rand
	measure  *measure
	signals  signals
	control  bool // the control plane is there

	inside []*Request // by slot: in an engine or on the way to or from one
	free   []int32
	spare  []*Request
	nextID uint64
	seed   uint64
	told   func(Planned)
	trips  func(Trip)
	events []enginemodel.Event
}

// engine is one engine of a run.
type engine struct {
	model   enginemodel.Simulated
	params  enginemodel.Params
	stamp   uint32 // of the wake that counts
	at      time.Duration
	awake   bool // a wake is due at that time
	down    bool
	drained bool
	started uint64  // how often
	factor  float64 // slowdown
	hung    bool
	since   time.Duration // when it began to hang
	lost    time.Duration // how long it has stood still, which its own clock knows nothing of
}

// clock is the engine's own time.
func (e *engine) clock(now time.Duration) time.Duration {
	if e.hung {
		now = e.since
	}
	return now - e.lost
}

// Options are how a scenario is run.
type Options struct {
	Seed uint64
	// Steps runs engines step by step instead of from event to event: slower, and the
	// yardstick of the other.
	Steps bool
	// Progress is told now and then how far the run is, 0 to 1; nil means nobody.
	Progress func(part float64)
	// Planned is told of every tick of one of Policies; nil means nobody. What it is given is
	// not to be changed.
	Planned func(Planned)
	// Routed is told of every request that one of Policies has routed, when it has ended; nil
	// means nobody.
	Routed func(Trip)
}

// Run runs a scenario under a router. A context that ends stops it: the result is then
// of what was run, and Partial. The error says what of the scenario cannot be run.
func Run(ctx context.Context, s *Scenario, name string, maker Maker, o Options) (*Result, error) {
	w, err := newWorld(s, o, nil)
	if err != nil {
		return nil, err
	}
	w.router = maker(&env{w})
	w.begin()
	end := time.Duration(s.Duration)
	told := 0
	for n := 0; ; n++ {
		if n%4096 == 0 {
			if ctx.Err() != nil {
				break
			}
			if part := int(100 * w.now / end); o.Progress != nil && part > told {
				told = part
				o.Progress(float64(part) / 100)
			}
		}
		e, ok := w.take()
		if !ok || e.at >= end {
			break
		}
		w.handle(&e)
	}
	return w.result(name, min(w.now, end), ctx.Err() != nil), nil
}

func newWorld(s *Scenario, o Options, played *played) (*world, error) {
	w := &world{scenario: s, seed: o.Seed, told: o.Planned, trips: o.Routed, control: true, played: played, random: rand.New(rand.NewPCG(o.Seed, 1<<62)), jitter: rand.New(rand.NewPCG(o.Seed, 1<<61))}
	if err := w.setFleet(); err != nil {
		return nil, err
	}
	if played == nil {
		for i := range w.engines {
			if err := w.engines[i].start(o.Steps); err != nil {
				return nil, fmt.Errorf("engine %q: %w", w.fleet.Engines[i].Name, err)
			}
		}
		w.signals.reset(w, o.Seed)
	}
	models := map[string]int{}
	for i, m := range w.fleet.Models {
		models[m] = i
	}
	clusters := map[string]int{}
	for i, c := range w.fleet.Clusters {
		clusters[c.Name] = i
	}
	for _, d := range s.Config.View().Demands {
		w.sources = append(w.sources, newSource(clusters[d.Cluster], models[d.Model], d.Priority, d.Rate, s.loadOf(d.Cluster, d.Model), o.Seed))
	}
	w.measure = newMeasure(w)
	return w, nil
}

func (e *engine) start(steps bool) (err error) {
	if e.factor == 0 {
		e.factor = 1
	}
	e.started++
	if steps {
		e.model, err = enginemodel.NewStepped(e.params)
	} else {
		e.model, err = enginemodel.NewFast(e.params)
	}
	return err
}

// begin schedules what comes by itself.
func (w *world) begin() {
	for i := range w.scenario.Traces {
		t := &w.scenario.Traces[i]
		m := slices.Index(w.fleet.Models, t.Model)
		newReplay(w, t, m, w.seed).start()
	}
	for i, s := range w.sources {
		w.add(event{at: s.gap(0), kind: arrival, index: int32(i)})
	}
	w.After(0, w.sample)
	for i := range w.scenario.Events {
		e := &w.scenario.Events[i]
		w.After(time.Duration(e.At), func() { w.happen(e, true) })
		if e.For > 0 {
			w.After(time.Duration(e.At+e.For), func() { w.happen(e, false) })
		}
	}
}

// After is that of Env.
func (w *world) After(d time.Duration, call func()) {
	w.add(event{at: w.now + d, kind: calling, call: call})
}

func (w *world) handle(e *event) {
	switch e.kind {
	case arrival:
		w.arrive(int(e.index))
	case delivery:
		if e.sender.attempt == e.stamp {
			w.deliver(e.sender)
		}
	case wake:
		if x := &w.engines[e.index]; x.awake && x.stamp == e.stamp {
			x.awake = false
			w.wake(int(e.index))
		}
	case answer:
		w.answer(e.sender, e.stamp)
	case broken:
		w.broken(e.sender, e.stamp)
	case calling:
		e.call()
	}
}

func (w *world) newRequest() *Request {
	if n := len(w.spare); n > 0 {
		r := w.spare[n-1]
		w.spare = w.spare[:n-1]
		return r
	}
	return &Request{}
}

// arrive begins a conversation and schedules the source's next.
func (w *world) arrive(i int) {
	s := w.sources[i]
	if !s.silent(w.now) {
		r := w.newRequest()
		prefix := r.Prefix
		*r = Request{Prefix: prefix, source: int32(i)}
		s.start(r)
		w.admit(r)
	}
	w.add(event{at: w.now + s.gap(w.now), kind: arrival, index: int32(i)})
}

// admit brings a request to its cluster's router for the first time.
func (w *world) admit(r *Request) {
	w.nextID++
	r.ID = w.nextID
	r.Arrived, r.Engine, r.Attempts = w.now, -1, 0
	r.FirstToken, r.Finished, r.Cached, r.State = 0, 0, 0, nil
	w.measure.arrived(r)
	if t := time.Duration(w.scenario.Clients.Timeout); t > 0 {
		id := r.ID
		w.After(t, func() {
			if r.ID == id && r.Finished == 0 && r.Engine >= 0 {
				w.leave(r)
			}
		})
	}
	if w.played != nil {
		w.played.send(r)
	} else {
		w.route(r)
	}
}

// route asks the router, and sends.
func (w *world) route(r *Request) {
	e, ok := w.router.Route(r)
	if !ok {
		w.refused(r)
		return
	}
	r.Engine, r.Sent = e, w.now
	r.Attempts++
	r.attempt++
	w.measure.tried(r, 1)
	if r.Attempts == 1 {
		w.measure.prompt(r)
	}
	w.add(event{at: w.now + w.way(r), kind: delivery, sender: r, stamp: r.attempt})
}

// refused ends a request that gets no engine: the client may come again.
func (w *world) refused(r *Request) {
	if r.Attempts > 0 {
		w.measure.failed(r)
	} else {
		w.measure.shed(r)
	}
	w.again(r)
}

// again lets a client send a request again, if it does that.
func (w *world) again(r *Request) {
	r.Engine = -1
	if int(r.tries) >= w.scenario.Clients.Retries {
		w.end(r)
		return
	}
	wait := time.Second << r.tries
	r.tries++
	w.After(wait, func() {
		tries := r.tries
		w.admit(r)
		r.tries = tries
	})
}

// end gives a request's memory back.
func (w *world) end(r *Request) {
	r.ID, r.tries = 0, 0
	w.spare = append(w.spare, r)
}

// way is one way between a request's cluster and its engine.
func (w *world) way(r *Request) time.Duration {
	d := 0.5 * w.fleet.Distance[r.Cluster][r.Engine]
	if j := w.scenario.Network.Jitter; j > 0 {
		s2 := math.Log(1 + j*j)
		d *= math.Exp(math.Sqrt(s2)*w.jitter.NormFloat64() - s2/2)
	}
	return time.Duration(d * 1e9)
}

// deliver puts a request into its engine.
func (w *world) deliver(r *Request) {
	if r.Engine < 0 {
		return // the client left while it was on its way
	}
	e := &w.engines[r.Engine]
	if e.down {
		w.add(event{at: w.now + w.way(r), kind: broken, sender: r, stamp: r.attempt | unreached})
		return
	}
	if n := len(w.free); n > 0 {
		r.slot = w.free[n-1]
		w.free = w.free[:n-1]
	} else {
		r.slot = int32(len(w.inside))
		w.inside = append(w.inside, nil)
	}
	err := e.model.Add(enginemodel.Request{ID: uint64(r.slot), Prompt: r.Prompt, Output: r.Output, Prefix: r.Prefix}, e.clock(w.now))
	if err != nil { // it fits in no cache of this engine
		w.free = append(w.free, r.slot)
		w.add(event{at: w.now + w.way(r), kind: broken, sender: r, stamp: r.attempt})
		return
	}
	w.inside[r.slot] = r
	r.placed = true
	w.schedule(r.Engine)
}

// schedule sees to it that an engine is woken when something happens in it.
func (w *world) schedule(i int) {
	e := &w.engines[i]
	at := e.model.Next()
	if at == enginemodel.Never || e.hung || e.awake && e.at == at+e.lost {
		return
	}
	e.stamp++
	e.at, e.awake = max(at+e.lost, w.now), true
	w.add(event{at: e.at, kind: wake, index: int32(i), stamp: e.stamp})
}

// wake lets an engine do what is due and sends its news.
func (w *world) wake(i int) {
	e := &w.engines[i]
	w.events = e.model.Run(e.clock(w.now), w.events[:0])
	for _, v := range w.events {
		r := w.inside[v.ID]
		at := w.now + w.way(r)
		if v.First() {
			r.FirstToken, r.Cached = at, v.Cached
			if !v.Last {
				w.add(event{at: at, kind: answer, sender: r, stamp: r.attempt})
			}
		}
		if v.Last {
			w.vacate(r)
			r.Finished = max(at, r.FirstToken)
			w.add(event{at: r.Finished, kind: answer, sender: r, stamp: r.attempt | lastNews})
		}
	}
	w.schedule(i)
}

// lastNews marks the news of an answer's end, unreached that of an engine that is not
// there; attempts are numbered below.
const (
	lastNews  = 1 << 31
	unreached = 1 << 30
)

func (w *world) vacate(r *Request) {
	if r.placed {
		w.inside[r.slot] = nil
		w.free = append(w.free, r.slot)
		r.placed = false
	}
}

// answer brings an engine's news to the cluster.
func (w *world) answer(r *Request, stamp uint32) {
	if r.attempt != stamp&^lastNews || r.Engine < 0 {
		return // the attempt was given up
	}
	if stamp&lastNews == 0 {
		w.router.FirstToken(r)
		return
	}
	if r.FirstToken == r.Finished {
		w.router.FirstToken(r)
	}
	w.router.Done(r, Answered)
	w.finish(r)
}

// finish ends an answered request; its conversation may go on.
func (w *world) finish(r *Request) {
	w.measure.answered(r)
	if r.source >= 0 {
		if think, ok := w.sources[r.source].follow(r); ok {
			r.Engine, r.tries = -1, 0
			w.After(think, func() { w.admit(r) })
			return
		}
	}
	r.Engine = -1
	w.end(r)
}

// broken tells the cluster that an attempt has failed: it may try another engine,
// unless something has already come.
func (w *world) broken(r *Request, stamp uint32) {
	if r.attempt != stamp&^unreached || r.Engine < 0 {
		return
	}
	outcome := Failed
	if stamp&unreached != 0 {
		outcome = Unreachable
	}
	begun := r.FirstToken > 0 && r.FirstToken <= w.now
	r.FirstToken, r.Finished = 0, 0
	w.router.Done(r, outcome)
	if begun {
		w.measure.failed(r)
		w.again(r)
		return
	}
	w.route(r)
}

// abort gives an attempt up that has no first token yet.
func (w *world) abort(r *Request) {
	if r.Engine < 0 || r.FirstToken > 0 && r.FirstToken <= w.now {
		return
	}
	w.withdraw(r)
	w.broken(r, r.attempt)
}

// withdraw takes a request out of its engine; news of it are too late.
func (w *world) withdraw(r *Request) {
	if r.placed {
		e := &w.engines[r.Engine]
		e.model.Cancel(uint64(r.slot), e.clock(w.now))
		w.vacate(r)
		w.schedule(r.Engine)
	}
	r.FirstToken, r.Finished = 0, 0
}

// leave is a client that has waited long enough.
func (w *world) leave(r *Request) {
	if w.played != nil {
		w.played.withdraw(r)
	} else {
		w.withdraw(r)
		r.attempt++
		w.router.Done(r, Cancelled)
	}
	w.measure.left(r)
	w.again(r)
}

// load is how many requests are in an engine, and how many of them wait.
func (w *world) load(i int) (running, waiting int) {
	if w.played != nil {
		return w.played.Load(i)
	}
	e := &w.engines[i]
	g := e.model.Gauges(e.clock(w.now))
	return g.Running, g.Waiting
}

// sample is taken at every interval of the signals.
func (w *world) sample() {
	w.signals.sample(w)
	w.measure.sample(w)
	w.After(time.Duration(w.scenario.Signals.Interval), w.sample)
}
