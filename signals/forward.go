package signals

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
)

const (
	// forgetAfter is how long an instance that is silent is remembered.
	forgetAfter = 10 * time.Second
	// forgetReading is how long a reading is passed on that is not renewed: nobody counts it
	// any more by then.
	forgetReading = time.Minute
)

// Forwarder passes the reports of many instances on to all upstreams, unchanged: each to each
// once, in its order. Of an instance that an upstream does not know yet, because the stream to
// it was opened anew or could not keep up, it gets a whole report first. What has come before
// is dropped, so that relays in a circle do no harm. Safe for concurrent use.
type Forwarder struct {
	Conns []grpc.ClientConnInterface
	Log   *slog.Logger

	mu        sync.Mutex
	instances map[string]*instance
	lanes     []*forwardLane
	passed    uint64
}

// instance is one of those that report.
type instance struct {
	sequence uint64
	heard    time.Time
	readings map[string]*pb.Reading // the newest of each engine
}

// Run passes reports on until ctx is done, reconnecting with backoff. It may be called once.
func (f *Forwarder) Run(ctx context.Context) {
	f.mu.Lock()
	for i, conn := range f.Conns {
		l := &forwardLane{f: f, wake: make(chan struct{}, 1)}
		l.path = path{name: upstreamName(conn, i), conn: conn, log: f.Log, send: l.run}
		f.lanes = append(f.lanes, l)
	}
	f.mu.Unlock()
	var wg sync.WaitGroup
	for _, l := range f.lanes {
		wg.Go(func() { l.path.run(ctx) })
	}
	wg.Wait()
}

// Passed counts the reports that were passed on, each once.
func (f *Forwarder) Passed() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.passed
}

// Instances is how many report.
func (f *Forwarder) Instances(now time.Time) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, in := range f.instances {
		if now.Sub(in.heard) <= forgetAfter {
			n++
		}
	}
	return n
}

// Handle takes a report.
func (f *Forwarder) Handle(r *pb.ReportRequest) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	in := f.instances[r.Instance]
	if in == nil {
		in = f.welcome(r.Instance, now)
	}
	if in.sequence >= r.Sequence {
		return
	}
	in.add(r, now)
	f.passed++
	partial := &message{report: r}
	var whole *message
	for _, l := range f.lanes {
		if !l.open {
			continue
		}
		if l.knows(r.Instance) {
			l.put(r.Instance, partial)
			continue
		}
		if whole == nil {
			whole = &message{report: in.whole(r)}
		}
		l.put(r.Instance, whole)
	}
}

// welcome makes room for an instance, and forgets those that are silent.
func (f *Forwarder) welcome(name string, now time.Time) *instance {
	if f.instances == nil {
		f.instances = map[string]*instance{}
	}
	for old, in := range f.instances {
		if now.Sub(in.heard) > forgetAfter {
			delete(f.instances, old)
			for _, l := range f.lanes {
				delete(l.told, old)
			}
		}
	}
	f.instances[name] = &instance{}
	return f.instances[name]
}

func (in *instance) add(r *pb.ReportRequest, now time.Time) {
	if !r.Partial || in.readings == nil {
		in.readings = make(map[string]*pb.Reading, len(r.Readings))
	}
	for _, x := range r.Readings {
		in.readings[x.Engine] = x
	}
	in.sequence, in.heard = r.Sequence, now
}

// whole is a report with all that is known of the instance's engines.
func (in *instance) whole(r *pb.ReportRequest) *pb.ReportRequest {
	if !r.Partial {
		return r
	}
	maps.DeleteFunc(in.readings, func(_ string, x *pb.Reading) bool {
		return r.Time.AsTime().Sub(x.Time.AsTime()) > forgetReading
	})
	var readings []*pb.Reading
	for _, engine := range slices.Sorted(maps.Keys(in.readings)) {
		readings = append(readings, in.readings[engine])
	}
	out := proto.Clone(r).(*pb.ReportRequest)
	out.Readings, out.Partial = readings, false
	return out
}

// forwardLane is the way to one upstream. Of each instance it holds one report at most. The
// forwarder's lock guards it.
type forwardLane struct {
	f    *Forwarder
	path path
	wake chan struct{}

	open    bool
	told    map[string]bool     // instances of which this stream began with a whole report
	pending map[string]*message // by instance
	order   []string            // of pending
}

// knows says whether the upstream can do with what is new of an instance.
func (l *forwardLane) knows(instance string) bool {
	return l.told[instance] && l.pending[instance] == nil
}

func (l *forwardLane) put(instance string, m *message) {
	if l.pending[instance] == nil {
		l.order = append(l.order, instance)
	}
	l.pending[instance] = m
	l.told[instance] = true
	nudge(l.wake)
}

func (l *forwardLane) next() *message {
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	if len(l.order) == 0 {
		return nil
	}
	name := l.order[0]
	l.order = l.order[1:]
	m := l.pending[name]
	delete(l.pending, name)
	return m
}

// ready opens the lane for reports, or closes it.
func (l *forwardLane) ready(open bool) {
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	l.open, l.told, l.pending, l.order = open, map[string]bool{}, map[string]*message{}, nil
}

// run sends reports over a stream until it breaks.
func (l *forwardLane) run(ctx context.Context, send func(*message) error) error {
	l.ready(true)
	defer l.ready(false)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.wake:
		}
		for m := l.next(); m != nil; m = l.next() {
			if err := send(m); err != nil {
				return err
			}
		}
	}
}
