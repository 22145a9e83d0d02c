package integration

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/internal/testaddr"
	"go.etcd.io/etcd/server/v3/embed"
)

// startEtcd runs an etcd of its own; stop ends it, and it goes on where it was when it is
// started again with the same directory and addresses.
func startEtcd(t *testing.T, dir, client, peer string) (stop func()) {
	t.Helper()
	c := embed.NewConfig()
	c.Dir, c.LogLevel = dir, "fatal"
	c.ListenClientUrls, c.ListenPeerUrls = []url.URL{{Scheme: "http", Host: client}}, []url.URL{{Scheme: "http", Host: peer}}
	c.AdvertiseClientUrls, c.AdvertisePeerUrls = c.ListenClientUrls, c.ListenPeerUrls
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	e, err := embed.StartEtcd(c)
	require.NoError(t, err)
	<-e.Server.ReadyNotify()
	return e.Close
}

// TestEtcdOutside: members by an etcd that somebody else runs, which is away for a while too.
func TestEtcdOutside(t *testing.T) {
	t.Parallel()
	dir, client, peer := t.TempDir(), testaddr.Own(t), testaddr.Own(t)
	stop := startEtcd(t, dir, client, peer)
	defer func() { stop() }()
	f := startFleet(t, fleetOptions{store: "etcd, etcd: {lease: 2s, endpoints: [\"" + client + "\"]}"})
	before := f.allWeights()
	leader := f.settled("before")
	leader.kill()
	next := f.settled("without the leader")
	require.NotEqual(t, leader.name, next.name)
	f.restartDead()
	stop()
	f.load.more(t, 80) // eight seconds: the lease has ended
	m, _ := f.leader()
	require.Nil(t, m, "who cannot keep its lease does not lead")
	stop = startEtcd(t, dir, client, peer)
	f.settled("with etcd again")
	entries, err := os.ReadDir(filepath.Join(f.dir, "a"))
	require.NoError(t, err)
	for _, e := range entries {
		require.False(t, strings.HasPrefix(e.Name(), "etcd"), "a member has none of its own")
	}
	f.sameWeights(before)
	f.noneFailed()
}
