package collect

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/signals"
	"github.com/wardrop-lb/wardrop/weights"
)

// Collector reads the engines of a region where no data plane is near, and reports
// them. Safe for concurrent use.
type Collector struct {
	region, instance string
	interval         time.Duration
	control          []grpc.ClientConnInterface
	log              *slog.Logger

	snapshot   atomic.Pointer[fleet.Snapshot]
	subscriber *weights.Subscriber
	reader     *Reader
	sequence   uint64 // of the reports
}

// CollectorOptions is what a Collector is made of.
type CollectorOptions struct {
	Region string
	// Control reaches the members of the control plane, or relays; reports go to all of them
	// every Report.
	Control []grpc.ClientConnInterface
	Report  time.Duration

	Interval  time.Duration // between two readings of an engine
	Timeout   time.Duration // of one
	Transport http.RoundTripper
	Registry  prometheus.Registerer
	Log       *slog.Logger
}

// NewCollector makes a collector that reads nothing before Run.
func NewCollector(o CollectorOptions) *Collector {
	c := &Collector{
		region: o.Region, instance: NewInstance(), interval: o.Report, control: o.Control, log: o.Log.With("region", o.Region),
	}
	member := fleet.Collectors(o.Region)
	c.reader = New(Options{
		Member: member, Instance: c.instance, Interval: o.Interval, Timeout: o.Timeout,
		Transport: o.Transport, Registry: o.Registry, Log: c.log,
	})
	c.subscriber = &weights.Subscriber{
		Cluster: member, Instance: c.instance, Conns: o.Control, Log: c.log,
		Apply: func(s *fleet.Snapshot) error { c.snapshot.Store(s); return nil },
	}
	return c
}

// NewInstance names a process: no two starts are called the same.
func NewInstance() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

// Ready reports whether the control plane has said which engines to read.
func (c *Collector) Ready() bool { return c.snapshot.Load() != nil }

// Run reads and reports until ctx is done. It may be called once.
func (c *Collector) Run(ctx context.Context) {
	defer c.reader.Close()
	reporter := &signals.Reporter{Conns: c.control, Interval: c.interval, Build: c.report, Readings: c.readings, Log: c.log}
	var wg sync.WaitGroup
	wg.Go(func() { c.subscriber.Run(ctx) })
	wg.Go(func() { reporter.Run(ctx) })
	wg.Wait()
}

func (c *Collector) readings() []*pb.Reading { return c.reader.Readings(true) }

func (c *Collector) report(now time.Time) *pb.ReportRequest {
	c.sequence++
	r := &pb.ReportRequest{
		Instance: c.instance, Collects: c.region, Sequence: c.sequence, Time: timestamppb.New(now), Applied: &pb.Applied{},
	}
	r.Applied.Epoch, r.Applied.Version, r.Applied.Refused = c.subscriber.Applied()
	if s := c.snapshot.Load(); s != nil {
		c.reader.Follow(s)
		r.Readings = c.reader.Readings(false)
	}
	return r
}
