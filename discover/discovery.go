package discover

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wardrop-lb/wardrop/config"
)

// coalesce is the least time between two configurations: a burst of changes is one.
const coalesce = time.Second

// Options is what a Discovery is made of.
type Options struct {
	// Config is the configuration to begin with.
	Config *config.Config
	// Apply is called with every new configuration, one call at a time, at most one a
	// second.
	Apply func(*config.Config)
	// Open makes sources. Default: Open.
	Open Opener
	// Transport is how engines are asked for their models. Required.
	Transport http.RoundTripper
	// Path is the file where what was found is kept for the next start; empty for
	// nowhere.
	Path     string
	Registry prometheus.Registerer
	Log      *slog.Logger
}

// Discovery keeps a configuration up to date with what is found. Safe for concurrent
// use.
type Discovery struct {
	o       Options
	events  chan func(*loop, time.Time)
	settled chan struct{}
	status  atomic.Pointer[status]
	metrics *metrics
}

// New makes a discovery that is not running yet.
func New(o Options) *Discovery {
	if o.Open == nil {
		o.Open = Open
	}
	d := &Discovery{o: o, events: make(chan func(*loop, time.Time)), settled: make(chan struct{})}
	d.metrics = newMetrics(d, o.Registry)
	return d
}

// Settled is closed when every source has answered or failed once, every engine
// found until then was asked for its models, and Apply was called with that.
func (d *Discovery) Settled() <-chan struct{} { return d.settled }

// Reload replaces the configuration. Sources that stay as they were go on
// undisturbed; what those found that are no longer there is gone at once. It returns
// when ctx ends or when Run has taken it.
func (d *Discovery) Reload(ctx context.Context, c *config.Config) {
	d.post(ctx, func(l *loop, _ time.Time) { l.configure(c) })
}

// Run finds engines until ctx ends. It may be called once.
func (d *Discovery) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	l := newLoop(d, ctx)
	defer l.wg.Wait()
	defer cancel()
	l.restore()
	l.configure(d.o.Config)
	for {
		timer := time.NewTimer(l.step(time.Now()))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case f := <-d.events:
			f(l, time.Now())
		case <-timer.C:
		}
		timer.Stop()
	}
}

// post gives an event to the loop.
func (d *Discovery) post(ctx context.Context, f func(*loop, time.Time)) {
	select {
	case d.events <- f:
	case <-ctx.Done():
	}
}
