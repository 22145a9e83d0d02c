package signals

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/protobuf/proto"

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

const (
	retryFirst = 100 * time.Millisecond
	retryMax   = 5 * time.Second
)

// Run reports until ctx is done, reconnecting with backoff.
func (r *Reporter) Run(ctx context.Context) {
	opened := make(chan struct{}, 1)
	lanes := make([]*lane, len(r.Conns))
	var wg sync.WaitGroup
	for i, conn := range r.Conns {
		l := &lane{name: upstreamName(conn, i), conn: conn, opened: opened, wake: make(chan struct{}, 1), log: r.Log}
		lanes[i] = l
		wg.Go(func() { l.run(ctx) })
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
	report.Partial = true
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

// message is a report that is encoded and compressed once, by the first lane that sends it.
type message struct {
	report   *pb.ReportRequest
	once     sync.Once
	prepared grpc.PreparedMsg
	err      error
}

func (m *message) encoded(stream grpc.ClientStream) (*grpc.PreparedMsg, error) {
	m.once.Do(func() { m.err = m.prepared.Encode(stream, m.report) })
	return &m.prepared, m.err
}

// lane is the way to one upstream. It holds one report at most: a newer takes its place.
type lane struct {
	name   string
	conn   grpc.ClientConnInterface
	opened chan<- struct{}
	wake   chan struct{}
	log    *slog.Logger

	mu   sync.Mutex
	open bool
	all  bool     // the next report must be whole
	next *message // not sent yet
}

func upstreamName(conn grpc.ClientConnInterface, i int) string {
	if c, ok := conn.(interface{ Target() string }); ok {
		return c.Target()
	}
	return fmt.Sprint(i)
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

func nudge(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run reports to one upstream until ctx is done.
func (l *lane) run(ctx context.Context) {
	retry := retryFirst
	for {
		sent, err := l.stream(ctx)
		if ctx.Err() != nil {
			return
		}
		if sent > 0 {
			retry = retryFirst
		}
		l.log.Debug("signal path lost", "upstream", l.name, "error", err, "retry_in", retry)
		select {
		case <-ctx.Done():
			return
		case <-time.After(retry):
		}
		retry = min(2*retry, retryMax)
	}
}

// stream sends reports over one stream until it breaks.
func (l *lane) stream(ctx context.Context) (sent int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewSignalsClient(l.conn).Report(ctx, grpc.UseCompressor(gzip.Name))
	if err != nil {
		return 0, err
	}
	l.ready(true)
	defer l.ready(false)
	nudge(l.opened)
	for {
		select {
		case <-ctx.Done():
			return sent, ctx.Err()
		case <-l.wake:
		}
		m := l.take()
		if m == nil {
			continue
		}
		prepared, err := m.encoded(stream)
		if err == nil {
			err = stream.SendMsg(prepared)
		}
		if errors.Is(err, io.EOF) { // the reason comes with the answer
			_, err = stream.CloseAndRecv()
			return sent, err
		}
		if err != nil {
			return sent, err
		}
		sent++
	}
}

// Receiver is an upstream's end of the signal path.
type Receiver struct {
	pb.UnimplementedSignalsServer
	// Handle takes a report; it may be called from many goroutines.
	Handle func(*pb.ReportRequest)
}

// Report takes one data plane's reports until it goes away.
func (r *Receiver) Report(stream grpc.ClientStreamingServer[pb.ReportRequest, pb.ReportResponse]) error {
	for {
		report, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&pb.ReportResponse{})
		}
		if err != nil {
			return err
		}
		r.Handle(report)
	}
}
