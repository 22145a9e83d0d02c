package control

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/history"
	"github.com/wardrop-lb/wardrop/store"
	"github.com/wardrop-lb/wardrop/suppose"
)

// world is 100 clusters and 10,000 engines in 20 regions, with 20 models of 500 engines each.
type world struct {
	config *config.Config
	random *rand.Rand
	sent   uint64
	count  map[[2]int]uint64
}

const (
	worldClusters, worldEngines, worldModels, worldRegions = 100, 10_000, 20, 20
	worldRate                                              = 25.0 // requests/s of each cluster and model
)

func newWorld(tb testing.TB) *world {
	var b strings.Builder
	b.WriteString("clusters:\n")
	for c := range worldClusters {
		fmt.Fprintf(&b, "  - {name: c%02d, region: r%d, distances: {", c, c%worldRegions)
		for r := range worldRegions {
			fmt.Fprintf(&b, "r%d: %dms, ", r, 2+9*((c+r)%worldRegions))
		}
		b.WriteString("}}\n")
	}
	b.WriteString("engines:\n")
	for e := range worldEngines {
		fmt.Fprintf(&b, "  - {name: e%d, region: r%d, url: \"http://127.0.0.1:%d\", kind: vllm, models: [m%d], profile: {t0: %dms, u_max: %d, batch: 64}}\n",
			e, e/worldModels%worldRegions, 10_000+e, e%worldModels, 800+e%7*100, 9+e%5)
	}
	b.WriteString("demand:\n")
	for c := range worldClusters {
		for m := range worldModels {
			fmt.Fprintf(&b, "  - {cluster: c%02d, model: m%d, rate: %g}\n", c, m, worldRate)
		}
	}
	cfg, err := config.Parse("bench.yaml", []byte(b.String()))
	require.NoError(tb, err)
	return &world{config: cfg, random: rand.New(rand.NewPCG(1, 2)), count: map[[2]int]uint64{}}
}

// report is what each cluster's data plane would say after another two seconds.
func (w *world) report(c *Control, now time.Time) {
	f := func(x float64) *float64 { return &x }
	w.sent++
	for cluster := range worldClusters {
		r := &pb.ReportRequest{Cluster: fmt.Sprintf("c%02d", cluster), Instance: fmt.Sprintf("i%d", cluster), Sequence: w.sent, Time: timestamppb.New(now)}
		for m := range worldModels {
			k := [2]int{cluster, m}
			w.count[k] += uint64(2*worldRate + 7*w.random.NormFloat64())
			r.Demands = append(r.Demands, &pb.Demand{Model: fmt.Sprintf("m%d", m), Priority: 1, Rate: worldRate, Count: w.count[k], Window: 10})
		}
		for k := range 200 {
			e := (cluster*worldEngines/worldClusters + k) % worldEngines
			r.Observations = append(r.Observations, &pb.Observation{
				Engine: fmt.Sprintf("e%d", e), Model: fmt.Sprintf("m%d", e%worldModels), Requests: 5 * w.sent, Ended: 5*w.sent - 2, InFlight: 2, Spent: 2.2 * float64(w.sent),
			})
		}
		for k := range worldEngines / worldClusters {
			r.Readings = append(r.Readings, &pb.Reading{
				Engine: fmt.Sprintf("e%d", cluster*worldEngines/worldClusters+k), Kind: "vllm", Reachable: true, Incarnation: 1, Time: r.Time, Good: r.Time,
				Running: f(4), Waiting: f(0), KvUsage: f(0.1), Slots: f(64), GenerationTokens: f(500 * float64(w.sent)), PromptTokens: f(2000 * float64(w.sent)),
			})
		}
		c.reports.add(r, now)
	}
}

// BenchmarkTick is a whole tick of one core: the view of the reports, what is remembered, the
// plan and its certificate, what is cut and published.
func BenchmarkTick(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	w := newWorld(b)
	l := &leader{Control: newControl(b, w.config, &store.Memory{}, ""), epoch: 1}
	at := now
	next := func() {
		at = at.Add(2 * time.Second)
		w.report(l.Control, at)
		b.StartTimer()
		l.tick(at)
		b.StopTimer()
		require.Empty(b, l.State().Trouble)
	}
	b.StopTimer()
	for range 5 {
		next()
	}
	b.ResetTimer()
	b.StopTimer()
	for range b.N {
		next()
	}
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(b, err)
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	peak := 0.0
	_, _ = fmt.Sscan(rest, &peak)
	b.ReportMetric(peak/1024, "peak-MiB")
	b.ReportMetric(float64(l.version), "versions")
}

// BenchmarkWhy explains a row of the same fleet, what would follow from another demand, and a
// change of two plans.
func BenchmarkWhy(b *testing.B) {
	w := newWorld(b)
	c := newControl(b, w.config, &store.Memory{}, "")
	l := &leader{Control: c, epoch: 1}
	at := now
	var records []*suppose.Record
	for range 7 {
		at = at.Add(2 * time.Second)
		w.report(c, at)
		l.tick(at)
		select {
		case r := <-c.recorded:
			records = append(records, r)
			require.NoError(b, c.history.Add(r))
		default:
		}
	}
	require.Greater(b, len(records), 1)
	b.Run("weight", func(b *testing.B) {
		for b.Loop() {
			why, err := c.State().Known().Weight(c.State().Plan, "c07", "m3", "")
			require.NoError(b, err)
			require.NoError(b, json.NewEncoder(io.Discard).Encode(why))
		}
	})
	b.Run("what-if", func(b *testing.B) {
		for b.Loop() {
			_, err := c.WhatIf(b.Context(), suppose.Changes{Demand: []suppose.DemandChange{{Cluster: "c07", Factor: 2}}})
			require.NoError(b, err)
		}
	})
	b.Run("change", func(b *testing.B) {
		a, z := records[len(records)-2], records[len(records)-1]
		for b.Loop() {
			_, err := c.WhyChange(b.Context(), [2]uint64{a.Epoch, a.Version}, [2]uint64{z.Epoch, z.Version})
			require.NoError(b, err)
		}
	})
	b.Run("record", func(b *testing.B) {
		h, err := history.Open(b.TempDir(), 1<<30)
		require.NoError(b, err)
		for b.Loop() {
			require.NoError(b, h.Add(records[len(records)-1]))
		}
		b.ReportMetric(float64(h.Entries()[0].Bytes)/1024, "KiB")
	})
}
