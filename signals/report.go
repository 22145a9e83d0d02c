package signals

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding/gzip"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
)

// Reporter streams a data plane's reports to the control plane. Reports carry
// absolute values: while the control plane is away none is kept, and the first
// one after its return says everything.
type Reporter struct {
	Conn     grpc.ClientConnInterface
	Interval time.Duration
	// Build makes the report of an instant; it is called from one goroutine. The first of a
	// stream must hold all readings, the others may leave out what is not new and be Partial.
	Build func(now time.Time, first bool) *pb.ReportRequest
	Log   *slog.Logger
}

const (
	retryFirst = 100 * time.Millisecond
	retryMax   = 5 * time.Second
)

// Run reports until ctx is done, reconnecting with backoff.
func (r *Reporter) Run(ctx context.Context) {
	retry := retryFirst
	for {
		sent, err := r.stream(ctx)
		if ctx.Err() != nil {
			return
		}
		if sent > 0 {
			retry = retryFirst
		}
		r.Log.Debug("signal path lost", "error", err, "retry_in", retry)
		select {
		case <-ctx.Done():
			return
		case <-time.After(retry):
		}
		retry = min(2*retry, retryMax)
	}
}

// stream sends reports over one stream until it breaks.
func (r *Reporter) stream(ctx context.Context) (sent int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewSignalsClient(r.Conn).Report(ctx, grpc.UseCompressor(gzip.Name))
	if err != nil {
		return 0, err
	}
	tick := time.NewTicker(r.Interval)
	defer tick.Stop()
	for {
		if err := stream.Send(r.Build(time.Now(), sent == 0)); err != nil {
			if errors.Is(err, io.EOF) { // the reason comes with the answer
				_, err = stream.CloseAndRecv()
			}
			return sent, err
		}
		sent++
		select {
		case <-ctx.Done():
			return sent, ctx.Err()
		case <-tick.C:
		}
	}
}

// Receiver is the control plane's end of the signal path.
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
