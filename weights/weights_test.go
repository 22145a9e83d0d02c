package weights

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/wardrop-lb/wardrop/api"
	"github.com/wardrop-lb/wardrop/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plan is a snapshot of one row split over two engines.
func plan(epoch, version uint64, a float64) *fleet.Snapshot {
	return &fleet.Snapshot{
		Epoch: epoch, Version: version, Cluster: "c", Time: time.Unix(int64(version), 0).UTC(), GoodFor: time.Minute,
		Engines: []fleet.SnapshotEngine{{Name: "a", Capacity: 1}, {Name: "b", Capacity: 1}},
		Rows: []fleet.SnapshotRow{{Model: "m", Targets: []fleet.Target{
			{Engine: 0, Weight: a, Predicted: 1}, {Engine: 1, Weight: 1 - a, Predicted: 1},
		}}},
	}
}

// fixture is a control plane's weight path on a real socket; it can be stopped
// and started again on the same address.
type fixture struct {
	t         *testing.T
	addr      string
	grpc      *grpc.Server
	cancel    context.CancelFunc
	publisher *Publisher
	done      chan struct{}
	streams   atomic.Int64 // that were opened

	mu   sync.Mutex
	sent map[string]int // resources by type URL
}

// counting counts the resources that a stream sends.
type counting struct {
	grpc.ServerStream
	fixture *fixture
}

func (c counting) SendMsg(m any) error {
	if r, ok := m.(*discovery.DeltaDiscoveryResponse); ok {
		c.fixture.mu.Lock()
		c.fixture.sent[r.GetTypeUrl()] += len(r.GetResources())
		c.fixture.mu.Unlock()
	}
	return c.ServerStream.SendMsg(m)
}

func start(t *testing.T, addr string) *fixture { return startWith(t, addr, api.Wire, &tape{}) }

// startAs starts one that speaks a wire.
func startAs(t *testing.T, wire int) *fixture { return startWith(t, "127.0.0.1:0", wire, &tape{}) }

func startWith(t *testing.T, addr string, wire int, tp *tape) *fixture {
	ctx, cancel := context.WithCancel(context.Background())
	s := &fixture{t: t, cancel: cancel, publisher: newPublisher(ctx, wire), done: make(chan struct{}), sent: map[string]int{}}
	s.grpc = grpc.NewServer(append(ServerOptions(), grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
		s.streams.Add(1)
		return h(srv, counting{taped{ss, tp}, s})
	}))...)
	s.publisher.Register(s.grpc)
	l, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	s.addr = l.Addr().String()
	go func() { defer close(s.done); _ = s.grpc.Serve(l) }()
	return s
}

func (s *fixture) stop() {
	s.cancel()
	s.grpc.Stop()
	<-s.done
}

// plane is a data plane's subscriber whose applied snapshots can be awaited.
type plane struct {
	*Subscriber
	t       *testing.T
	applied chan *fleet.Snapshot
	refuse  func(*fleet.Snapshot) error
	log     *syncedLog
	stop    func() // ends it before the test does
}

// syncedLog is a log that can be read while it is written.
type syncedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *syncedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// lines counts those with a word.
func (l *syncedLog) lines(word string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, word) {
			n++
		}
	}
	return n
}

// says waits for a line of the log with these words.
func (p *plane) says(words ...string) {
	p.t.Helper()
	eventually(p.t, "the log says "+strings.Join(words, ", "), func() bool {
		p.log.mu.Lock()
		defer p.log.mu.Unlock()
		for line := range strings.Lines(p.log.text.String()) {
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
				return true
			}
		}
		return false
	})
}

// subscribe follows the publishers at some addresses and saves to path, if it is not empty.
func subscribe(t *testing.T, path string, addrs ...string) *plane {
	p := newPlane(t, path)
	p.dial(addrs...)
	p.run()
	return p
}

// subscribeAs follows one as a data plane that speaks a wire.
func subscribeAs(t *testing.T, wire int, addr string) *plane {
	p := newPlane(t, "")
	p.speaks = wire
	p.dial(addr)
	p.run()
	return p
}

