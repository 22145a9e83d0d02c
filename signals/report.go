package signals

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/wardrop-lb/wardrop/api"
	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
)

// Reporter streams an instance's reports to all its upstreams: every member of the control
// plane, or relays. Reports carry absolute values: while an upstream is away none is kept for
// it, and the first one after its return says everything. Each is made, encoded and
// compressed once, for all that take it.
type Reporter struct {
	Conns    []grpc.ClientConnInterface
	Interval time.Duration
	// Build makes the report of an instant; of readings it holds those that are new since the
	// last call. Readings gives all of them. Both are called from one goroutine.
	Build    func(now time.Time) *pb.ReportRequest
	Readings func() []*pb.Reading
	Log      *slog.Logger
}

// Run reports until ctx is done, reconnecting with backoff.
func (r *Reporter) Run(ctx context.Context) {
	opened := make(chan struct{}, 1)
	lanes := make([]*lane, len(r.Conns))
	var wg sync.WaitGroup
	for i, conn := range r.Conns {
		l := &lane{opened: opened, wake: make(chan struct{}, 1)}
		l.path = path{name: upstreamName(conn, i), conn: conn, log: r.Log, send: l.run}
		lanes[i] = l
		wg.Go(func() { l.path.run(ctx) })
	}
	defer wg.Wait()
	tick := time.NewTicker(r.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-opened: // who has just come waits for no tick
		case <-tick.C:
		}
		r.round(lanes, time.Now())
	}
}

// round makes one report and hands it to every lane: whole to those that cannot do with what
// is new.
func (r *Reporter) round(lanes []*lane, now time.Time) {
	report := r.Build(now)
	report.Partial, report.Wire = true, api.Wire
	var whole *message
	for _, l := range lanes {
		if l.wantsAll() && whole == nil {
			whole = &message{report: wholeOf(report, r.Readings())}
		}
	}
	partial := &message{report: report}
	for _, l := range lanes {
		l.put(partial, whole)
	}
}

// wholeOf is a report with all readings.
func wholeOf(report *pb.ReportRequest, readings []*pb.Reading) *pb.ReportRequest {
	fresh := report.Readings
	report.Readings = nil
	out := proto.Clone(report).(*pb.ReportRequest)
	report.Readings = fresh
	out.Readings, out.Partial = readings, false
	return out
}

// lane is the way of one instance's reports to one upstream. It holds one report at most: a
// newer takes its place.
type lane struct {
	path   path
	opened chan<- struct{}
	wake   chan struct{}

	mu   sync.Mutex
	open bool
	all  bool     // the next report must be whole
	next *message // not sent yet
}

// wantsAll says whether the next report must be whole. What a report said that was not sent in
// time is not lost: its successor is whole.
func (l *lane) wantsAll() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = l.all || l.next != nil
	return l.open && l.all
}

// put hands over the newest report. whole is nil if no lane wanted one; who opened since has
// to wait for the next.
func (l *lane) put(partial, whole *message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.open || l.all && whole == nil {
		return
	}
	l.next = partial
	if l.all {
		l.next, l.all = whole, false
	}
	nudge(l.wake)
}

func (l *lane) take() *message {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.next
	l.next = nil
	return m
}

// ready opens the lane for reports, or closes it.
func (l *lane) ready(open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open, l.all, l.next = open, open, nil
}

// run sends reports over a stream until it breaks.
func (l *lane) run(ctx context.Context, send func(*message) error) error {
	l.ready(true)
	defer l.ready(false)
	nudge(l.opened)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.wake:
		}
		if m := l.take(); m != nil {
			if err := send(m); err != nil {
				return err
			}
		}
	}
}
