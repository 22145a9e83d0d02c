package store

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// Connections between members end in their own time, after etcd has.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("net/http.(*connReader).backgroundRead"), goleak.IgnoreAnyFunction("net/http.(*conn).serve"))
}

func alone(t *testing.T, dir string) (*Embedded, error) {
	return OpenEmbedded(t.Context(), EmbeddedOptions{Dir: dir, Self: Peer{Name: "wardrop"}, Log: slog.New(slog.DiscardHandler)})
}

func TestEmbeddedEpochSurvivesRestart(t *testing.T) {
	dir := t.TempDir()
	for want := uint64(1); want <= 3; want++ {
		s, err := alone(t, dir)
		require.NoError(t, err)
		term, err := s.Lead(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, want, term.Epoch)
		require.Equal(t, "wardrop", s.Leader())
		if want == 3 {
			term, err = s.Lead(t.Context(), 100)
			require.NoError(t, err)
			require.Equal(t, uint64(101), term.Epoch)
			keepsOverrides(t, s)
		}
		require.NoError(t, s.Close())
		<-term.Lost
	}
}

func TestEmbeddedOverridesSurviveRestart(t *testing.T) {
	dir := t.TempDir()
	s, err := alone(t, dir)
	require.NoError(t, err)
	require.NoError(t, s.Put(t.Context(), override("drain", "e", "")))
	require.NoError(t, s.Close())
	s, err = alone(t, dir)
	require.NoError(t, err)
	followed(t, s).becomes(t, override("drain", "e", ""))
	require.NoError(t, s.Close())
}

func TestEmbeddedEpochsAreNeverGivenTwice(t *testing.T) {
	s, err := alone(t, t.TempDir())
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	var mu sync.Mutex
	seen := map[uint64]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			term, err := s.Lead(t.Context(), 0)
			mu.Lock()
			defer mu.Unlock()
			if err != nil || seen[term.Epoch] {
				t.Errorf("epoch %d twice, or %v", term.Epoch, err)
			}
			seen[term.Epoch] = true
		})
	}
	wg.Wait()
}

func TestEmbeddedRefusesADirectoryThatIsAFile(t *testing.T) {
	_, err := alone(t, "/dev/null/x")
	require.ErrorContains(t, err, "store:")
}

// The second is told so at once, and may have it when the first has ended.
func TestEmbeddedDirectoryIsHeldByOne(t *testing.T) {
	dir := t.TempDir()
	first, err := alone(t, dir)
	require.NoError(t, err)
	_, err = alone(t, dir)
	require.EqualError(t, err, "store: another process uses "+dir)
	require.NoError(t, first.Close())
	second, err := alone(t, dir)
	require.NoError(t, err)
	require.NoError(t, second.Close())
}

// What cannot be read is an error, not the end of the process.
func TestEmbeddedRefusesSpoiltData(t *testing.T) {
	dir := t.TempDir()
	s, err := alone(t, dir)
	require.NoError(t, err)
	_, err = s.Lead(t.Context(), 0)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	logs, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	require.NoError(t, err)
	require.NotEmpty(t, logs)
	data, err := os.ReadFile(logs[0])
	require.NoError(t, err)
	for i := 64; i < 256; i++ {
		data[i] ^= 0xff
	}
	require.NoError(t, os.WriteFile(logs[0], data, 0o600))
	_, err = alone(t, dir)
	require.ErrorContains(t, err, "store: start etcd in "+dir)
}

// members are those of one embedded store, by name.
type members struct {
	t     *testing.T
	dir   string
	peers []Peer
	up    map[string]*Embedded
}

func newMembers(t *testing.T, names ...string) *members {
	m := &members{t: t, dir: t.TempDir(), up: map[string]*Embedded{}}
	for _, n := range names {
		m.peers = append(m.peers, Peer{n, freeAddr(t)})
	}
	return m
}

