package integration

import (
	"syscall"
	"testing"
)

// stormSize is how many data planes begin at once.
const stormSize = 100

// TestRestartStorm: a hundred data planes of one cluster begin at once, twice, the second time
// without the leader that they knew.
func TestRestartStorm(t *testing.T) {
	f := startFleet(t, fleetOptions{third: true})
	before := f.allWeights()
	leader := f.settled("before")
	var storm []*process
	begin := func() {
		storm = storm[:0]
		for range stormSize {
			storm = append(storm, run(t, f.binary, "--log-level", "error", "proxy", "-c", f.file, "--cluster", "z"))
		}
	}
	follow := func(what string) {
		t.Helper()
		f.until(what+": all route by the plan in force", func() bool {
			m, s := f.leader()
			n := 0
			for _, d := range s.DataPlanes {
				if d.Cluster == "z" && d.Epoch == s.Epoch && d.Version == s.Version && d.Refused == "" {
					n++
				}
			}
			return m != nil && n >= stormSize
		})
	}
	begin()
	follow("the first time")
	for _, p := range storm {
		p.signal(syscall.SIGKILL)
	}
	for _, p := range storm {
		<-p.done
	}
	leader.kill()
	begin()
	follow("the second time")
	f.settled("in the end")
	for _, p := range storm {
		p.signal(syscall.SIGTERM)
	}
	f.sameWeights(before)
	f.noneFailed()
}
