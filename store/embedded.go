package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/client/pkg/v3/types"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// readyTimeout bounds the start of a member that needs no other: a second is usual, ten
// are a sick disk.
const readyTimeout = 30 * time.Second

// electionBeats is how many heartbeats may fail to come before another leads.
const electionBeats = 10

// Peer is a member of an embedded store.
type Peer struct {
	Name string `json:"name"`
	Addr string `json:"addr"` // host:port
}

// EmbeddedOptions is what a member of an embedded store is made of.
type EmbeddedOptions struct {
	// Dir is the data directory, which is created if need be.
	Dir string
	// Self is this member; without an address it is the only one.
	Self Peer
	// Peers are all members, this one among them, that begin together; those that run if
	// Join is set. They count only where the directory is empty: else it knows them.
	Peers []Peer
	// Join tells that the others have taken this member in (see Admit).
	Join bool
	// Heartbeat is the time between two signs of life of the leader. Default 100ms.
	Heartbeat time.Duration
	Log       *slog.Logger
}

// Embedded is a member of an etcd that runs in the processes of the control plane. It
// leads when its member of etcd does.
type Embedded struct {
	keys
	etcd  *embed.Etcd
	self  Peer
	level zap.AtomicLevel
	lock  *fileutil.LockedFile
	log   *slog.Logger
	gate  *gate
}

var _ Store = (*Embedded)(nil)

// Exists tells whether a data directory holds a member already.
func Exists(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "member"))
	return err == nil
}

// OpenEmbedded starts etcd. Only one process can hold a directory; the second fails: etcd
// itself would wait for the first to end, without a word and deaf to signals. One of
// several members does not wait for the others.
func OpenEmbedded(ctx context.Context, o EmbeddedOptions) (_ *Embedded, err error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	lock, err := fileutil.TryLockFile(filepath.Join(o.Dir, "wardrop.lock"), os.O_WRONLY|os.O_CREATE, 0o600)
	if errors.Is(err, fileutil.ErrLocked) {
		return nil, fmt.Errorf("store: another process uses %s", o.Dir)
	}
	if err != nil {
		return nil, fmt.Errorf("store: lock %s: %w", o.Dir, err)
	}
	defer func() {
		if err != nil {
			_ = lock.Close()
		}
	}()
	s := &Embedded{self: o.Self, lock: lock, log: o.Log, gate: newGate(), level: zap.NewAtomicLevelAt(zap.ErrorLevel)}
	if s.etcd, err = s.start(o); err != nil {
		return nil, fmt.Errorf("store: start etcd in %s: %w", o.Dir, err)
	}
	if o.Self.Addr == "" {
		if err := s.ready(ctx); err != nil {
			s.etcd.Close()
			return nil, fmt.Errorf("store: etcd in %s: %w", o.Dir, err)
		}
	}
	s.keys = keys{v3client.New(s.etcd.Server), "/wardrop"}
	return s, nil
}

// start runs etcd. What it finds wrong with its data while it starts comes as an error
// instead of the end of the process.
func (s *Embedded) start(o EmbeddedOptions) (etcd *embed.Etcd, err error) {
	starting := true
	defer func() {
		starting = false
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
			if f, ok := r.(fatal); ok {
				err = f.trouble()
			}
		}
	}()
	logger, err := zap.Config{Level: s.level, Encoding: "json", OutputPaths: []string{"stderr"}, EncoderConfig: zap.NewProductionEncoderConfig()}.
		Build(zap.WithFatalHook(onFatal(func() bool { return starting })))
	if err != nil {
		return nil, err
	}
	cfg, err := etcdConfig(o)
	if err != nil {
		return nil, err
	}
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger)
	return embed.StartEtcd(cfg)
}

