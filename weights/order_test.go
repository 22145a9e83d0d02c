package weights

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wardrop-lb/wardrop/fleet"
)

// several is a subscriber of connected upstreams without streams.
type several struct {
	*Subscriber
	t       require.TestingT
	applied []mark
	log     bytes.Buffer
}

func newSeveral(t require.TestingT, n int) *several {
	x := &several{t: t}
	x.Subscriber = &Subscriber{Cluster: "c", Log: slog.New(slog.NewTextHandler(&x.log, nil)), Apply: func(s *fleet.Snapshot) error {
		if s.Rows[0].Shed[0] == 1 {
			return errors.New("not today")
		}
		x.applied = append(x.applied, mark{s.Epoch, s.Version, s.Time.UnixNano()})
		return nil
	}}
	for i := range n {
		u := x.newUpstream(nil, i)
		x.speak(u, 2-i%2) // old and new ones side by side
		u.connected = true
		x.upstreams = append(x.upstreams, u)
	}
	return x
}

// bring has an upstream say that it holds a snapshot; it gives the NACK's reason.
func (x *several) bring(upstream int, s *fleet.Snapshot) string {
	u := x.upstreams[upstream]
	for _, r := range responses(x.t, u.spoken, s) {
		if err := x.take(u, r); err != nil {
			return err.Error()
		}
	}
	return ""
}

func (x *several) inForce() string {
	epoch, version, refused := x.Applied()
	return strings.TrimSpace(fmt.Sprintf("%d.%d %s", epoch, version, refused))
}

func (x *several) warnings() int { return strings.Count(x.log.String(), "level=WARN") }

func bad(epoch, version uint64) *fleet.Snapshot {
	s := plan(epoch, version, 0.5)
	s.Rows[0].Shed[0] = 1
	return s
}

// TestTheNewestWhoeverBringsIt: each snapshot is applied once, in order; who is behind is at no
// fault, and hides none.
func TestTheNewestWhoeverBringsIt(t *testing.T) {
	x := newSeveral(t, 3)
	require.Empty(t, x.bring(0, plan(5, 1, 0.5)))
	require.Empty(t, x.bring(1, plan(5, 1, 0.5)))
	require.Empty(t, x.bring(1, plan(5, 2, 0.4)))
	require.Empty(t, x.bring(0, plan(5, 2, 0.4)))
	require.Empty(t, x.bring(2, plan(5, 1, 0.5)), "it is behind")
	require.Len(t, x.applied, 2)
	require.Equal(t, "5.2", x.inForce())

	require.Equal(t, "not today", x.bring(0, bad(5, 3)))
	require.Equal(t, "5.2 not today", x.inForce())
	require.Empty(t, x.bring(2, plan(5, 2, 0.4)))
	require.Equal(t, "5.2 not today", x.inForce(), "an upstream that repeats an old one masks nothing")
	require.Equal(t, "not today", x.bring(1, bad(5, 3)), "the same from another is refused alike")
	require.Empty(t, x.bring(1, plan(5, 4, 0.3)))
	require.Equal(t, "5.4", x.inForce(), "the newest is good, whatever another still holds")
	require.Equal(t, 2, x.warnings(), "once per upstream")
}

// TestADeposedLeaderIsRefused, and said so once, however often it tries; to an operator only
// if nobody else brings what is in force.
func TestADeposedLeaderIsRefused(t *testing.T) {
	x := newSeveral(t, 2)
	require.Empty(t, x.bring(0, plan(4, 9, 0.5)))
	require.Empty(t, x.bring(1, plan(5, 1, 0.5)))
	for v := uint64(10); v < 20; v++ {
		require.Equal(t, fmt.Sprintf("epoch 4 version %d is older than epoch 5 version 1 in force", v), x.bring(0, plan(4, v, 0.1)))
	}
	require.Equal(t, "5.1", x.inForce())
	require.Equal(t, 1, x.warnings())
	x.disconnected(x.upstreams[1], errors.New("gone"))
	require.Equal(t, "5.1 epoch 4 version 19 is older than epoch 5 version 1 in force", x.inForce())
	require.Empty(t, x.bring(0, plan(6, 1, 0.1)))
	require.Equal(t, "6.1", x.inForce(), "a higher epoch counts its versions anew")
}

// TestAnUpstreamThatGoesBackIsRefused, until it has caught up with itself; one that comes back
// behind after a restart is not.
func TestAnUpstreamThatGoesBackIsRefused(t *testing.T) {
	x := newSeveral(t, 2)
	require.Empty(t, x.bring(0, plan(5, 7, 0.5)))
	require.Equal(t, "epoch 5 goes back from version 7 to 3", x.bring(0, plan(5, 3, 0.5)))
	require.Equal(t, "epoch 5 goes back from version 7 to 4", x.bring(0, plan(5, 4, 0.5)))
	require.Equal(t, "5.7 epoch 5 goes back from version 7 to 4", x.inForce())
	require.Equal(t, 1, x.warnings())
	require.Empty(t, x.bring(0, plan(5, 8, 0.5)))
	x.disconnected(x.upstreams[0], errors.New("restarts"))
	x.upstreams[0].connected = true
	require.Empty(t, x.bring(0, plan(5, 7, 0.5)))
	require.Equal(t, "5.8", x.inForce())
}

