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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
)

const (
	retryFirst = 100 * time.Millisecond
	retryMax   = 5 * time.Second
	// retryAway is the most while there is no connection: trying costs nothing then, and the
	// connection has a backoff of its own.
	retryAway = time.Second
)

// path keeps a stream of reports open to one upstream.
type path struct {
	name string
	conn grpc.ClientConnInterface
	log  *slog.Logger
	// send sends over a stream that is open, until it breaks or ctx is done.
	send func(ctx context.Context, send func(*message) error) error
}

func upstreamName(conn grpc.ClientConnInterface, i int) string {
	if c, ok := conn.(interface{ Target() string }); ok {
		return c.Target()
	}
	return fmt.Sprint(i)
}

// run reconnects with backoff until ctx is done.
func (p *path) run(ctx context.Context) {
	retry := retryFirst
	for {
		sent, err := p.stream(ctx)
		if ctx.Err() != nil {
			return
		}
		if sent > 0 {
			retry = retryFirst
		}
		p.log.Debug("signal path lost", "upstream", p.name, "error", err, "retry_in", retry)
		select {
		case <-ctx.Done():
			return
		case <-time.After(retry):
		}
		most := retryMax
		if status.Code(err) == codes.Unavailable {
			most = retryAway
		}
		retry = min(2*retry, most)
	}
}

func (p *path) stream(ctx context.Context) (sent int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewSignalsClient(p.conn).Report(ctx, grpc.UseCompressor(gzip.Name))
	if err != nil {
		return 0, err
	}
	err = p.send(ctx, func(m *message) error {
		prepared, err := m.encoded(stream)
		if err == nil {
			err = stream.SendMsg(prepared)
		}
		if err == nil {
			sent++
		}
		return err
	})
	if errors.Is(err, io.EOF) { // the reason comes with the answer
		_, err = stream.CloseAndRecv()
	}
	return sent, err
}

// message is a report that is encoded and compressed once, by the first stream that sends it.
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

func nudge(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
