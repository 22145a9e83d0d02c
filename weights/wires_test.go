package weights

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/wardrop-lb/wardrop/fleet"
)

// player is a publisher that says what one said that was recorded, whatever it is asked.
type player struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	responses []*discovery.DeltaDiscoveryResponse
	answers   chan *discovery.DeltaDiscoveryRequest
}

func (p *player) DeltaAggregatedResources(stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	for _, r := range p.responses {
		if err := stream.Send(r); err != nil {
			return err
		}
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if r.GetResponseNonce() != "" {
			p.answers <- r
		}
	}
}

// play serves recorded responses.
func play(t *testing.T, responses []*discovery.DeltaDiscoveryResponse) (addr string, p *player) {
	t.Helper()
	p = &player{responses: responses, answers: make(chan *discovery.DeltaDiscoveryRequest, 1000)}
	server := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(server, p)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { server.Stop(); <-done })
	return l.Addr().String(), p
}

// TestRecordedStreamIsFollowed: a publisher of each wire that is still spoken is followed, what
// it says is saved, and what it should not have said is refused.
func TestRecordedStreamIsFollowed(t *testing.T) {
	for _, wire := range []string{"wire1", "wire2"} {
		t.Run(wire, func(t *testing.T) {
			plans := recordedPlans()
			addr, player := play(t, recorded[discovery.DeltaDiscoveryResponse](t, wire, "first.responses"))
			path := filepath.Join(t.TempDir(), "saved")
			p := subscribe(t, path, addr)
			for _, plan := range plans[:3] {
				require.Equal(t, plan, p.next(t))
			}
			eventually(t, "the fourth is refused", func() bool {
				_, version, refused := p.Applied()
				return version == 3 && refused == `row "chat": weights add up to 1.4, not 1`
			})
			refused := 0
			for range player.responses {
				if (<-player.answers).GetErrorDetail() != nil {
					refused++
				}
			}
			require.Equal(t, 1, refused)
			require.Equal(t, plans[2], restored(t, path))
		})
	}
}

// TestRecordedSnapshotIsRestored: a data plane starts from what one of each wire saved.
func TestRecordedSnapshotIsRestored(t *testing.T) {
	for _, wire := range []string{"wire1", "wire2"} {
		path := filepath.Join(t.TempDir(), "saved")
		data, err := os.ReadFile(filepath.Join("testdata", wire, "saved"))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, data, 0o600))
		require.Equal(t, recordedPlans()[4], restored(t, path), wire)
	}
}

// restored is the snapshot in a file.
func restored(t *testing.T, path string) (got *fleet.Snapshot) {
	t.Helper()
	s := &Subscriber{Cluster: "c", Path: path, Log: slog.New(slog.DiscardHandler), Apply: func(s *fleet.Snapshot) error { got = s; return nil }}
	require.NoError(t, s.Restore())
	return got
}
