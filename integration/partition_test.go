package integration

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Links that break cost no request either. Members a, b, c and the regions x and y are each
// in a network of their own.

func startParted(t *testing.T) (*fleet, map[string]place) {
	t.Helper()
	places := newPlaces(t, "a", "b", "c", "x", "y")
	return startFleet(t, fleetOptions{places: places, goodFor: "5s"}), places
}

// others are the places of the members but one.
func (f *fleet) others(m *member) (out []place) {
	for _, o := range f.members {
		if o != m {
			out = append(out, o.place)
		}
	}
	return out
}

// The leader cannot reach the other members, but all data planes: it gives up, and another
// leads.
func TestLeaderParted(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	f, _ := startParted(t)
	before := f.allWeights()
	leader := f.settled("before")
	old, _ := leader.state()
	mend := part([]place{leader.place}, f.others(leader))
	f.another(leader, old)
	f.settled("parted")
	f.until("it has noticed", func() bool { s, ok := leader.state(); return ok && !s.Leading })
	mend()
	f.load.more(t, 30)
	f.settled("in the end")
	f.sameWeights(before)
	f.noneFailed()
}

// The leader is heard by nobody, and hears all; and the other way round.
func TestOneWay(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	f, places := startParted(t)
	before := f.allWeights()
	leader := f.settled("before")
	old, _ := leader.state()
	leader.link.cut(f.others(leader)...)
	f.another(leader, old)
	next := f.settled("heard by no member")
	leader.link.mend(f.others(leader)...)

	for _, o := range f.others(next) {
		o.link.cut(next.place)
	}
	f.load.more(t, 50)
	f.settled("hears no member")
	for _, o := range f.others(next) {
		o.link.mend(next.place)
	}
	// A data plane that hears the leader and is not heard.
	last := f.settled("before the data plane")
	places["x"].link.cut(last.place)
	f.load.more(t, 50)
	places["x"].link.mend(last.place)
	f.settled("in the end")
	f.sameWeights(before)
	f.noneFailed()
}

// A region is cut from everything: it serves its own clients, and the others theirs.
func TestRegionParted(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	// So far that each serves its own: were moving a little better than staying, the policy
	// would leave what the fault has moved where it is, for the sake of the caches.
	places := newPlaces(t, "a", "b", "c", "x", "y")
	f := startFleet(t, fleetOptions{places: places, goodFor: "5s", far: "300ms"})
	before := f.allWeights()
	f.settled("before")
	var rest []place
	for name, p := range places {
		if name != "y" {
			rest = append(rest, p)
		}
	}
	mend := part([]place{places["y"]}, rest)
	f.load.more(t, 150) // fifteen seconds
	mend()
	f.load.more(t, 50)
	f.settled("in the end")
	f.load.more(t, 100)
	f.settled("in the end")
	f.sameWeights(before)
	f.noneFailed()
}

// A data plane is on the leader's side, and all other members on the other.
func TestDataPlaneOnTheFarSide(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	f, places := startParted(t)
	before := f.allWeights()
	leader := f.settled("before")
	old, _ := leader.state()
	mend := part([]place{leader.place, places["x"]}, f.others(leader))
	f.another(leader, old)
	f.load.more(t, 80)
	got, ok := f.planes[0].snapshot()
	require.True(t, ok)
	require.Equal(t, old.Epoch, got.Epoch, "x hears of no other")
	mend()
	f.settled("in the end")
	f.load.more(t, 50)
	f.settled("in the end")
	f.sameWeights(before)
	f.noneFailed()
}

// Links come and go.
func TestFlappingLinks(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	f, places := startParted(t)
	before := f.allWeights()
	f.settled("before")
	for i := range 6 {
		mend := part([]place{f.members[i%3].place}, []place{f.members[(i+1)%3].place, places["x"], places["y"]})
		f.load.more(t, 10)
		mend()
		f.load.more(t, 5)
	}
	f.settled("in the end")
	f.load.more(t, 50)
	f.settled("in the end")
	f.sameWeights(before)
	f.noneFailed()
}
