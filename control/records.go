package control

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/guard"
	"github.com/wardrop-lb/wardrop/history"
	"github.com/wardrop-lb/wardrop/policy/proportional"
	"github.com/wardrop-lb/wardrop/suppose"
)

// Plans lists the plans that are recorded from one on, that included, the oldest first.
func (c *Control) Plans(from [2]uint64) []history.Entry { return c.history.From(from) }

// Record reads the record of a plan as it is kept, which another member takes in; the caller
// closes it. The error wraps history.ErrGone if there is none.
func (c *Control) Record(epoch, version uint64) (io.ReadCloser, error) {
	return c.history.Packed(epoch, version)
}

// Recorded gives a plan that is recorded, with its view; not to be changed.
func (c *Control) Recorded(e history.Entry) (*suppose.Record, error) { return c.history.Read(e) }

// record keeps the plan that has just gone out, where it is new, and what was held back of the
// policy's. It does not wait for the disk: where that is slower than plans change, some are not
// recorded.
func (l *leader) record(cfg *config.Config, pins map[string]string, view *fleet.View, plan, wanted *fleet.Plan, changed bool) {
	var held *suppose.Held
	rail := ""
	if l.hold != nil {
		rail = string(l.hold.Rail)
	}
	if !l.records.Wants(changed, rail) {
		return
	}
	if l.hold != nil {
		held = suppose.NewHeld(rail, l.hold.Reason, l.hold.Since, plan, wanted)
	}
	for _, r := range l.records.Tick(NewRecord(cfg.Policy, pins, view, plan, l.hold), changed, held) {
		select {
		case l.recorded <- r:
		default:
		}
	}
}

// NewRecord is what there is to remember of a plan in force: the policy's settings, the overrides
// by key and value, the view that it was made of, and what holds the policy's own plan back, nil
// where nothing does. None of them is to be changed afterwards.
func NewRecord(p config.Policy, pins map[string]string, view *fleet.View, plan *fleet.Plan, hold *guard.Hold) *suppose.Record {
	settings, _ := json.Marshal(p)   // of numbers and names: it cannot fail
	if p.Name != proportional.Name { // who alone looks at it
		calm := *view
		calm.Engines = slices.Clone(view.Engines)
		for i := range calm.Engines {
			calm.Engines[i].Busy = 0
		}
		view = &calm
	}
	r := &suppose.Record{
		Epoch: plan.Epoch, Version: plan.Version, Time: plan.Time, View: view, Plan: plan, Settings: string(settings), Overrides: pins,
	}
	if hold != nil {
		r.Hold = hold.Reason
	}
	return r
}

// keepHistory writes what is recorded until ctx is done.
func (c *Control) keepHistory(ctx context.Context) {
	said := false
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-c.recorded:
			err := c.history.Add(r)
			if err != nil && !said {
				c.log.Warn("plans are not recorded", "error", err)
			}
			said = err != nil
		}
	}
}

const (
	// lookAnew is after how long all that another member has is looked at again, not only what
	// is newer than what it had.
	lookAnew = 5 * time.Minute
	// catchUpFor bounds the wait for what other members have when somebody asks.
	catchUpFor = 2 * time.Second
)

// followHistory takes in what another member records, until ctx is done: so it can be asked for
// when that member is gone, but for what it has recorded within its last tick.
func (c *Control) followHistory(ctx context.Context, source history.Source) {
	var newest [2]uint64
	said, looked := "", time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(c.config.Load().Policy.Tick)):
		}
		if time.Since(looked) > lookAnew {
			newest, looked = [2]uint64{}, time.Now()
		}
		at, err := c.history.Follow(ctx, newest, source)
		newest = at
		switch {
		case err == nil:
			said = ""
		case ctx.Err() == nil && err.Error() != said: // said once, not at every tick
			said = err.Error()
			c.log.Debug("not all of another member's plans are here", "error", err)
		}
	}
}

// catchUp takes in what other members that answer have and is missing here, from a plan on.
func (c *Control) catchUp(ctx context.Context, from [2]uint64) {
	ctx, cancel := context.WithTimeout(ctx, catchUpFor)
	defer cancel()
	var wg sync.WaitGroup
	for _, source := range c.options.Histories {
		wg.Go(func() {
			if _, err := c.history.Follow(ctx, from, source); err != nil {
				c.log.Debug("not all of another member's plans are here", "error", err)
			}
		})
	}
	wg.Wait()
}
