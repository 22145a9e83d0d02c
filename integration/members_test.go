package integration

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What may befall the processes of a control plane costs no request, and when it is over
// the weights are as before.

func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetOptions{})
	before := f.allWeights()
	for range 2 {
		leader := f.settled("before")
		leader.kill()
		next := f.settled("without the leader")
		require.NotEqual(t, leader.name, next.name)
		f.startMember(leader)
		f.until("it is back", func() bool { _, ok := leader.state(); return ok })
	}
	f.settled("in the end")
	f.sameWeights(before)
	f.noneFailed()
}

// A leader that stands still and goes on where it was finds another in its place.
func TestLeaderStandsStill(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetOptions{})
	before := f.allWeights()
	leader := f.settled("before")
	old, _ := leader.state()
	leader.signal(syscall.SIGSTOP)
	f.another(leader, old)
	f.load.more(t, 30)
	leader.signal(syscall.SIGCONT)
	f.until("it stands by", func() bool { s, ok := leader.state(); return ok && !s.Leading })
	f.settled("in the end")
	f.sameWeights(before)
	f.noneFailed()
}

// Without a majority no plan is made, and none is missed.
func TestTwoOfThreeKilled(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetOptions{goodFor: "2s"})
	before := f.allWeights()
	leader := f.settled("before")
	killed := []*member{leader}
	for _, m := range f.members {
		if m != leader {
			killed = append(killed, m)
			break
		}
	}
	for _, m := range killed {
		m.kill()
	}
	f.load.more(t, 100) // ten seconds, five times as long as the plan is good for
	m, _ := f.leader()
	require.Nil(t, m, "one of three leads nobody")
	for _, m := range killed {
		f.startMember(m)
	}
	f.settled("with all again")
	f.load.more(t, 50)
	f.settled("in the end")
	f.sameWeights(before)
	f.noneFailed()
}

// Data planes restarted meanwhile begin with what they have saved.
func TestAllKilled(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetOptions{goodFor: "2s"})
	before := f.allWeights()
	for _, m := range f.members {
		m.kill()
	}
	f.load.more(t, 100)
	f.load.pause("y")
	f.planes[1].kill()
	f.startPlane(f.planes[1])
	f.load.resume("y")
	f.load.more(t, 50)
	for _, m := range f.members {
		f.startMember(m)
	}
	f.settled("with all again")
	f.load.more(t, 50)
	f.settled("in the end")
	f.sameWeights(before)
	f.noneFailed()
}

// A member whose data is spoilt says so and ends; its directory moved away, it joins the
// others again.
func TestMemberWithSpoiltData(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetOptions{})
	before := f.allWeights()
	leader := f.settled("before")
	leader.kill()
	f.settled("without it")
	data := filepath.Join(f.dir, leader.name, "etcd")
	logs, err := filepath.Glob(filepath.Join(data, "member", "wal", "*.wal"))
	require.NoError(t, err)
	require.NotEmpty(t, logs)
	file, err := os.OpenFile(logs[0], os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = file.WriteAt(make([]byte, 512), 100)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	f.startMember(leader)
	select {
	case <-leader.done:
	case <-time.After(time.Minute):
		t.Fatal("it runs with data that is spoilt")
	}
	require.Contains(t, leader.log.tail(), "wardrop: store: start etcd in "+data)
	require.NoError(t, os.Rename(data, data+".spoilt"))
	f.startMember(leader)
	<-leader.done
	require.Contains(t, leader.log.tail(), "start it with --join")
	f.startMember(leader, "--join")
	f.until("it stands by", func() bool { s, ok := leader.state(); return ok && len(s.DataPlanes) == 2 })
	for _, m := range f.members {
		if m != leader {
			m.kill() // it is needed for a majority now
			break
		}
	}
	f.settled("in the end")
	f.sameWeights(before)
	f.noneFailed()
}

// Data planes that know relays alone follow the leader by any of them, and do without when
// there is none; a relay that begins serves what it has saved.
func TestRelaysLost(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetOptions{relays: 2, goodFor: "5s"})
	before := f.allWeights()
	f.relays[0].kill()
	leader := f.settled("with one relay")
	leader.kill()
	f.settled("with one relay and another leader")
	f.relays[1].kill()
	f.load.more(t, 100)
	for _, m := range f.members {
		if m.running() {
			m.kill()
		}
	}
	for _, r := range f.relays {
		f.startRelay(r)
	}
	f.load.pause("y")
	f.planes[1].kill() // and begins without what it has saved: it has it from a relay
	require.NoError(t, os.RemoveAll(filepath.Join(f.dir, "planes")))
	f.startPlane(f.planes[1])
	f.load.resume("y")
	f.load.more(t, 20)
	f.restartDead()
	f.settled("with all again")
	f.load.more(t, 50)
	f.settled("in the end")
	f.sameWeights(before)
	f.noneFailed()
}
