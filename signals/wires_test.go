package signals

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/wardrop-lb/wardrop/api"
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
	return receiveBy(t, &Receiver{Handle: handle, Log: slog.New(slog.DiscardHandler)})
}

func receiveBy(t testing.TB, r *Receiver) *grpc.ClientConn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	pb.RegisterSignalsServer(server, r)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(); server.Stop(); <-done })
	return conn
}

// TestWiresOfReports: reporters one version apart are heard; of those further apart the log says
// once that they are not, and others on the same stream, which is a relay's, are.
func TestWiresOfReports(t *testing.T) {
	var log bytes.Buffer
	got := make(chan *pb.ReportRequest, 100)
	r := &Receiver{Handle: func(r *pb.ReportRequest) { got <- r }, Log: slog.New(slog.NewTextHandler(&log, nil))}
	conn := receiveBy(t, r)
	stream, err := pb.NewSignalsClient(conn).Report(t.Context())
	require.NoError(t, err)
	for n := range 3 {
		for wire := range uint32(6) {
			require.NoError(t, stream.Send(&pb.ReportRequest{Instance: fmt.Sprint(wire), Wire: wire, Sequence: uint64(n)}))
		}
	}
	_, err = stream.CloseAndRecv()
	require.NoError(t, err)
	require.Len(t, got, 3*4)
	for range 3 {
		for wire := range uint32(4) { // 0 is 1
			require.Equal(t, wire, (<-got).Wire)
		}
	}
	require.Equal(t, 2, strings.Count(log.String(), "level=WARN"))
	require.Contains(t, log.String(), "one end speaks wire 5 and this one 2")
}

// TestNewReportsAreTakenByOldReceivers: what a reporter sends today says the same to code that
// knows only what wire 1 did.
func TestNewReportsAreTakenByOldReceivers(t *testing.T) {
	data, err := os.ReadFile("../api/testdata/wire1.descriptors")
	require.NoError(t, err)
	var set descriptorpb.FileDescriptorSet
	require.NoError(t, proto.Unmarshal(data, &set))
	files, err := protodesc.NewFiles(&set)
	require.NoError(t, err)
	d, err := files.FindDescriptorByName("wardrop.v1.ReportRequest")
	require.NoError(t, err)
	for _, who := range []string{"plane", "collector"} {
		for _, r := range recordedReports(t, "wire1", who) {
			before, err := proto.MarshalOptions{Deterministic: true}.Marshal(r)
			require.NoError(t, err)
			r.Wire = api.Wire // what a reporter adds today
			now, err := proto.Marshal(r)
			require.NoError(t, err)
			old := dynamicpb.NewMessage(d.(protoreflect.MessageDescriptor))
			require.NoError(t, proto.Unmarshal(now, old))
			old.SetUnknown(nil)
			left, err := proto.MarshalOptions{Deterministic: true}.Marshal(old)
			require.NoError(t, err)
			require.Equal(t, before, left)
		}
	}
}
