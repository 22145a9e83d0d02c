package signals

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	load "github.com/cncf/xds/go/xds/data/orca/v3"
	service "github.com/cncf/xds/go/xds/service/orca/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// KindORCA is the kind of engines that stream load reports over gRPC, out of band, as
// the ORCA design has it (xds.service.orca.v3.OpenRcaService).
const KindORCA = "orca"

const (
	// orcaInterval is asked for between two reports. Servers may report less often:
	// grpc-go's do every 30 s at most.
	orcaInterval = time.Second
	// orcaSilence is how long a stream may be silent until it is taken for dead: two
	// reports of the rarest servers.
	orcaSilence = 65 * time.Second
	maxORCABin  = 1 << 20 // bytes of a report
)

var (
	errORCAYet    = errors.New("load reports: none has come yet")
	errORCASilent = errors.New("load reports: none came for too long")
)

// orca reads load reports from a stream that it keeps open. The zero TLS
// configuration trusts what the system does.
type orca struct {
	address string // host:port, or unix:PATH
	tls     bool
	secure  *tls.Config
	silence time.Duration
	stream  *orcaStream // nil while none is open
}

// newORCA makes the adapter of a target; it opens nothing.
func newORCA(t Target) (*orca, error) {
	u, err := url.Parse(t.URL)
	if err != nil {
		return nil, err
	}
	o := &orca{tls: u.Scheme == "https", silence: orcaSilence, address: t.MetricsURL}
	if o.address != "" {
		return o, nil
	}
	if u.Scheme == "unix" {
		o.address = "unix:" + u.Path
		return o, nil
	}
	port := u.Port()
	if port == "" {
		if port = "80"; o.tls {
			port = "443"
		}
	}
	o.address = net.JoinHostPort(u.Hostname(), port)
	return o, nil
}

func (o *orca) secureBy(c *tls.Config) { o.secure = c }

// Read implements Adapter. It gives the newest report as long as its stream lives, with
// the time at which it came, and waits for the first one alone.
func (o *orca) Read(ctx context.Context, _ Get) (Reading, error) {
	if o.stream != nil && o.stream.ended() {
		o.close()
	}
	if o.stream == nil {
		if err := o.open(); err != nil {
			return Reading{}, err
		}
	}
	s := o.stream
	select {
	case <-s.first:
	case <-s.done:
	case <-ctx.Done():
		if s.conn.GetState() == connectivity.Ready {
			return Reading{}, &reachedError{errORCAYet} // it may begin with the end of its interval
		}
		o.close()
		return Reading{}, ctx.Err()
	}
	return s.newest()
}

func (o *orca) open() error {
	creds := insecure.NewCredentials()
	if o.tls {
		creds = credentials.NewTLS(o.secure)
	}
	target := o.address
	if _, _, err := net.SplitHostPort(target); err == nil {
		target = "passthrough:///" + target
	}
	// A connection lives no longer than its stream, so that it is the poller that decides
	// how soon a lost one is opened anew.
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxORCABin)))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	o.stream = &orcaStream{conn: conn, cancel: cancel, first: make(chan struct{}), done: make(chan struct{})}
	go o.stream.run(ctx, o.silence)
	return nil
}

func (o *orca) close() {
	if s := o.stream; s != nil {
		s.cancel(nil)
		_ = s.conn.Close()
		<-s.done
		o.stream = nil
	}
}

// orcaStream takes the reports of one stream as they come.
type orcaStream struct {
	conn   *grpc.ClientConn
	cancel context.CancelCauseFunc
	first  chan struct{} // closed with the first report
	done   chan struct{} // closed with the stream

	mu   sync.Mutex
	last Reading
	err  error // why the last report says nothing, or there is none any more
}

func (s *orcaStream) run(ctx context.Context, silence time.Duration) {
	defer close(s.done)
	timer := time.AfterFunc(silence, func() { s.cancel(errORCASilent) })
	defer timer.Stop()
	stream, err := service.NewOpenRcaServiceClient(s.conn).StreamCoreMetrics(ctx,
		&service.OrcaLoadReportRequest{ReportInterval: durationpb.New(orcaInterval)})
	for n := 0; err == nil; n++ {
		var report *load.OrcaLoadReport
		if report, err = stream.Recv(); err != nil {
			break
		}
		timer.Reset(silence)
		s.take(report, time.Now())
		if n == 0 {
			close(s.first)
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	} else if err = fmt.Errorf("load reports: %w", err); answered(err) {
		err = &reachedError{err}
	}
	s.mu.Lock()
	s.err = err
	s.mu.Unlock()
}

func (s *orcaStream) take(report *load.OrcaLoadReport, now time.Time) {
	r, err := orcaReading(report)
	r.At = now
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.err = r, err
}

func (s *orcaStream) newest() (Reading, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return Reading{}, s.err
	}
	return s.last, nil
}

func (s *orcaStream) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// orcaReading takes from a report what has one of the names of in-band reports, as a
// named metric or a named utilization.
func orcaReading(report *load.OrcaLoadReport) (r Reading, err error) {
	for _, m := range []map[string]float64{report.GetNamedMetrics(), report.GetUtilization()} {
		for name, n := range m {
			var v Values
			if orcaSet(name, n, &v); v == (Values{}) {
				if orcaSet(name, 0, &v); v != (Values{}) {
					r.Spoilt++
				}
				continue
			}
			orcaSet(name, n, &r.Values)
		}
	}
	if r.Values == (Values{}) {
		return r, &reachedError{errORCANothing}
	}
	return r, nil
}

// answered tells a server that answers, though not with reports, from one that cannot be
// reached.
func answered(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable:
		return strings.Contains(err.Error(), "HTTP/1.1 header") // it speaks, but another language
	case codes.DeadlineExceeded, codes.Canceled:
		return false
	}
	return true
}

// reachedError is why an engine that answers gives no signal.
type reachedError struct{ error }

func (e *reachedError) Unwrap() error { return e.error }
