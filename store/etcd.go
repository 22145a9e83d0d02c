package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// EtcdOptions is how an etcd outside of this process is reached.
type EtcdOptions struct {
	Endpoints []string
	Prefix    string        // of all keys
	Lease     time.Duration // how long a silent leader still leads; whole seconds count
	User      string
	Password  string
	TLS       *tls.Config
	Name      string // of this member
	Log       *slog.Logger
}

// Etcd is an etcd outside of this process. Members campaign there, each with a lease that
// it keeps alive.
type Etcd struct {
	keys
	o EtcdOptions

	mu       sync.Mutex
	session  *concurrency.Session
	election *concurrency.Election
	leader   string
	ctx      context.Context // ends with Close
	stop     context.CancelFunc
	wg       sync.WaitGroup
}

var _ Store = (*Etcd)(nil)

// OpenEtcd connects when it is first needed; it fails for wrong options, and for want of an etcd
// where it has to log in.
func OpenEtcd(o EtcdOptions) (*Etcd, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: o.Endpoints, Username: o.User, Password: o.Password, TLS: o.TLS, Logger: zap.NewNop(),
		DialTimeout: askTimeout, DialKeepAliveTime: 5 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
	})
	if err != nil {
		return nil, fmt.Errorf("store: etcd at %v: %w", o.Endpoints, err)
	}
	s := &Etcd{keys: keys{client, o.Prefix}, o: o}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.wg.Go(s.observe)
	return s, nil
}

func (s *Etcd) electionKey() string { return s.prefix + "/leader" }

// Lead campaigns until this process leads, however long etcd is away.
func (s *Etcd) Lead(ctx context.Context, above uint64) (Term, error) {
	said := ""
	for {
		term, err := s.campaign(ctx, above)
		if err == nil {
			return term, nil
		}
		if ctx.Err() != nil {
			return Term{}, ctx.Err()
		}
		if !errors.Is(err, errNotLeading) && err.Error() != said { // said once
			said = err.Error()
			s.o.Log.Warn("etcd does not let this member lead; it is asked on and on", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchRetry):
		}
	}
}

// campaign waits for leadership and takes an epoch.
func (s *Etcd) campaign(ctx context.Context, above uint64) (Term, error) {
	session, election, err := s.candidate(ctx)
	if err != nil {
		return Term{}, err
	}
	if err := s.elect(ctx, session, election); err != nil {
		s.drop(session)
		return Term{}, fmt.Errorf("store: campaign: %w", err)
	}
	epoch, err := s.raise(ctx, above, clientv3.Compare(clientv3.CreateRevision(election.Key()), "=", election.Rev()))
	if err != nil {
		s.drop(session)
		return Term{}, err
	}
	return Term{Epoch: epoch, Lost: session.Done()}, nil
}

// elect waits until a candidate is the leader; who leads already is at once. It does not wait
// for etcd when it is no longer wanted, as Campaign does to take the candidate back.
func (s *Etcd) elect(ctx context.Context, session *concurrency.Session, election *concurrency.Election) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	elected := make(chan error, 1)
	s.wg.Go(func() { elected <- election.Campaign(ctx, s.o.Name) })
	select {
	case err := <-elected:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-session.Done():
		return errors.New("the lease has ended")
	}
}

// candidate gives the session and the election that go on, or begins new ones.
func (s *Etcd) candidate(ctx context.Context) (*concurrency.Session, *concurrency.Election, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session != nil {
		select {
		case <-s.session.Done():
		default:
			return s.session, s.election, nil
		}
	}
	granted, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	lease, err := s.client.Grant(granted, int64(s.o.Lease.Seconds()))
	if err != nil {
		return nil, nil, fmt.Errorf("store: lease: %w", err)
	}
	session, err := concurrency.NewSession(s.client, concurrency.WithContext(s.ctx), concurrency.WithTTL(int(s.o.Lease.Seconds())), concurrency.WithLease(lease.ID))
	if err != nil {
		return nil, nil, fmt.Errorf("store: session: %w", err)
	}
	s.session, s.election = session, concurrency.NewElection(session, s.electionKey())
	return s.session, s.election, nil
}

// drop ends a session, and with it what it holds.
func (s *Etcd) drop(session *concurrency.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session == session {
		s.session, s.election = nil, nil
	}
	session.Orphan()
	ctx, cancel := context.WithTimeout(s.ctx, time.Second)
	defer cancel()
	_, _ = s.client.Revoke(ctx, session.Lease()) // else it expires
}

// observe follows who leads.
func (s *Etcd) observe() {
	for s.ctx.Err() == nil {
		s.observeOnce()
		select {
		case <-s.ctx.Done():
		case <-time.After(watchRetry):
		}
	}
}

func (s *Etcd) observeOnce() {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	// The oldest key of the election leads.
	first := append(clientv3.WithFirstCreate(), clientv3.WithPrefix())
	watch := s.client.Watch(ctx, s.electionKey()+"/", clientv3.WithPrefix())
	for {
		asked, done := context.WithTimeout(ctx, askTimeout)
		got, err := s.client.Get(asked, s.electionKey()+"/", first...)
		done()
		name := ""
		if err == nil && len(got.Kvs) > 0 {
			name = string(got.Kvs[0].Value)
		}
		s.mu.Lock()
		s.leader = name
		s.mu.Unlock()
		if r, ok := <-watch; err != nil || !ok || r.Err() != nil {
			return
		}
	}
}

// Leader implements Store.
func (s *Etcd) Leader() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leader
}

// Close resigns, so that the next need not wait for the lease to end.
func (s *Etcd) Close() error {
	s.mu.Lock()
	session := s.session
	s.mu.Unlock()
	if session != nil {
		s.drop(session)
	}
	s.stop()
	err := s.client.Close()
	s.wg.Wait()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return err
}
