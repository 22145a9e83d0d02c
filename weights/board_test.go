package weights

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/stream/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"pgregory.net/rapid"

	"github.com/wardrop-lb/wardrop/fleet"
)

// client is a subscriber of a board without sockets in between.
type client struct {
	*Subscriber
	board   *board
	u       *upstream
	sub     stream.Subscription
	applied map[string]*fleet.Snapshot
}

func newClient(b *board, clusters ...string) *client {
	c := &client{board: b, applied: map[string]*fleet.Snapshot{}}
	c.Subscriber = &Subscriber{Log: slog.New(slog.DiscardHandler), Apply: func(s *fleet.Snapshot) error {
		c.applied[s.Cluster] = s
		return nil
	}}
	c.u = c.newUpstream(nil, 0)
	c.upstreams = []*upstream{c.u}
	c.connect(clusters...)
	return c
}

// connect begins a stream, with what is held already.
func (c *client) connect(clusters ...string) {
	held := map[string]string{}
	for name, version := range c.u.assembly.held("") {
		held[name] = version
	}
	if len(clusters) == 0 {
		clusters = []string{everything}
	}
	c.u.assembly.broken()
	c.sub = stream.NewDeltaSubscription(clusters, nil, held, false)
}

// pull takes what the board has for it; nil for nothing.
func (c *client) pull(t require.TestingT) *discovery.DeltaDiscoveryResponse {
	r := c.board.respond(&boardWatch{sub: c.sub, request: &cache.DeltaRequest{}})
	if r == nil {
		return nil
	}
	sent, err := r.GetDeltaDiscoveryResponse()
	require.NoError(t, err)
	b, err := proto.Marshal(sent)
	require.NoError(t, err)
	got := &discovery.DeltaDiscoveryResponse{}
	require.NoError(t, proto.Unmarshal(b, got))
	require.NoError(t, c.take(c.u, got))
	c.sub.SetReturnedResources(r.GetReturnedResources())
	return got
}

// drawFleet is a snapshot of some clusters over one table, each with some models.
func drawFleet(t *rapid.T, version uint64) []*fleet.Snapshot {
	var table []fleet.SnapshotEngine
	for i := range 12 {
		if rapid.IntRange(0, 9).Draw(t, "engine") > 0 {
			table = append(table, fleet.SnapshotEngine{Name: fmt.Sprintf("e%02d", i), Capacity: rapid.SampledFrom([]float64{1, 2}).Draw(t, "capacity")})
		}
	}
	if len(table) == 0 {
		table = []fleet.SnapshotEngine{{Name: "e00"}}
	}
	var out []*fleet.Snapshot
	for _, cluster := range []string{"a", "b/c", "@r"} {
		if rapid.IntRange(0, 5).Draw(t, "cluster") == 0 {
			continue
		}
		s := &fleet.Snapshot{Cluster: cluster, Epoch: 1, Version: version, Time: time.Unix(int64(version), 0).UTC(), GoodFor: time.Minute, Engines: table}
		for _, model := range []string{"m", "n/o"} {
			if cluster == "@r" || rapid.IntRange(0, 5).Draw(t, "model") == 0 {
				continue
			}
			r := fleet.SnapshotRow{Model: model, Utilisation: rapid.SampledFrom([]float64{0.5, 1.0 / 3}).Draw(t, "utilisation")}
			for i := range table {
				if rapid.Bool().Draw(t, "target") || i == len(table)-1 {
					r.Targets = append(r.Targets, fleet.Target{Engine: int32(i), Predicted: rapid.SampledFrom([]float64{1, 1.1}).Draw(t, "predicted"), Limit: 4})
				}
			}
			for i := range r.Targets {
				r.Targets[i].Weight = 1 / float64(len(r.Targets))
			}
			s.Rows = append(s.Rows, r)
		}
		out = append(out, s)
	}
	return out
}

