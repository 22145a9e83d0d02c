package weights

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"github.com/wardrop-lb/wardrop/api"
	"github.com/wardrop-lb/wardrop/fleet"
)

// What crosses the wire of a version is recorded once, by the code that speaks it, and kept
// for good: newer code must go on understanding it. Recordings are never made again, and
// -record refuses to.
var record = flag.String("record", "", "record the stream of this wire, like wire2, into testdata")

// recordedPlans are what the recorded publisher published, one after the other. The fourth is
// refused; the fifth is the third again, of the next leader.
func recordedPlans() []*fleet.Snapshot {
	at := time.Unix(1_795_000_000, 0).UTC()
	s := func(version uint64, engines int, rows ...fleet.SnapshotRow) *fleet.Snapshot {
		out := &fleet.Snapshot{
			Epoch: 4, Version: version, Cluster: "c", Time: at.Add(time.Duration(version) * 2 * time.Second), GoodFor: 30 * time.Second,
			Replicas: 2, Planes: []string{"0123456789abcdef", "fedcba9876543210"}, Rows: rows,
		}
		for i := range engines {
			out.Engines = append(out.Engines, fleet.SnapshotEngine{
				Name: fmt.Sprintf("e%d", i), Region: fmt.Sprintf("r%d", i%2), URL: fmt.Sprintf("http://127.0.0.1:%d", 8000+i), Kind: "vllm",
				Capacity: 12.5 + float64(i)/3, Protocol: "http1", Collector: "c", Metrics: "",
			})
		}
		out.Engines[0].Kind, out.Engines[0].Metrics = "generic", "/stats"
		out.Engines[0].Names = map[string][]string{"running": {"run", "active"}, "waiting": {"queue"}}
		out.Engines[1].Protocol, out.Engines[1].Collector = "h2c", "@r1"
		return out
	}
	t := func(engine int32, weight float64) fleet.Target {
		return fleet.Target{Engine: engine, Weight: weight, Predicted: 1.5 + float64(engine)/7, Network: float64(engine) / 100, Limit: 40 + float64(engine)}
	}
	third := 1.0 / 3
	chat := fleet.SnapshotRow{Model: "chat", Targets: []fleet.Target{t(0, third), t(1, third), t(2, third)}, Shed: [3]float64{0, 0, 0.25}, Utilisation: 0.7}
	code := fleet.SnapshotRow{Model: "code/small", Targets: []fleet.Target{t(0, 0.5), t(1, 0.5), t(3, 0)}, Utilisation: 1.0 / 7}
	moved := fleet.SnapshotRow{Model: "chat", Targets: []fleet.Target{t(0, 0.25), t(1, 0.5), t(2, 0.25)}, Shed: [3]float64{0, 0, 0.5}, Utilisation: 0.75}
	embed := fleet.SnapshotRow{Model: "embed", Targets: []fleet.Target{t(4, 1)}, Utilisation: 0.1}
	bad := fleet.SnapshotRow{Model: "chat", Targets: []fleet.Target{t(0, 0.9), t(1, 0.5)}}
	again := s(1, 5, moved, embed)
	again.Epoch = 5
	return []*fleet.Snapshot{s(1, 4, chat, code), s(2, 4, moved, code), s(3, 5, moved, embed), s(4, 5, bad, embed), again}
}

// tape keeps the messages of streams.
type tape struct {
	mu                  sync.Mutex
	requests, responses bytes.Buffer
}

type taped struct {
	grpc.ServerStream
	tape *tape
}

func (s taped) SendMsg(m any) error {
	s.tape.keep(&s.tape.responses, m)
	return s.ServerStream.SendMsg(m)
}

func (s taped) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil {
		s.tape.keep(&s.tape.requests, m)
	}
	return err
}

func (t *tape) keep(to *bytes.Buffer, m any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _ = protodelim.MarshalTo(to, m.(proto.Message)) // a buffer takes everything
}

// TestRecord records a data plane that follows the plans and refuses the fourth, then the same
// when it comes back to the next leader, and the snapshot that it saved.
func TestRecord(t *testing.T) {
	if *record == "" {
		t.Skip("-record is not set")
	}
	dir := filepath.Join("testdata", *record)
	if _, err := os.Stat(filepath.Join(dir, "saved")); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%s is there: what was recorded stays as it is", dir)
	}
	require.NoError(t, os.MkdirAll(dir, 0o755))
	first, second := &tape{}, &tape{}
	s := startWith(t, "127.0.0.1:0", api.Wire, first)
	plans := recordedPlans()
	path := filepath.Join(t.TempDir(), "saved")
	require.NoError(t, s.publisher.Publish(plans[:1]))
	p := subscribe(t, path, s.addr)
	p.next(t)
	for _, plan := range plans[1:3] {
		require.NoError(t, s.publisher.Publish([]*fleet.Snapshot{plan}))
		p.next(t)
	}
	require.NoError(t, s.publisher.Publish(plans[3:4]))
	eventually(t, "refused", func() bool { _, _, refused := p.Applied(); return refused != "" })
	eventually(t, "the publisher heard of it", func() bool { return s.publisher.Subscriptions()[0].Refused != "" })
	s.stop()
	again := startWith(t, s.addr, api.Wire, second)
	defer again.stop()
	require.NoError(t, again.publisher.Publish(plans[4:]))
	require.Equal(t, uint64(5), p.next(t).Epoch)
	eventually(t, "saved", func() bool { s, err := load(path); return err == nil && s.GetHead().GetEpoch() == 5 })
	saved, err := os.ReadFile(path)
	require.NoError(t, err)
	for name, tp := range map[string]*tape{"first": first, "second": second} {
		tp.mu.Lock()
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".requests"), tp.requests.Bytes(), 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".responses"), tp.responses.Bytes(), 0o644))
		tp.mu.Unlock()
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "saved"), saved, 0o644))
}

// recorded reads messages that were recorded.
func recorded[M any, P interface {
	*M
	proto.Message
}](t testing.TB, wire, name string) (out []P) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", wire, name))
	require.NoError(t, err)
	for r := bytes.NewReader(data); r.Len() > 0; {
		m := P(new(M))
		require.NoError(t, protodelim.UnmarshalFrom(r, m))
		out = append(out, m)
	}
	return out
}