func freeAddr(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func (m *members) peer(name string) Peer {
	for _, p := range m.peers {
		if p.Name == name {
			return p
		}
	}
	m.t.Fatalf("no member %s", name)
	return Peer{}
}

func (m *members) start(name string, join ...Peer) *Embedded {
	o := EmbeddedOptions{Dir: filepath.Join(m.dir, name), Self: m.peer(name), Peers: m.peers, Log: slog.New(slog.DiscardHandler), Heartbeat: 50 * time.Millisecond}
	if len(join) > 0 {
		o.Peers, o.Join = join, true
	}
	s, err := OpenEmbedded(m.t.Context(), o)
	require.NoError(m.t, err)
	m.up[name] = s
	return s
}

func (m *members) stop(name string) {
	require.NoError(m.t, m.up[name].Close())
	delete(m.up, name)
}

func (m *members) stopAll() {
	for name := range m.up {
		m.stop(name)
	}
}

// lead waits until one leads, and gives its name and term.
func (m *members) lead() (string, Term) {
	type led struct {
		name string
		term Term
	}
	first := make(chan led, len(m.up))
	var wg sync.WaitGroup
	ctx, cancel := contextOf(m.t)
	for name, s := range m.up {
		wg.Go(func() {
			if term, err := s.Lead(ctx, 0); err == nil {
				first <- led{name, term}
			}
		})
	}
	defer wg.Wait()
	defer cancel()
	select {
	case l := <-first:
		return l.name, l.term
	case <-ctx.Done():
		m.t.Fatal("nobody leads")
		return "", Term{}
	}
}

// TestMembers: one of three leads; another does when it has gone, with a higher epoch; what
// was kept is everywhere.
func TestMembers(t *testing.T) {
	m := newMembers(t, "a", "b", "c")
	defer m.stopAll()
	for _, p := range m.peers {
		m.start(p.Name)
	}
	leader, term := m.lead()
	epochs := []uint64{term.Epoch}
	var all []Store
	for _, s := range m.up {
		require.Eventually(t, func() bool { return s.Leader() == leader }, 10*time.Second, time.Millisecond)
		all = append(all, s)
	}
	keepsOverrides(t, all[0], all[1:]...)
	require.NoError(t, all[2].Put(t.Context(), override("drain", "e", "")))

	m.stop(leader)
	<-term.Lost
	next, after := m.lead()
	require.NotEqual(t, leader, next)
	epochs = append(epochs, after.Epoch)
	require.Greater(t, after.Epoch, term.Epoch)
	for _, s := range m.up {
		followed(t, s).becomes(t, override("drain", "e", ""))
	}

	m.stop(next) // one of three is no majority
	<-after.Lost
	for name, s := range m.up {
		ctx, cancel := contextWithin(t, time.Second)
		_, err := s.Lead(ctx, 0)
		cancel()
		require.Error(t, err, "%s leads alone", name)
		require.Empty(t, s.Leader())
	}
	m.start(leader)
	_, again := m.lead()
	require.Greater(t, again.Epoch, epochs[1])
	followed(t, m.up[leader]).becomes(t, override("drain", "e", ""))
}

// One process becomes three; one that lost its data is taken in again.
func TestMembersJoin(t *testing.T) {
	m := newMembers(t, "a", "b", "c")
	defer m.stopAll()
	s, err := alone(t, filepath.Join(m.dir, "a"))
	require.NoError(t, err)
	_, err = s.Admit(t.Context(), m.peer("b"))
	require.ErrorContains(t, err, "configured to be the only one")
	require.NoError(t, s.Put(t.Context(), override("drain", "e", "")))
	require.NoError(t, s.Close())

	a := m.start("a") // by its own data it is still alone
	_, err = a.Admit(t.Context(), m.peer("a"))
	require.ErrorContains(t, err, "own name")
	for _, name := range []string{"b", "c"} {
		_, _ = m.lead()
		s := m.start(name, admitted(t, a, m.peer(name))...)
		joined(t, s)
		followed(t, s).becomes(t, override("drain", "e", ""))
	}
	m.stop("a")
	leader, _ := m.lead()

	require.NoError(t, os.RemoveAll(filepath.Join(m.dir, "a")))
	peers := admitted(t, m.up[leader], m.peer("a"))
	require.Len(t, peers, 3)
	joined(t, m.start("a", peers...))
	followed(t, m.up["a"]).becomes(t, override("drain", "e", ""))
	m.stop(leader)
	_, _ = m.lead()
}

// admitted asks until a member is taken in: etcd wants the others to have been connected
// for some seconds.
func admitted(t *testing.T, s *Embedded, joins Peer) (peers []Peer) {
	require.Eventually(t, func() bool {
		var err error
		peers, err = s.Admit(t.Context(), joins)
		return err == nil
	}, 30*time.Second, 50*time.Millisecond)
	return peers
}

// joined waits until a member votes; it is Lead that makes it one.
func joined(t *testing.T, s *Embedded) {
	ctx, cancel := contextOf(t)
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = s.Lead(ctx, 0) })
	<-s.etcd.Server.ReadyNotify() // before, it takes itself for what it was started as
	require.Eventually(t, func() bool {
		m := s.etcd.Server.Cluster().Member(s.etcd.Server.MemberID())
		return m != nil && !m.IsLearner
	}, 20*time.Second, 5*time.Millisecond)
	cancel()
	wg.Wait()
}

func TestBindAddr(t *testing.T) {
	for addr, want := range map[string]string{
		"10.0.0.1:7": "10.0.0.1:7", "localhost:7": "localhost:7", "a.example:7": "0.0.0.0:7", "[::1]:7": "[::1]:7",
	} {
		got, err := bindAddr(addr)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := bindAddr("nowhere")
	require.Error(t, err)
}

func ExampleOverride_Key() {
	fmt.Println(Override{Kind: "freeze"}.Key(), Override{Kind: "drain", Subject: "e1"}.Key())
	// Output: freeze drain/e1
}
