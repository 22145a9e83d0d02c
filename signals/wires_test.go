package signals

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
)

// recordedReports are what one of a wire reported, in a stream's order. Recordings are made once,
// by the code that speaks the wire, and never again: newer code must go on understanding them.
func recordedReports(t testing.TB, wire, who string) (out []*pb.ReportRequest) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", wire, who+".reports"))
	require.NoError(t, err)
	for r := bytes.NewReader(data); r.Len() > 0; {
		m := &pb.ReportRequest{}
		require.NoError(t, protodelim.UnmarshalFrom(r, m))
		out = append(out, m)
	}
	return out
}

// TestRecordedReportsAreTaken: whoever reports by a wire that is still spoken is understood.
func TestRecordedReportsAreTaken(t *testing.T) {
	for _, wire := range []string{"wire1"} {
		for who, want := range map[string]func(*testing.T, *pb.ReportRequest){
			"plane": func(t *testing.T, r *pb.ReportRequest) {
				require.Equal(t, "c", r.Cluster)
				require.Equal(t, uint64(60), r.Demands[0].Count)
				require.Equal(t, uint64(480), r.Demands[0].OutputTokens)
				require.Len(t, r.Distances, 2)
				require.Equal(t, 480.0, r.Readings[0].GetGenerationTokens())
				require.Len(t, r.Observations, 2)
			},
			"collector": func(t *testing.T, r *pb.ReportRequest) {
				require.Equal(t, "s", r.Collects)
				require.Equal(t, "far", r.Readings[0].Engine)
			},
		} {
			t.Run(wire+"/"+who, func(t *testing.T) {
				sent := recordedReports(t, wire, who)
				got := make(chan *pb.ReportRequest, len(sent))
				conn := receive(t, func(r *pb.ReportRequest) { got <- r })
				stream, err := pb.NewSignalsClient(conn).Report(t.Context())
				require.NoError(t, err)
				for i, r := range sent {
					require.Equal(t, i > 0, r.Partial)
					require.NoError(t, stream.Send(r))
					require.True(t, proto.Equal(r, <-got))
				}
				_, err = stream.CloseAndRecv()
				require.NoError(t, err)
				last := sent[len(sent)-1]
				require.Equal(t, uint64(2), last.Applied.Version)
				want(t, last)
			})
		}
	}
}

// receive serves the signal path and connects to it.
func receive(t testing.TB, handle func(*pb.ReportRequest)) *grpc.ClientConn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	pb.RegisterSignalsServer(server, &Receiver{Handle: handle})
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(); server.Stop(); <-done })
	return conn
}
