package signals

import (
	"errors"
	"io"
	"log/slog"
	"sync"

	"google.golang.org/grpc"

	"github.com/wardrop-lb/wardrop/api"
	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
)

// Receiver is an upstream's end of the signal path.
type Receiver struct {
	pb.UnimplementedSignalsServer
	// Handle takes a report; it may be called from many goroutines.
	Handle func(*pb.ReportRequest)
	Log    *slog.Logger

	refused sync.Map // instances of which the log has said that they are not understood
}

// Report takes the reports of one data plane, or those that a relay passes on, until it goes
// away. Who speaks too new or too old a wire is not understood, which the log says once: its
// weight path is what tells it.
func (r *Receiver) Report(stream grpc.ClientStreamingServer[pb.ReportRequest, pb.ReportResponse]) error {
	for {
		report, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&pb.ReportResponse{})
		}
		if err != nil {
			return err
		}
		if _, err := api.Spoken(api.Wire, int(report.Wire)); err != nil {
			r.refuse(report, err)
			continue
		}
		r.Handle(report)
	}
}

// maxRefused bounds how many the log has named.
const maxRefused = 1000

func (r *Receiver) refuse(report *pb.ReportRequest, why error) {
	n := 0
	r.refused.Range(func(any, any) bool { n++; return n < maxRefused })
	if n == maxRefused {
		return
	}
	if _, known := r.refused.LoadOrStore(report.Instance, true); !known {
		r.Log.Warn("reports are not understood", "cluster", report.Cluster, "collects", report.Collects, "instance", report.Instance, "error", why)
	}
}
