package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"
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

// TestEtcdWithLogin: an etcd that wants TLS and a password.
func TestEtcdWithLogin(t *testing.T) {
	cert, err := transport.SelfCert(zap.NewNop(), t.TempDir(), []string{"127.0.0.1:0"}, 1)
	require.NoError(t, err)
	c := embed.NewConfig()
	c.Dir, c.LogLevel = t.TempDir(), "fatal"
	c.ClientTLSInfo = transport.TLSInfo{CertFile: cert.CertFile, KeyFile: cert.KeyFile}
	client, peer := url.URL{Scheme: "https", Host: freeAddr(t)}, url.URL{Scheme: "http", Host: freeAddr(t)}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	server, err := embed.StartEtcd(c)
	require.NoError(t, err)
	defer server.Close()
	<-server.Server.ReadyNotify()
	pem, err := os.ReadFile(cert.CertFile)
	require.NoError(t, err)
	secure := &tls.Config{RootCAs: x509.NewCertPool()}
	require.True(t, secure.RootCAs.AppendCertsFromPEM(pem))
	root := v3client.New(server.Server)
	_, err = root.UserAdd(t.Context(), "root", "secret")
	require.NoError(t, err)
	_, err = root.UserGrantRole(t.Context(), "root", "root")
	require.NoError(t, err)
	_, err = root.AuthEnable(t.Context())
	require.NoError(t, err)
	_ = root.Close() // says that it was closed

	lead := func(password string, secure *tls.Config) error {
		s, err := OpenEtcd(EtcdOptions{
			Endpoints: []string{client.String()}, Prefix: "/w", Lease: 2 * time.Second, User: "root", Password: password, TLS: secure, Name: "a", Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return err
		}
		defer func() { require.NoError(t, s.Close()) }()
		ctx, cancel := contextWithin(t, 5*time.Second)
		defer cancel()
		_, err = s.Lead(ctx, 0)
		return err
	}
	require.NoError(t, lead("secret", secure))
	require.Error(t, lead("guess", secure))
}
