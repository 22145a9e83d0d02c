package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"github.com/wardrop-lb/wardrop/collect"
	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/signals"
	"github.com/wardrop-lb/wardrop/weights"
)

// Options is what a data plane is made of.
type Options struct {
	Cluster string
	Proxy   config.Proxy
	Signals config.Signals
	Aliases []config.Alias
	// Control reaches the members of the control plane, or relays.
	Control []grpc.ClientConnInterface
	// Dial opens connections to engines; nil for the network's own.
	Dial     func(ctx context.Context, network, addr string) (net.Conn, error)
	Registry prometheus.Registerer
	Log      *slog.Logger
	// AccessLog gets every request; nil for none. Who made it closes it.
	AccessLog *AccessLog
	// Tracer makes spans of requests; nil for none.
	Tracer trace.TracerProvider
}

// DataPlane serves the requests of a cluster. Safe for concurrent use.
type DataPlane struct {
	cluster   string
	config    config.Proxy
	signals   config.Signals
	instance  string
	started   time.Time
	log       *slog.Logger
	metrics   *metrics
	memory    *memory
	table     atomic.Pointer[table]
	ageing    ageing
	aliasList []config.Alias
	aliases   map[string]*alias
	waiting   waitingRoom
	uploads   uploads
	records   *records
	tracing   tracing
	stored    *stored
	// background holds the losers of hedges until they have ended.
	background sync.WaitGroup

	control    []grpc.ClientConnInterface
	subscriber *weights.Subscriber
	reader     *collect.Reader
	pages      *http.Transport // the reader's
	prober     *prober
	sequence   uint64 // of the reports
}

// New makes a data plane. It routes from its saved snapshot, if there is one,
// at once; Run connects it to the control plane.
func New(o Options) (*DataPlane, error) {
	dial := o.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	secure, err := o.Proxy.EngineTLS.Client()
	if err != nil {
		return nil, err
	}
	p := &DataPlane{
		cluster: o.Cluster, config: o.Proxy, signals: o.Signals, started: time.Now(),
		instance: collect.NewInstance(), log: o.Log.With("cluster", o.Cluster), control: o.Control,
		aliasList: o.Aliases, aliases: newAliases(o.Aliases), stored: newStored(), prober: newProber(dial),
	}
	p.records = newRecords(p.instance, p.cluster, o.Proxy.RecordRate)
	p.records.log, p.tracing = o.AccessLog, newTracing(o.Tracer)
	p.uploads.window = time.Duration(o.Proxy.UploadTimeout)
	p.waiting.limit = int64(o.Proxy.QueueBytes)
	p.metrics = newMetrics(p, o.Registry)
	p.memory = newMemory(o.Proxy.RetryBudget, newTransports(o.Proxy, dial, secure), p.metrics)
	p.pages = &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute, TLSClientConfig: secure}
	p.reader = collect.New(collect.Options{
		Member: o.Cluster, Instance: p.instance, Interval: time.Duration(o.Signals.Interval), Timeout: time.Duration(o.Signals.Timeout),
		Transport: p.pages, Read: p.progressed, Registry: o.Registry, Log: p.log,
	})
	p.subscriber = &weights.Subscriber{
		Cluster: o.Cluster, Instance: p.instance, Conns: o.Control, Apply: p.apply, Log: p.log,
	}
	if p.config.Data != "" {
		p.subscriber.Path = filepath.Join(p.config.Data, o.Cluster+".snapshot")
	}
	p.ageing.restoring = true
	err = p.subscriber.Restore()
	p.ageing.restoring = false
	if errors.Is(err, weights.ErrSetAside) {
		p.log.Warn("starting without the saved snapshot", "error", err)
	} else if err != nil {
		return nil, fmt.Errorf("read the saved snapshot: %w", err)
	}
	return p, nil
}

// Handler serves OpenAI requests.
func (p *DataPlane) Handler() http.Handler { return p.routes() }

// Ready reports whether the data plane has a snapshot to route by.
func (p *DataPlane) Ready() bool { return p.table.Load() != nil }

// Snapshot is the snapshot in force; nil before the first.
func (p *DataPlane) Snapshot() *fleet.Snapshot {
	if t := p.table.Load(); t != nil {
		return t.router.Snapshot
	}
	return nil
}

// Run keeps the data plane connected to the control plane, reads its engines and
// measures distances until ctx is done. It may be called once. Requests may be served until later:
// when they have ended, Close ends the rest.
func (p *DataPlane) Run(ctx context.Context) {
	defer p.reader.Close()
	defer p.closeIdle()
	reporter := &signals.Reporter{
		Conns: p.control, Interval: time.Duration(p.signals.Report), Build: p.report, Readings: p.allReadings, Log: p.log,
	}
	var wg sync.WaitGroup
	wg.Go(func() { p.subscriber.Run(ctx) })
	wg.Go(func() { reporter.Run(ctx) })
	wg.Go(func() { p.prober.run(ctx, p.Snapshot) })
	wg.Go(func() { p.watch(ctx) })
	wg.Wait()
}

// Close waits for what runs beside requests, of which none may come any more, and ends idle
// connections to engines.
func (p *DataPlane) Close() {
	p.background.Wait()
	p.closeIdle()
}

func (p *DataPlane) closeIdle() {
	p.memory.transports.closeIdle()
	p.pages.CloseIdleConnections()
}