func etcdConfig(o EmbeddedOptions) (*embed.Config, error) {
	loopback := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir = o.Self.Name, o.Dir
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = loopback, loopback
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = loopback, loopback
	if o.Heartbeat > 0 {
		cfg.TickMs = uint(o.Heartbeat.Milliseconds())
		cfg.ElectionMs = electionBeats * cfg.TickMs
	}
	if o.Self.Addr == "" {
		cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
		return cfg, nil
	}
	bind, err := bindAddr(o.Self.Addr)
	if err != nil {
		return nil, err
	}
	cfg.ListenPeerUrls = []url.URL{{Scheme: "http", Host: bind}}
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: o.Self.Addr}}
	members := make([]string, len(o.Peers))
	for i, p := range o.Peers {
		members[i] = p.Name + "=http://" + p.Addr
	}
	cfg.InitialCluster = strings.Join(members, ",")
	if o.Join {
		cfg.ClusterState = embed.ClusterStateFlagExisting
	}
	return cfg, nil
}

// bindAddr is where to listen for an address: etcd binds to no names.
func bindAddr(addr string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	if net.ParseIP(host) == nil && host != "localhost" {
		host = "0.0.0.0"
	}
	return net.JoinHostPort(host, port), nil
}

// fatal is what etcd ends processes for.
type fatal struct {
	message string
	fields  []zapcore.Field
}

// trouble says it in one line, with etcd's own reason.
func (f fatal) trouble() error {
	for _, field := range f.fields {
		if err, ok := field.Interface.(error); ok && field.Type == zapcore.ErrorType {
			return fmt.Errorf("%s: %w", f.message, err)
		}
	}
	return errors.New(f.message)
}

// onFatal panics while etcd starts, and ends the process later: etcd goes on after neither.
type onFatal func() (starting bool)

// OnWrite implements zapcore.CheckWriteHook.
func (starting onFatal) OnWrite(e *zapcore.CheckedEntry, fields []zapcore.Field) {
	if starting() {
		panic(fatal{e.Message, fields})
	}
	os.Exit(1)
}

func (s *Embedded) ready(ctx context.Context) error {
	select {
	case <-s.etcd.Server.ReadyNotify():
		return nil
	case err := <-s.etcd.Err():
		return err
	case <-s.etcd.Server.StopNotify():
		return errors.New("it has stopped")
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(readyTimeout):
		return fmt.Errorf("not ready after %v", readyTimeout)
	}
}

// Put implements Store.
func (s *Embedded) Put(ctx context.Context, o Override) error {
	ctx, leave, err := s.gate.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return s.keys.Put(ctx, o)
}

// Remove implements Store.
func (s *Embedded) Remove(ctx context.Context, key string) (bool, error) {
	ctx, leave, err := s.gate.enter(ctx)
	if err != nil {
		return false, err
	}
	defer leave()
	return s.keys.Remove(ctx, key)
}

// Watch implements Store.
func (s *Embedded) Watch(ctx context.Context, f func([]Override)) {
	ctx, leave, err := s.gate.enter(ctx)
	if err != nil {
		return
	}
	defer leave()
	s.keys.Watch(ctx, f)
}

// Lead waits until this member of etcd leads the others.
func (s *Embedded) Lead(ctx context.Context, above uint64) (Term, error) {
	ctx, leave, err := s.gate.enter(ctx)
	if err != nil {
		return Term{}, err
	}
	defer leave()
	select {
	case <-s.etcd.Server.ReadyNotify():
	case <-s.etcd.Server.StopNotify():
		return Term{}, errors.New("store: etcd has stopped")
	case <-ctx.Done():
		return Term{}, ctx.Err()
	}
	s.settle(ctx)
	for {
		changed := s.etcd.Server.LeaderChangedNotify()
		if s.leads() {
			epoch, err := s.raise(ctx, above)
			if err == nil && s.leads() {
				return Term{Epoch: epoch, Lost: s.lost()}, nil
			}
		}
		select {
		case <-s.etcd.Server.StopNotify():
			return Term{}, errors.New("store: etcd has stopped")
		case <-ctx.Done():
			return Term{}, ctx.Err()
		case <-changed:
		case <-time.After(watchRetry): // no majority took the epoch, and nobody else leads
		}
	}
}

func (s *Embedded) leads() bool { return s.etcd.Server.Leader() == s.etcd.Server.MemberID() }