// TestTwoLeadersOfOneEpochAreNoticed: what is called the same must be the same.
func TestTwoLeadersOfOneEpochAreNoticed(t *testing.T) {
	x := newSeveral(t, 2)
	require.Empty(t, x.bring(0, plan(5, 1, 0.5)))
	other := plan(5, 1, 0.5)
	other.Rows[0].Utilisation = 0.25
	require.Empty(t, x.bring(1, other), "it routes alike")
	require.Equal(t, "epoch 5 version 1 differs from the one in force that is called the same", x.bring(1, plan(5, 1, 0.4)))
	require.Equal(t, "5.1 epoch 5 version 1 differs from the one in force that is called the same", x.inForce())
	require.Len(t, x.applied, 1)
}

// TestWhatCannotBeReadIsRefused, without hiding or being hidden by what another upstream sends.
// (The first upstream speaks wire 2, and must begin anew.)
func TestWhatCannotBeReadIsRefused(t *testing.T) {
	x := newSeveral(t, 2)
	nonsense := &discovery.DeltaDiscoveryResponse{TypeUrl: "type.googleapis.com/other"}
	for range 3 {
		require.Error(t, x.take(x.upstreams[0], nonsense))
	}
	require.Equal(t, `0.0 the upstream must begin anew: unknown resource type "type.googleapis.com/other"`, x.inForce())
	require.Empty(t, x.bring(1, plan(5, 1, 0.5)))
	require.Equal(t, "5.1", x.inForce())
	require.Equal(t, 1, x.warnings())
}

// TestOrderHolds: whatever several upstreams bring in whatever order, snapshots are applied in
// order, each once, and in the end the newest of those that were good is in force.
func TestOrderHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := newSeveral(t, 3)
		x.Path = ""
		var newest mark
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			s := plan(rapid.Uint64Range(1, 3).Draw(t, "epoch"), rapid.Uint64Range(1, 4).Draw(t, "version"), 0.5)
			u := rapid.IntRange(0, 2).Draw(t, "upstream")
			if rapid.IntRange(0, 9).Draw(t, "fault") == 0 {
				s.Rows[0].Shed[0] = 1
			}
			m, before := mark{s.Epoch, s.Version, s.Time.UnixNano()}, newest
			refused := x.bring(u, s)
			if s.Rows[0].Shed[0] == 0 && newest.less(m) && refused == "" {
				newest = m
			}
			require.Equal(t, s.Epoch < before.epoch, strings.Contains(refused, "is older than"))
		}
		for i := range x.applied[:max(0, len(x.applied)-1)] {
			require.True(t, x.applied[i].less(x.applied[i+1]))
		}
		require.Equal(t, newest, x.placeOf("c").mark)
	})
}

// TestUpstreamsFailOneByOne, over sockets: the snapshots go on coming while one is left, and the
// log names who is lost and who is back.
func TestUpstreamsFailOneByOne(t *testing.T) {
	one, two := start(t, "127.0.0.1:0"), start(t, "127.0.0.1:0")
	defer func() { two.stop() }()
	for _, s := range []*fixture{one, two} {
		require.NoError(t, s.publisher.Publish([]*fleet.Snapshot{plan(1, 1, 0.5)}))
	}
	path := filepath.Join(t.TempDir(), "saved")
	p := subscribe(t, path, one.addr, two.addr)
	require.Equal(t, uint64(1), p.next(t).Version)
	one.stop()
	p.says("weight path lost; others go on", "upstream="+one.addr, "left=1")
	require.NoError(t, two.publisher.Publish([]*fleet.Snapshot{plan(1, 2, 0.5)}))
	require.Equal(t, uint64(2), p.next(t).Version)
	two.stop()
	p.says("weight path lost; routing goes on by the last snapshot", "upstream="+two.addr)
	one = start(t, one.addr)
	defer one.stop()
	p.says("weight path restored", "upstream="+one.addr)
	require.NoError(t, one.publisher.Publish([]*fleet.Snapshot{plan(2, 1, 0.5)}))
	require.Equal(t, uint64(2), p.next(t).Epoch)
	two = start(t, two.addr)
	p.says("weight path restored", "upstream="+two.addr)
	require.NoError(t, two.publisher.Publish([]*fleet.Snapshot{plan(1, 3, 0.5)}))
	eventually(t, "the deposed is refused", func() bool {
		subs := two.publisher.Subscriptions()
		return len(subs) == 1 && subs[0].Refused == "epoch 1 version 3 is older than epoch 2 version 1 in force"
	})
	require.Empty(t, p.applied)
	_, _, refused := p.Applied()
	require.Empty(t, refused)
	require.Equal(t, plan(2, 1, 0.5), restored(t, path))
}