func newPlane(t *testing.T, path string) *plane {
	p := &plane{t: t, applied: make(chan *fleet.Snapshot, 100), refuse: func(*fleet.Snapshot) error { return nil }, log: &syncedLog{}}
	p.Subscriber = &Subscriber{Cluster: "c", Instance: "i", Path: path, Log: slog.New(slog.NewTextHandler(p.log, nil)),
		Apply: func(s *fleet.Snapshot) error {
			if err := p.refuse(s); err != nil {
				return err
			}
			p.applied <- s
			return nil
		}}
	return p
}

func (p *plane) dial(addrs ...string) {
	for _, addr := range addrs {
		conn, err := grpc.NewClient(addr, append(DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		require.NoError(p.t, err)
		p.t.Cleanup(func() { _ = conn.Close() })
		p.Conns = append(p.Conns, conn)
	}
}

// run runs the subscriber until the test ends.
func (p *plane) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { p.Run(ctx) })
	p.stop = func() { cancel(); wg.Wait() }
	p.t.Cleanup(p.stop)
}

func (p *plane) next(t *testing.T) *fleet.Snapshot {
	t.Helper()
	select {
	case s := <-p.applied:
		return s
	case <-time.After(10 * time.Second):
		t.Fatal("no snapshot was applied")
		return nil
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 10*time.Second, 5*time.Millisecond, what)
}

func TestSnapshotsReachTheDataPlaneWhole(t *testing.T) {
	began := time.Now()
	s := start(t, "127.0.0.1:0")
	defer s.stop()
	require.NoError(t, s.publisher.Publish([]*fleet.Snapshot{plan(1, 1, 0.5)}))
	p := subscribe(t, "", s.addr)
	require.Equal(t, plan(1, 1, 0.5), p.next(t))
	require.NoError(t, s.publisher.Publish([]*fleet.Snapshot{plan(1, 2, 0.25)}))
	require.Equal(t, plan(1, 2, 0.25), p.next(t))
	eventually(t, "the publisher knows its subscriber", func() bool {
		subs := s.publisher.Subscriptions()
		return len(subs) == 1 && !subs[0].Since.Before(began) && subs[0] == Subscription{Cluster: "c", Instance: "i", Wire: 2, Connected: true, Epoch: 1, Version: 2, Since: subs[0].Since}
	})
}

func TestRowsComeAndGo(t *testing.T) {
	s := start(t, "127.0.0.1:0")
	defer s.stop()
	p := subscribe(t, "", s.addr)
	for v, rows := range []int{1, 2, 1, 2, 0, 1} {
		snapshot := plan(1, uint64(v+1), 0.5)
		snapshot.Rows = append(snapshot.Rows, fleet.SnapshotRow{Model: "n", Targets: snapshot.Rows[0].Targets})[:rows]
		require.NoError(t, s.publisher.Publish([]*fleet.Snapshot{snapshot}))
		got := p.next(t)
		require.Equal(t, uint64(v+1), got.Version)
		require.Len(t, got.Rows, rows)
	}
}

func TestRefusalIsReportedAndKeepsTheLast(t *testing.T) {
	s := start(t, "127.0.0.1:0")
	defer s.stop()
	require.NoError(t, s.publisher.Publish([]*fleet.Snapshot{plan(1, 1, 0.5)}))
	p := subscribe(t, "", s.addr)
	p.next(t)
	bad := plan(1, 2, 0.5)
	bad.Rows[0].Targets[0].Weight = 0.9
	require.NoError(t, s.publisher.Publish([]*fleet.Snapshot{bad}))
	eventually(t, "the reason of the NACK arrives", func() bool {
		subs := s.publisher.Subscriptions()
		return len(subs) == 1 && subs[0].Refused == `row "m": weights add up to 1.4, not 1`
	})
	_, version, refused := p.Applied()
	require.Equal(t, uint64(1), version)
	require.Contains(t, refused, "add up to 1.4")
	require.NoError(t, s.publisher.Publish([]*fleet.Snapshot{plan(1, 3, 0.5)}))
	require.Equal(t, uint64(3), p.next(t).Version)
	_, _, refused = p.Applied()
	require.Empty(t, refused, "a good snapshot clears the refusal")
}

