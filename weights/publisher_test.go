package weights

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/fleet"
)

func of(cluster string, s *fleet.Snapshot) *fleet.Snapshot {
	s.Cluster = cluster
	return s
}

// TestADeposedLeaderPublishesNothing: what is older than what is served is left out, and takes
// no cluster away.
func TestADeposedLeaderPublishesNothing(t *testing.T) {
	s := start(t, "127.0.0.1:0")
	defer s.stop()
	p := subscribe(t, "", s.addr)
	require.NoError(t, s.publisher.Publish([]*fleet.Snapshot{plan(5, 2, 0.5), of("d", plan(5, 2, 0.5))}))
	require.Equal(t, plan(5, 2, 0.5), p.next(t))
	err := s.publisher.Publish([]*fleet.Snapshot{plan(4, 9, 0.1)})
	require.ErrorIs(t, err, ErrOlder)
	require.EqualError(t, err, "older than what is published: epoch 4 version 9 of c")
	require.ErrorIs(t, s.publisher.Publish([]*fleet.Snapshot{plan(5, 1, 0.1)}), ErrOlder)
	require.Len(t, s.publisher.served, 2, "a deposed leader takes no cluster away")
	require.NoError(t, s.publisher.Publish([]*fleet.Snapshot{plan(5, 3, 0.4)}))
	require.Equal(t, plan(5, 3, 0.4), p.next(t))
	require.Len(t, s.publisher.served, 1)
	require.Empty(t, p.applied)
}

// TestRelaysFollowAllClusters, or those that they are told to; what is gone is gone there too.
func TestRelaysFollowAllClusters(t *testing.T) {
	s := start(t, "127.0.0.1:0")
	defer s.stop()
	dir := t.TempDir()
	all, some := relays(t, dir, nil, s.addr), relays(t, "", []string{"a/b", "x"}, s.addr)
	require.NoError(t, s.publisher.Publish([]*fleet.Snapshot{of("a/b", plan(1, 1, 0.5)), of("a", plan(1, 1, 0.4)), of("@r", engineless(1, 1))}))
	all.holds("@r 1.1", "a 1.1", "a/b 1.1")
	some.holds("a/b 1.1")
	require.NoError(t, s.publisher.Publish([]*fleet.Snapshot{of("a/b", plan(1, 2, 0.5))}))
	all.holds("a/b 1.2")
	some.holds("a/b 1.2")
	eventually(t, "only what is there is saved", func() bool {
		again := relays(t, dir, nil)
		require.NoError(t, again.Restore())
		got := again.Places()
		return len(got) == 1 && got[0].Cluster == "a/b" && got[0].Version == 2
	})
}

// engineless is the snapshot of collectors.
func engineless(epoch, version uint64) *fleet.Snapshot {
	s := plan(epoch, version, 0.5)
	s.Rows = nil
	return s
}
