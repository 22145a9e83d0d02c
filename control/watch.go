package control

import (
	"sync"
	"time"

	"github.com/wardrop-lb/wardrop/config"
)

// change tells whoever waits that something has changed. Safe for concurrent use; the zero
// value is ready.
type change struct {
	mu   sync.Mutex
	next chan struct{} // closed at the next change; nil while nobody waits
}

func (c *change) happened() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next != nil {
		close(c.next)
		c.next = nil
	}
}

func (c *change) wait() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = make(chan struct{})
	}
	return c.next
}

// Changed is closed at the end of the next tick, when State has another answer. Who asks for it
// before State misses none.
func (c *Control) Changed() <-chan struct{} { return c.changed.wait() }

// Config is the configuration in force, without what operators override. It is not to be
// changed.
func (c *Control) Config() *config.Config { return c.config.Load() }

// Observed is what one data plane saw of an engine for a model. Counts are since it started.
type Observed struct {
	Cluster  string `json:"cluster"`
	Instance string `json:"instance"`
	Model    string `json:"model"`
	Requests uint64 `json:"requests"` // attempts
	Failed   uint64 `json:"failed"`   // of these
	Ended    uint64 `json:"ended"`
	// Spent is what attempts took so far, all together, those in flight too: seconds.
	Spent     float64 `json:"spent_seconds"`
	Rate      float64 `json:"rate"`                         // attempts/s
	FirstByte float64 `json:"first_byte_seconds,omitempty"` // the mean of late; 0 when unknown
	InFlight  float64 `json:"in_flight"`                    // requests
}

// Observed lists what the data planes that report saw of an engine, by cluster and instance.
func (c *Control) Observed(engine string, now time.Time) []Observed {
	out := []Observed{}
	for _, p := range c.reports.live(now) {
		for _, o := range p.Observations {
			if o.Engine == engine {
				out = append(out, Observed{
					p.Member(), p.Instance, o.Model, o.Requests, o.Failed, o.Ended, o.Spent, o.Rate, o.FirstByte, o.InFlight,
				})
			}
		}
	}
	return out
}