func TestLowerEpochIsRefused(t *testing.T) {
	s := start(t, "127.0.0.1:0")
	require.NoError(t, s.publisher.Publish([]*fleet.Snapshot{plan(5, 7, 0.5)}))
	p := subscribe(t, "", s.addr)
	p.next(t)
	s.stop()

	old := start(t, s.addr)
	defer old.stop()
	require.NoError(t, old.publisher.Publish([]*fleet.Snapshot{plan(4, 100, 0.1)}))
	eventually(t, "the lower epoch is refused", func() bool {
		_, _, refused := p.Applied()
		return refused == "epoch 4 version 100 is older than epoch 5 version 7 in force"
	})
	require.NoError(t, old.publisher.Publish([]*fleet.Snapshot{plan(6, 1, 0.1)}))
	require.Equal(t, uint64(6), p.next(t).Epoch, "a higher epoch counts its versions anew")
}

func TestRefusalByTheDataPlaneItself(t *testing.T) {
	s := start(t, "127.0.0.1:0")
	defer s.stop()
	p := subscribe(t, "", s.addr)
	p.mu.Lock()
	p.refuse = func(s *fleet.Snapshot) error {
		if s.Version == 1 {
			return errors.New("not today")
		}
		return nil
	}
	p.mu.Unlock()
	require.NoError(t, s.publisher.Publish([]*fleet.Snapshot{plan(1, 1, 0.5)}))
	eventually(t, "refused", func() bool { _, _, r := p.Applied(); return r == "not today" })
	require.NoError(t, s.publisher.Publish([]*fleet.Snapshot{plan(1, 2, 0.5)}))
	require.Equal(t, uint64(2), p.next(t).Version)
}

func TestRestoreFromDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "c.snapshot")
	s := start(t, "127.0.0.1:0")
	require.NoError(t, s.publisher.Publish([]*fleet.Snapshot{plan(3, 9, 0.25)}))
	subscribe(t, path, s.addr).next(t)
	eventually(t, "saved", func() bool { _, err := os.Stat(path); return err == nil })
	s.stop()

	var got *fleet.Snapshot
	fresh := &Subscriber{Cluster: "c", Path: path, Log: slog.New(slog.DiscardHandler), Apply: func(s *fleet.Snapshot) error { got = s; return nil }}
	require.NoError(t, fresh.Restore())
	require.Equal(t, plan(3, 9, 0.25), got)
	epoch, version, _ := fresh.Applied()
	require.Equal(t, []uint64{3, 9}, []uint64{epoch, version})
}

// TestSavedKnowsItsAge: a snapshot that is renewed again and again is not saved each time, but
// what is on disk is never older than it is good for.
func TestSavedKnowsItsAge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.snapshot")
	s := start(t, "127.0.0.1:0")
	defer s.stop()
	p := subscribe(t, path, s.addr)
	begin := plan(1, 1, 0.5).Time
	for _, c := range []struct{ published, saved time.Duration }{
		{0, 0}, {2 * time.Second, 0}, {time.Minute, 0}, {61 * time.Second, 61 * time.Second}, {2 * time.Minute, 61 * time.Second}, {time.Hour, time.Hour},
	} {
		snapshot := plan(1, 1, 0.5)
		snapshot.Time = begin.Add(c.published)
		require.NoError(t, s.publisher.Publish([]*fleet.Snapshot{snapshot}))
		require.Equal(t, snapshot, p.next(t))
		p.Applied() // it waits until the snapshot is saved
		saved, err := load(path)
		require.NoError(t, err)
		require.Equal(t, begin.Add(c.saved), saved.Head.GetPublished().AsTime())
	}
}