// TestBoardKeepsEverybodyCurrent: whatever is published, and whoever pulls when, skips versions,
// comes back or follows all, holds exactly what was published last.
func TestBoardKeepsEverybodyCurrent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBoard(2)
		every, lazy, all := newClient(b, "a"), newClient(b, "b/c"), newClient(b)
		for v := range rapid.IntRange(1, 8).Draw(t, "plans") {
			snapshots := map[string]*fleet.Snapshot{}
			for _, s := range drawFleet(t, uint64(v+1)) {
				snapshots[s.Cluster] = s
			}
			b.set(snapshots)
			every.pull(t)
			if rapid.Bool().Draw(t, "pulls") {
				lazy.pull(t)
			}
			if rapid.IntRange(0, 4).Draw(t, "reconnects") == 0 {
				all.connect()
			}
			all.pull(t)
			if s := snapshots["a"]; s != nil {
				require.Equal(t, s, every.applied["a"])
			}
			for cluster, s := range snapshots {
				require.Equal(t, s, all.applied[cluster])
			}
			require.Nil(t, all.pull(t), "it has everything")
		}
		lazy.pull(t)
		if p := b.postings["b/c"]; p != nil {
			require.Equal(t, p.snapshot, lazy.applied["b/c"])
		}
	})
}

// TestOnlyWhatChangedIsSent: a tick that changes nothing sends the head alone, and one that
// changes some weights only these.
func TestOnlyWhatChangedIsSent(t *testing.T) {
	b := newBoard(2)
	c := newClient(b, "c")
	snapshots := wide(1, 1000, "m", "n")
	b.set(snapshots)
	whole := proto.Size(c.pull(t))
	for v, change := range []func(s *fleet.Snapshot){
		func(*fleet.Snapshot) {},
		func(s *fleet.Snapshot) {
			x := s.Rows[0].Targets
			x[7].Weight, x[8].Weight = 0, x[8].Weight+x[7].Weight
		},
		func(s *fleet.Snapshot) { s.Engines[3].Capacity = 99 },
		func(s *fleet.Snapshot) { s.Rows[1].Utilisation = 0.25 },
	} {
		next := clone(snapshots["c"], uint64(v+2))
		change(next)
		snapshots = map[string]*fleet.Snapshot{"c": next}
		b.set(snapshots)
		require.Less(t, proto.Size(c.pull(t)), 400, "step %d; all of it is %d bytes", v, whole)
		require.Equal(t, next, c.applied["c"])
	}
}

// TestRowsAreKeptWhenEnginesMove: engines that come and go do not send the rows of others again.
func TestRowsAreKeptWhenEnginesMove(t *testing.T) {
	b := newBoard(2)
	c := newClient(b, "c")
	snapshots := wide(1, 1000, "m")
	b.set(snapshots)
	c.pull(t)
	next := clone(snapshots["c"], 2)
	next.Engines = append([]fleet.SnapshotEngine{{Name: "a new one"}}, next.Engines...)
	for i := range next.Rows[0].Targets {
		next.Rows[0].Targets[i].Engine++
	}
	b.set(map[string]*fleet.Snapshot{"c": next})
	r := c.pull(t)
	require.Len(t, r.Resources, 2, "the table and the head")
	require.Less(t, proto.Size(r), 400)
	require.Equal(t, next, c.applied["c"])
}

// TestUpstreamsShareWhatIsTheSame: what three members send of one snapshot is kept once.
func TestUpstreamsShareWhatIsTheSame(t *testing.T) {
	x := newSeveral(t, 3)
	x.speak(x.upstreams[1], 2)
	for i := range 3 {
		require.Empty(t, x.bring(i, plan(1, 1, 0.5)))
	}
	row := func(i int) *heldRow { return x.upstreams[i].assembly.(*assembly2).holdings["c"].rows["m"] }
	require.Same(t, row(0), row(1))
	require.Same(t, row(0), row(2))
	require.Same(t, &x.placeOf("c").snapshot.Rows[0].Targets[0], &row(2).row.Targets[0])
}

