package proxy

import (
	"sync"
	"time"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/route"
)

// ageing knows how old the snapshot is that was last published to this data plane. One that is
// not renewed for longer than it is good for loses its weights in steps (route.Age), and gets
// them back at once when a newer one comes.
//
// Age is counted by this process's own clock, from when the snapshot came: clocks of different
// machines differ, and may be set. Of one that was found on disk it begins with what the time of
// day says, for there is nothing else; if that is nonsense, it is 0, or all that it can be.
type ageing struct {
	restoring bool // what is applied comes from disk

	mu     sync.Mutex
	plan   *fleet.Snapshot // as it was published; nil before the first
	came   time.Time
	before time.Duration // its age when it came
	part   float64       // of the weights that are not the plan's any more
	looked time.Time     // at who is healthy, last
	rough  bool          // the table in force is to be built again, better
}

// oldest bounds what a clock that is wrong may say of an age.
const oldest = 10 * 365 * 24 * time.Hour

// of is the age at a time; the snapshot's own before the first.
func (a *ageing) of(now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.age(now)
}

func (a *ageing) age(now time.Time) time.Duration { return a.before + max(0, now.Sub(a.came)) }

// take notes a snapshot. The same one again, as after a reconnection to who has none that is
// newer, is as old as it was. It returns what undoes it.
func (a *ageing) take(s *fleet.Snapshot, now time.Time) (undo func()) {
	plan, came, before := a.plan, a.came, a.before
	if plan == nil || plan.Epoch != s.Epoch || plan.Version != s.Version || !plan.Time.Equal(s.Time) {
		a.came, a.before = now, 0
		if a.restoring {
			a.before = min(max(0, now.Sub(s.Time)), oldest)
		}
	}
	a.plan = s
	return func() { a.plan, a.came, a.before = plan, came, before }
}

// apply puts a snapshot in force. Tables are built here, off the request path.
func (p *DataPlane) apply(s *fleet.Snapshot) error {
	a := &p.ageing
	a.mu.Lock()
	defer a.mu.Unlock()
	undo := a.take(s, time.Now())
	if err := p.enforce(time.Now()); err != nil {
		undo()
		return err
	}
	return nil
}

// lookEvery is the time between two looks at who is healthy, while a snapshot is old: each
// that finds a change costs slot tables.
const lookEvery = 10 * time.Second

// age builds what is in force anew when its age says so, or another engine is healthy, or what
// was found on disk had to be there soon.
func (p *DataPlane) age(now time.Time) {
	a := &p.ageing
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.plan == nil {
		return
	}
	part := route.Aged(a.age(now), a.plan.GoodFor)
	if part == a.part && !a.rough && (part == 0 || now.Sub(a.looked) < lookEvery) {
		return
	}
	if err := p.enforce(now); err != nil { // it was in force before
		p.log.Error("the weights of an old snapshot cannot be blended", "error", err)
	}
}

// enforce builds the table of the snapshot, at its age.
func (p *DataPlane) enforce(now time.Time) error {
	a, old := &p.ageing, p.table.Load()
	part := route.Aged(a.age(now), a.plan.GoodFor)
	s := route.Age(a.plan, part, healthy(old, now.UnixNano()))
	t, err := p.memory.resolve(s, p.config.Bound, old, a.restoring)
	if err != nil {
		return err
	}
	t.aged, t.number = part, 1
	if old != nil {
		t.number += old.number
	}
	p.records.tables.put(Table{Instance: p.instance, Number: t.number, Bound: p.config.Bound, Rough: t.router.Rough(), Snapshot: s})
	p.table.Store(t)
	switch {
	case part > 0 && a.part == 0:
		p.log.Warn("the snapshot is not renewed; weights go step by step towards the engines' capacities",
			"epoch", s.Epoch, "version", s.Version, "age", a.age(now), "good_for", s.GoodFor)
	case part == 0 && a.part > 0:
		p.log.Info("a newer snapshot is here; its weights are in force", "epoch", s.Epoch, "version", s.Version)
	}
	a.part, a.looked, a.rough = part, now, a.restoring
	if old == nil || old.router.Snapshot.Epoch != s.Epoch || old.router.Snapshot.Version != s.Version {
		p.log.Debug("snapshot applied", "epoch", s.Epoch, "version", s.Version, "models", len(s.Rows))
	}
	return nil
}

// healthy says of which engines a table's rows expect answers. One whose lease is over counts:
// without weight no request would ever find out whether it is back.
func healthy(t *table, now int64) func(model, engine string) bool {
	ill := map[[2]string]bool{}
	if t != nil {
		for model, row := range t.rows {
			for _, target := range row.Targets() {
				if target.Flight.Leased(now) {
					ill[[2]string{model, target.Engine.Name}] = true
				}
			}
		}
	}
	return func(model, engine string) bool { return !ill[[2]string{model, engine}] }
}

// Status is a data plane at a glance.
type Status struct {
	Cluster  string  `json:"cluster"`
	Instance string  `json:"instance"`
	Epoch    uint64  `json:"epoch"` // of the snapshot in force
	Version  uint64  `json:"version"`
	Age      float64 `json:"age_seconds"`      // of the snapshot
	GoodFor  float64 `json:"good_for_seconds"` // how long it is to be trusted
	// Aged is the part of the weights that age has taken, 0 to 1: so much of them is in
	// proportion to the engines' capacities.
	Aged float64 `json:"aged"`
	// Refused is why the newest snapshot was not taken; empty when it was.
	Refused string `json:"refused,omitempty"`
}

// Status says which snapshot is in force, and how much of it; zeros before the first.
func (p *DataPlane) Status(now time.Time) Status {
	s := Status{Cluster: p.cluster, Instance: p.instance}
	_, _, s.Refused = p.subscriber.Applied()
	if t := p.table.Load(); t != nil {
		in := t.router.Snapshot
		s.Epoch, s.Version, s.GoodFor, s.Aged = in.Epoch, in.Version, in.GoodFor.Seconds(), t.aged
		s.Age = p.ageing.of(now).Seconds()
	}
	return s
}
