package weights

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/tick"
)

// sentBytes counts what a server sends: messages as they are on the wire, with gRPC's frame.
type sentBytes struct{ messages, bytes atomic.Int64 }

func (*sentBytes) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*sentBytes) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*sentBytes) HandleConn(context.Context, stats.ConnStats)                       {}

func (c *sentBytes) HandleRPC(_ context.Context, s stats.RPCStats) {
	if p, ok := s.(*stats.OutPayload); ok {
		c.messages.Add(1)
		c.bytes.Add(int64(p.WireLength))
	}
}

// wobble is what load does to a plan from tick to tick: every prediction and every limit is a
// little off from what it was.
func wobble(random *rand.Rand, snapshots []*fleet.Snapshot) {
	for _, s := range snapshots {
		for i := range s.Rows {
			for k := range s.Rows[i].Targets {
				t := &s.Rows[i].Targets[k]
				x := 1 + 0.005*random.NormFloat64()
				t.Predicted *= x
				t.Limit = math.Ceil(t.Limit * x)
			}
		}
	}
}

// TestPlansAreSmall: a plan that changes a hundredth of the weights of rows of a thousand engines
// is 12 KB for a cluster at most, also where all predictions follow the load.
func TestPlansAreSmall(t *testing.T) {
	for _, models := range []int{1, 4, 20} {
		for _, wobbles := range []bool{false, true} {
			t.Run(fmt.Sprintf("models=%d,wobbles=%t", models, wobbles), func(t *testing.T) {
				sent := &sentBytes{}
				s := serve(t, "127.0.0.1:0", grpc.StatsHandler(sent))
				defer s.stop()
				random := rand.New(rand.NewPCG(5, 6))
				computed := fleetOf(1, models)
				published := computed
				require.NoError(t, s.Publish(published))
				p := follow(t, s.addr, 1, published)
				defer p.stop()
				p.arrive(t, 1, 1)
				whole, most := sent.bytes.Load(), int64(0)
				for range 20 {
					computed = shift(random, computed)
					next := make([]*fleet.Snapshot, len(computed))
					for i, c := range computed {
						next[i] = clone(c, c.Version)
					}
					if wobbles {
						wobble(random, next)
						tick.Steady(published, next)
					}
					published = next
					before := sent.bytes.Load()
					require.NoError(t, s.Publish(published))
					p.arrive(t, 1, published[0].Version)
					most = max(most, sent.bytes.Load()-before)
				}
				t.Logf("all of it is %d bytes, a plan at most %d", whole, most)
				require.LessOrEqual(t, most, int64(12_000))
				require.Equal(t, int64(21), sent.messages.Load(), "one message a plan")
			})
		}
	}
}
