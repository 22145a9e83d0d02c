package store

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	return contextWithin(t, 30*time.Second)
}

func contextWithin(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}

// outside is an etcd, and a member of a control plane by it.
func outside(t *testing.T, endpoint, name string) *Etcd {
	s, err := OpenEtcd(EtcdOptions{Endpoints: []string{endpoint}, Prefix: "/w", Lease: 2 * time.Second, Name: name, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return s
}

func TestEtcdOutside(t *testing.T) {
	server, err := alone(t, t.TempDir())
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Close()) }()
	endpoint := server.etcd.Clients[0].Addr().String()

	a, b := outside(t, endpoint, "a"), outside(t, endpoint, "b")
	first, err := a.Lead(t.Context(), 0)
	require.NoError(t, err)
	for _, s := range []*Etcd{a, b} {
		require.Eventually(t, func() bool { return s.Leader() == "a" }, 10*time.Second, time.Millisecond)
	}
	keepsOverrides(t, a, b)
	raised, err := a.Lead(t.Context(), 50)
	require.NoError(t, err)
	require.Equal(t, uint64(51), raised.Epoch)

	ctx, cancel := contextWithin(t, 300*time.Millisecond)
	_, err = b.Lead(ctx, 0)
	cancel()
	require.ErrorIs(t, err, context.DeadlineExceeded, "a leads")

	// The next need not wait for the end of the lease.
	led := make(chan Term, 1)
	ctx, cancel = contextOf(t)
	defer cancel()
	go func() {
		defer close(led)
		if term, err := b.Lead(ctx, 0); err == nil {
			led <- term
		}
	}()
	require.NoError(t, a.Close())
	<-first.Lost
	second, ok := <-led
	require.True(t, ok)
	require.Equal(t, uint64(52), second.Epoch)

	// Whose lease ends no longer leads, and may again.
	_, err = server.client.Revoke(t.Context(), b.session.Lease())
	require.NoError(t, err)
	<-second.Lost
	third, err := b.Lead(ctx, 0)
	require.NoError(t, err)
	require.Equal(t, uint64(53), third.Epoch)
	require.NoError(t, b.Close())
}

// Who lost the election meanwhile gets no epoch.
func TestEpochNeedsLeadership(t *testing.T) {
	server, err := alone(t, t.TempDir())
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Close()) }()
	s := outside(t, server.etcd.Clients[0].Addr().String(), "a")
	defer func() { require.NoError(t, s.Close()) }()
	_, err = s.raise(t.Context(), 0, clientv3.Compare(clientv3.CreateRevision("/w/leader/gone"), ">", 0))
	require.ErrorIs(t, err, errNotLeading)
}