func TestNothingSavedIsNoError(t *testing.T) {
	s := &Subscriber{Path: filepath.Join(t.TempDir(), "none")}
	require.NoError(t, s.Restore())
}

// TestCorruptSnapshotIsSetAside flips, cuts and mislabels saved files: none may
// be trusted, none may be deleted.
func TestCorruptSnapshotIsSetAside(t *testing.T) {
	dir := t.TempDir()
	saved, err := api.EncodeSnapshot(plan(1, 1, 0.5))
	require.NoError(t, err)
	good := filepath.Join(dir, "good")
	require.NoError(t, store(good, saved))
	data, err := os.ReadFile(good)
	require.NoError(t, err)
	flipped := append([]byte(nil), data...)
	flipped[len(flipped)-3] ^= 1

	for name, content := range map[string][]byte{
		"flipped": flipped, "cut": data[:len(data)-5], "empty": {}, "other": []byte("hello"), "header": []byte(header),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, name)
			s := &Subscriber{Cluster: "c", Path: path, Log: slog.New(slog.DiscardHandler), Apply: func(*fleet.Snapshot) error {
				t.Error("a corrupt snapshot was applied")
				return nil
			}}
			for _, aside := range []string{path + ".corrupt", path + ".corrupt-1"} {
				require.NoError(t, os.WriteFile(path, content, 0o600))
				require.ErrorIs(t, s.Restore(), ErrSetAside)
				kept, err := os.ReadFile(aside)
				require.NoError(t, err)
				require.Equal(t, content, kept)
				require.NoFileExists(t, path)
			}
		})
	}
}

func TestSnapshotOfAnotherClusterIsSetAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	saved, err := api.EncodeSnapshot(plan(1, 1, 0.5))
	require.NoError(t, err)
	require.NoError(t, store(path, saved))
	s := &Subscriber{Cluster: "elsewhere", Path: path, Log: slog.New(slog.DiscardHandler), Apply: func(*fleet.Snapshot) error { return nil }}
	require.ErrorIs(t, s.Restore(), ErrSetAside)
}

// TestReconnectResumes: after the control plane returns with the same content, a
// data plane that holds it is sent the head alone.
func TestReconnectResumes(t *testing.T) {
	s := start(t, "127.0.0.1:0")
	require.NoError(t, s.publisher.Publish([]*fleet.Snapshot{plan(1, 1, 0.5)}))
	p := subscribe(t, "", s.addr)
	p.next(t)
	s.stop()
	again := start(t, s.addr)
	defer again.stop()
	require.NoError(t, again.publisher.Publish([]*fleet.Snapshot{plan(2, 1, 0.5)}))
	require.Equal(t, uint64(2), p.next(t).Epoch)
	again.mu.Lock()
	defer again.mu.Unlock()
	require.Equal(t, map[string]int{api.HeadType: 1}, again.sent)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(header + "12345678"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if p, err := parse(data); (p == nil) == (err == nil) {
			t.Fatal("a snapshot or an error, never both or neither")
		}
	})
}

// relays is a subscriber of many clusters.
func relays(t *testing.T, dir string, only []string, addrs ...string) *plane {
	p := &plane{t: t, log: &syncedLog{}}
	p.Subscriber = &Subscriber{Only: only, Instance: "relay", Path: dir, Log: slog.New(slog.NewTextHandler(p.log, nil)),
		Apply: func(*fleet.Snapshot) error { return nil }}
	p.dial(addrs...)
	if len(addrs) > 0 {
		p.run()
	}
	return p
}

// holds waits until these snapshots are in force and no others, like "c 1.2".
func (p *plane) holds(want ...string) {
	p.t.Helper()
	eventually(p.t, "in force are "+strings.Join(want, ", "), func() bool {
		var got []string
		for _, x := range p.Places() {
			got = append(got, fmt.Sprintf("%s %d.%d", x.Cluster, x.Epoch, x.Version))
		}
		return slices.Equal(got, want)
	})
}
