package control

import (
	"maps"
	"slices"
	"sync"

	"github.com/wardrop-lb/wardrop/config"
)

// drained is which engines an operator has taken out beside those that the configuration
// does. Safe for concurrent use.
type drained struct {
	mu    sync.Mutex
	names map[string]bool
}

func (d *drained) list() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.names))
}

func (d *drained) set(names []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names = map[string]bool{}
	for _, n := range names {
		d.names[n] = true
	}
}

// Drain takes an engine out of all plans, or back in; it finishes what it has. That is kept over
// restarts. It reports false when there is no such engine.
func (c *Control) Drain(engine string, drain bool) bool {
	known := slices.ContainsFunc(c.config.Load().Engines, func(e config.Engine) bool { return e.Name == engine })
	c.drained.mu.Lock()
	defer c.drained.mu.Unlock()
	if !drain {
		known = known || c.drained.names[engine] // one that is gone may still be forgotten
		delete(c.drained.names, engine)
	} else if known {
		c.drained.names[engine] = true
	}
	return known
}

// inForce is the configuration with what the operator has drained.
func (c *Control) inForce() *config.Config {
	cfg := c.config.Load()
	names := c.drained.list()
	if len(names) == 0 {
		return cfg
	}
	out := *cfg
	out.Engines = slices.Clone(cfg.Engines)
	for i := range out.Engines {
		if _, ok := slices.BinarySearch(names, out.Engines[i].Name); ok {
			out.Engines[i].Drain = true
		}
	}
	return &out
}
