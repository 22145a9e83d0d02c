package tick

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/fleet"
)

// BenchmarkMemory corrects the view of 100 clusters with three priorities of 20 models and of
// 10,000 engines, of which each cluster sends to 200, by one tick's reports; with profiles
// given, and with all of them learned.
func BenchmarkMemory(b *testing.B) {
	const clusters, engines, models, each = 100, 10_000, 20, 200
	f := func(x float64) *float64 { return &x }
	for _, learn := range []bool{false, true} {
		b.Run(fmt.Sprintf("learn=%v", learn), func(b *testing.B) {
			var m Memory
			at := time.Unix(1_700_000_000, 0)
			reports := func(n int) (out []Report) {
				for c := range clusters {
					r := &pb.ReportRequest{Cluster: fmt.Sprintf("c%d", c), Instance: fmt.Sprintf("i%d", c), Sequence: uint64(n), Time: timestamppb.New(at)}
					for k := range models * fleet.NumPriorities {
						r.Demands = append(r.Demands, &pb.Demand{Model: fmt.Sprintf("m%d", k/3), Priority: uint32(k % 3), Rate: 10, Count: uint64(20 * n), Window: 10})
					}
					for k := range each {
						e := (c*engines/clusters + k) % engines
						r.Observations = append(r.Observations, &pb.Observation{
							Engine: fmt.Sprintf("e%d", e), Model: fmt.Sprintf("m%d", e%models), Requests: uint64(20 * n), Ended: uint64(20*n - 5), InFlight: 5, Spent: 10 * float64(n),
						})
					}
					for k := range engines / clusters {
						r.Readings = append(r.Readings, &pb.Reading{
							Engine: fmt.Sprintf("e%d", c*engines/clusters+k), Kind: "vllm", Reachable: true, Incarnation: 1, Time: r.Time, Good: r.Time,
							Running: f(10), Waiting: f(0), KvUsage: f(0.1), Slots: f(256), GenerationTokens: f(5000 * float64(n)), PromptTokens: f(20_000 * float64(n)),
						})
					}
					out = append(out, Report{r, at})
				}
				return out
			}
			base := &fleet.View{}
			for e := range engines {
				p := paceProfile
				if learn {
					p = guess
				}
				base.Engines = append(base.Engines, fleet.Engine{Name: fmt.Sprintf("e%d", e), Region: "r", Models: []string{fmt.Sprintf("m%d", e%models)}, Profile: p, Learn: learn})
			}
			for c := range clusters {
				base.Distances = append(base.Distances, fleet.Distance{Cluster: fmt.Sprintf("c%d", c), Region: "r", Seconds: 0.01})
				for k := range models * fleet.NumPriorities {
					base.Demands = append(base.Demands, fleet.Demand{Cluster: fmt.Sprintf("c%d", c), Model: fmt.Sprintf("m%d", k/3), Priority: fleet.Priority(k % 3), Rate: 10})
				}
			}
			n := 0
			apply := func() {
				n++
				at = at.Add(2 * time.Second)
				planes := reports(n)
				view := *base
				view.Engines = append([]fleet.Engine(nil), base.Engines...)
				view.Demands = append([]fleet.Demand(nil), base.Demands...)
				b.StartTimer()
				m.Apply(&view, planes, "optimal", at)
				b.StopTimer()
			}
			b.StopTimer()
			for range 100 {
				apply()
			}
			b.ResetTimer()
			b.StopTimer()
			for range b.N {
				apply()
			}
		})
	}
}