// TestMisfitsBeginAnew: who is sent a change of what it does not hold, or something else than the
// head names, drops all and is sent all again.
func TestMisfitsBeginAnew(t *testing.T) {
	b := newBoard(2)
	c := newClient(b, "c")
	snapshots := wide(1, 10, "m")
	b.set(snapshots)
	c.pull(t)
	c.u.assembly.(*assembly2).holdings["c"].rows["m"].digest++ // a mistake of ours
	next := clone(snapshots["c"], 2)
	next.Rows[0].Targets[0].Limit++
	b.set(map[string]*fleet.Snapshot{"c": next})
	r, err := b.respond(&boardWatch{sub: c.sub}).GetDeltaDiscoveryResponse()
	require.NoError(t, err)
	require.ErrorIs(t, c.take(c.u, r), errMisfit)
	require.Equal(t, uint64(1), c.applied["c"].Version)
	c.connect("c")
	require.Len(t, c.pull(t).Resources, 3)
	require.Equal(t, next, c.applied["c"])
}

// wide is a snapshot of cluster c with rows of many engines, in a map as boards take it.
func wide(version uint64, engines int, models ...string) map[string]*fleet.Snapshot {
	random := rand.New(rand.NewPCG(1, 2))
	s := &fleet.Snapshot{Cluster: "c", Epoch: 1, Version: version, Time: time.Unix(int64(version), 0).UTC(), GoodFor: time.Minute, Planes: []string{"0123456789abcdef"}}
	for i := range engines {
		s.Engines = append(s.Engines, fleet.SnapshotEngine{
			Name: fmt.Sprintf("engine-%04d", i), Region: fmt.Sprintf("region-%d", i%10), URL: fmt.Sprintf("http://10.0.%d.%d:8000", i/250, i%250),
			Kind: "vllm", Capacity: 12.5, Protocol: "http1", Collector: "c",
		})
	}
	for _, model := range models {
		r := fleet.SnapshotRow{Model: model, Utilisation: 0.75}
		sum := 0.0
		for i := range engines {
			w := 0.5 + random.Float64()
			sum += w
			network := 0.001 * float64(1+10*(i%10))
			r.Targets = append(r.Targets, fleet.Target{
				Engine: int32(i), Weight: w, Network: float64(float32(network)), Predicted: float64(float32(network + 2 + random.Float64())), Limit: float64(20 + random.IntN(100)),
			})
		}
		for i := range r.Targets {
			r.Targets[i].Weight /= sum
		}
		s.Rows = append(s.Rows, r)
	}
	return map[string]*fleet.Snapshot{"c": s}
}

// clone is the next version of a snapshot, to be changed.
func clone(s *fleet.Snapshot, version uint64) *fleet.Snapshot {
	out := *s
	out.Version, out.Time = version, s.Time.Add(2*time.Second)
	out.Engines = append([]fleet.SnapshotEngine(nil), s.Engines...)
	out.Rows = append([]fleet.SnapshotRow(nil), s.Rows...)
	for i := range out.Rows {
		out.Rows[i].Targets = append([]fleet.Target(nil), s.Rows[i].Targets...)
	}
	return &out
}

// TestSharedBytesAreTheSame: responses that are put together of shared parts read like others.
func TestSharedBytesAreTheSame(t *testing.T) {
	c := codec{encoding.GetCodecV2(grpcproto.Name)}
	rapid.Check(t, func(t *rapid.T) {
		r := &discovery.DeltaDiscoveryResponse{
			TypeUrl: rapid.String().Draw(t, "type"), Nonce: "7", SystemVersionInfo: "1.2.3", RemovedResources: rapid.SliceOf(rapid.String()).Draw(t, "removed"),
		}
		for range rapid.IntRange(0, 5).Draw(t, "resources") {
			value := make([]byte, rapid.SampledFrom([]int{0, 1, 127, shareFrom - 1, shareFrom, 20_000}).Draw(t, "size"))
			r.Resources = append(r.Resources, &discovery.Resource{
				Name: rapid.String().Draw(t, "name"), Version: "v", Aliases: []string{"x"}, Resource: &anypb.Any{TypeUrl: rapid.String().Draw(t, "url"), Value: value},
			})
		}
		data, err := c.Marshal(r)
		require.NoError(t, err)
		got := &discovery.DeltaDiscoveryResponse{}
		require.NoError(t, proto.Unmarshal(data.Materialize(), got))
		require.True(t, proto.Equal(r, got))
	})
}