// leadPoll is how often a leader looks whether it still is one: etcd tells of another in
// its place, but not that it has lost its majority.
const leadPoll = 100 * time.Millisecond

// lost gives a channel that is closed as soon as this member does not lead.
func (s *Embedded) lost() <-chan struct{} {
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		poll := time.NewTicker(leadPoll)
		defer poll.Stop()
		for s.leads() {
			select {
			case <-poll.C:
			case <-s.etcd.Server.LeaderChangedNotify():
			case <-s.etcd.Server.StopNotify():
				return
			}
		}
	}()
	return lost
}

// settle makes a member that was taken in a whole one, and tells the others when its
// address is another than they know. Both may have to wait for a majority.
func (s *Embedded) settle(ctx context.Context) {
	if s.self.Addr == "" {
		return
	}
	said := ""
	for ctx.Err() == nil {
		err := s.settleOnce(ctx)
		if err == nil {
			return
		}
		if err.Error() != said {
			said = err.Error()
			s.log.Info("waiting to be a member", "reason", err)
		}
		select {
		case <-ctx.Done():
		case <-s.etcd.Server.StopNotify():
			return
		case <-time.After(watchRetry):
		}
	}
}

func (s *Embedded) settleOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	id := s.etcd.Server.MemberID()
	if s.etcd.Server.IsLearner() {
		if _, err := s.client.MemberPromote(ctx, uint64(id)); err != nil {
			return err
		}
	}
	at := "http://" + s.self.Addr
	if m := s.etcd.Server.Cluster().Member(id); m != nil && (len(m.PeerURLs) != 1 || m.PeerURLs[0] != at) {
		if _, err := s.client.MemberUpdate(ctx, uint64(id), []string{at}); err != nil {
			return err
		}
	}
	return nil
}

// Leader implements Store.
func (s *Embedded) Leader() string {
	id := s.etcd.Server.Leader()
	if id == types.ID(0) {
		return ""
	}
	if m := s.etcd.Server.Cluster().Member(id); m != nil {
		return m.Name
	}
	return ""
}

// Admit takes a member in, in place of one of that name or address that has lost its data,
// and gives all members that it shall begin with. It votes once it has caught up.
func (s *Embedded) Admit(ctx context.Context, joins Peer) ([]Peer, error) {
	ctx, leave, err := s.gate.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if s.self.Addr == "" {
		return nil, errors.New("this control plane has no members: it is configured to be the only one")
	}
	if joins.Name == s.self.Name || joins.Addr == s.self.Addr {
		return nil, fmt.Errorf("%s at %s is this member's own name or address", joins.Name, joins.Addr)
	}
	members, err := s.client.MemberList(ctx)
	if err != nil {
		return nil, fmt.Errorf("no majority of the members runs: %w", err)
	}
	at := "http://" + joins.Addr
	for _, m := range members.Members {
		if m.Name == joins.Name || len(m.PeerURLs) > 0 && m.PeerURLs[0] == at {
			if _, err := s.client.MemberRemove(ctx, m.ID); err != nil {
				return nil, fmt.Errorf("its predecessor cannot be removed: %w", err)
			}
		}
	}
	added, err := s.client.MemberAddAsLearner(ctx, []string{at})
	if err != nil {
		return nil, err
	}
	return peersOf(added, joins), nil
}

func peersOf(added *clientv3.MemberAddResponse, joins Peer) []Peer {
	peers := []Peer{joins}
	for _, m := range added.Members {
		if m.ID != added.Member.ID && len(m.PeerURLs) > 0 {
			peers = append(peers, Peer{m.Name, strings.TrimPrefix(m.PeerURLs[0], "http://")})
		}
	}
	return peers
}

// Close stops etcd, which hands leadership over first, and logs its own listeners' end as
// errors: those are muted.
func (s *Embedded) Close() error {
	s.level.SetLevel(zap.FatalLevel)
	s.gate.close()
	err := s.client.Close()
	s.etcd.Close()
	if errors.Is(err, context.Canceled) {
		err = nil // how the in-process client reports that it was closed
	}
	return errors.Join(err, s.lock.Close())
}
