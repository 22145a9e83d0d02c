package integration

import (
	"slices"
	"testing"
	"time"
)

// BenchmarkFailover kills the leader of three and measures until a data plane routes by a plan
// of the next.
func BenchmarkFailover(b *testing.B) {
	f := startFleet(b, fleetOptions{})
	var took []time.Duration
	for range b.N {
		leader := f.settled("before")
		old, _ := leader.state()
		begin := time.Now()
		leader.kill()
		for {
			if s, ok := f.planes[0].snapshot(); ok && s.Epoch > old.Epoch {
				break
			}
			if time.Since(begin) > time.Minute {
				b.Fatal("nobody leads")
			}
		}
		took = append(took, time.Since(begin))
		f.startMember(leader)
		f.until("it is back", func() bool { _, ok := leader.state(); return ok })
	}
	slices.Sort(took)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(took[len(took)/2].Seconds(), "p50-s")
	b.ReportMetric(took[len(took)-1].Seconds(), "max-s")
	f.noneFailed()
}
