package api

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/fleet"
)

func drawSnapshot(t *rapid.T) *fleet.Snapshot {
	s := &fleet.Snapshot{
		Epoch: rapid.Uint64().Draw(t, "epoch"), Version: rapid.Uint64().Draw(t, "version"), Cluster: "c",
		Time:    time.Unix(rapid.Int64Range(0, 1<<32).Draw(t, "time"), 5).UTC(),
		GoodFor: time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "good for")),
	}
	n := rapid.IntRange(1, 6).Draw(t, "engines")
	for i := range n {
		s.Engines = append(s.Engines, fleet.SnapshotEngine{
			Name: fmt.Sprintf("e%d", i), Region: "r", URL: "http://x", Kind: "vllm", Collector: "c", Protocol: "h2c",
			Metrics: rapid.SampledFrom([]string{"", "/stats", "http://x:9/m"}).Draw(t, "metrics"),
			Names:   rapid.SampledFrom([]map[string][]string{nil, {"running": {"a", "b"}, "waiting": {"c"}}}).Draw(t, "names"), Capacity: rapid.Float64Range(0, 1e6).Draw(t, "capacity"),
		})
	}
	for m := range rapid.IntRange(0, 4).Draw(t, "rows") {
		row := fleet.SnapshotRow{Model: fmt.Sprintf("m%d", m), Utilisation: 0.5}
		row.Shed[2] = rapid.Float64Range(0, 1).Draw(t, "shed")
		for i := range n {
			row.Targets = append(row.Targets, fleet.Target{Engine: int32(i), Weight: 1 / float64(n), Predicted: 1.5, Network: 0.1, Limit: 7})
		}
		s.Rows = append(s.Rows, row)
	}
	return s
}

func TestSnapshotSurvivesTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSnapshot(t)
		p, err := EncodeSnapshot(s)
		require.NoError(t, err)
		b, err := proto.Marshal(p)
		require.NoError(t, err)
		var q pb.Saved
		require.NoError(t, proto.Unmarshal(b, &q))
		got, err := DecodeSnapshot(&q)
		require.NoError(t, err)
		require.Equal(t, s, got)
	})
}

func TestDecodeRefusesWhatDoesNotAddUp(t *testing.T) {
	for name, c := range map[string]struct {
		mutate func(*pb.Saved)
		want   string
	}{
		"no head":        {func(p *pb.Saved) { p.Head = nil }, "head"},
		"no table":       {func(p *pb.Saved) { p.Engines = nil }, "engine table"},
		"weights":        {func(p *pb.Saved) { p.Rows[0].Targets[0].Weight = 0.4 }, "add up"},
		"row emptied":    {func(p *pb.Saved) { p.Rows[0].Targets = nil }, "add up to 0"},
		"unknown engine": {func(p *pb.Saved) { p.Rows[0].Targets[0].Engine = "ghost" }, `unknown engine "ghost"`},
		"other cluster":  {func(p *pb.Saved) { p.Rows[0].Cluster = "d" }, "belongs to cluster"},
		"shed":           {func(p *pb.Saved) { p.Rows[0].Shed[0] = 1.5 }, "not a fraction"},
		"priorities":     {func(p *pb.Saved) { p.Rows[0].Shed = nil }, "priorities"},
		"row twice":      {func(p *pb.Saved) { p.Rows = append(p.Rows, p.Rows[0]) }, "not sorted"},
		"negative time":  {func(p *pb.Saved) { p.Rows[0].Targets[0].Predicted = -1 }, "predicted"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := EncodeSnapshot(&fleet.Snapshot{
				Cluster: "c",
				Engines: []fleet.SnapshotEngine{{Name: "a"}, {Name: "b"}},
				Rows:    []fleet.SnapshotRow{{Model: "m", Targets: []fleet.Target{{Engine: 0, Weight: 0.5}, {Engine: 1, Weight: 0.5}}}},
			})
			require.NoError(t, err)
			c.mutate(p)
			_, err = DecodeSnapshot(p)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func FuzzDecodeSnapshot(f *testing.F) {
	p, _ := EncodeSnapshot(&fleet.Snapshot{Cluster: "c", Engines: []fleet.SnapshotEngine{{Name: "a"}},
		Rows: []fleet.SnapshotRow{{Model: "m", Targets: []fleet.Target{{Weight: 1}}}}})
	b, _ := proto.Marshal(p)
	f.Add(b)
	f.Fuzz(func(t *testing.T, data []byte) {
		var p pb.Saved
		if proto.Unmarshal(data, &p) != nil {
			return
		}
		if s, err := DecodeSnapshot(&p); err == nil && s.Validate() != nil {
			t.Fatal("decoded without an error, yet invalid")
		}
	})
}
