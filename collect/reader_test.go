package collect

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/signals"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newReader is an instance of cluster c that reads nothing yet.
func newReader(t testing.TB, instance string) (*Reader, *prometheus.Registry) {
	registry, pages := prometheus.NewRegistry(), &http.Transport{}
	r := New(Options{
		Member: "c", Instance: instance, Interval: 10 * time.Millisecond, Timeout: time.Second,
		Transport: pages, Registry: registry, Log: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(pages.CloseIdleConnections)
	t.Cleanup(r.Close)
	return r, registry
}

// TestEachIsReadByTwo: every engine by exactly two of the instances, or by all where there are
// fewer; when one goes, nobody but those who follow it reads anything new.
func TestEachIsReadByTwo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		planes := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9]{1,8}`), 1, 8, rapid.ID).Draw(t, "planes")
		slices.Sort(planes)
		gone := rapid.SampledFrom(planes).Draw(t, "gone")
		left := slices.DeleteFunc(slices.Clone(planes), func(p string) bool { return p == gone })
		for i := range 30 {
			engine := fmt.Sprintf("e%d", i)
			of := func(planes []string) (by []string) {
				for _, p := range planes {
					if (&Reader{options: Options{Instance: p}, planes: planes}).mine(engine) {
						by = append(by, p)
					}
				}
				return by
			}
			before, after := of(planes), of(left)
			require.Len(t, before, min(readers, len(planes)))
			require.Len(t, after, min(readers, len(left)))
			for _, p := range before {
				require.True(t, p == gone || slices.Contains(after, p), "who read it goes on")
			}
		}
	})
}

// TestUnlistedReadsAll: who is not among the snapshot's instances cannot know who else reads.
func TestUnlistedReadsAll(t *testing.T) {
	r, _ := newReader(t, "new")
	s := &fleet.Snapshot{Planes: []string{"a", "b", "c"}}
	for i := range 20 {
		s.Engines = append(s.Engines, fleet.SnapshotEngine{Name: fmt.Sprintf("e%d", i), Kind: "vllm", URL: "http://127.0.0.1:1", Collector: "c"})
	}
	s.Engines = append(s.Engines, fleet.SnapshotEngine{Name: "far", Kind: "vllm", URL: "http://127.0.0.1:1", Collector: "d"})
	read, changed := r.Follow(s)
	require.True(t, changed)
	require.Len(t, read, 20)
	_, changed = r.Follow(&fleet.Snapshot{Planes: slices.Clone(s.Planes), Engines: slices.Clone(s.Engines)})
	require.False(t, changed, "nothing that matters is new")
	s2 := &fleet.Snapshot{Planes: []string{"a", "b", "c", "new"}, Engines: s.Engines}
	read, changed = r.Follow(s2)
	require.True(t, changed)
	require.Less(t, len(read), 20)
}

// TestReadingsAreNews: what has been given is given again only when all is asked for.
func TestReadingsAreNews(t *testing.T) {
	hold := make(chan struct{})
	first := true
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !first { // readings of one engine come one after the other
			select {
			case <-hold:
			case <-r.Context().Done():
			}
		}
		first = false
		_, _ = w.Write([]byte("vllm:num_requests_running 3\n"))
	}))
	defer s.Close()
	defer close(hold)
	r, _ := newReader(t, "a")
	r.Follow(&fleet.Snapshot{Engines: []fleet.SnapshotEngine{{Name: "e", Kind: "vllm", URL: s.URL, Collector: "c"}}})
	require.Eventually(t, func() bool { return len(r.Readings(false)) == 1 }, 10*time.Second, time.Millisecond)
	require.Empty(t, r.Readings(false))
	all := r.Readings(true)
	require.Len(t, all, 1)
	require.Equal(t, 3.0, all[0].GetRunning())
}

// TestFaultsAreCountedOnce: states carry sums, and begin anew when an engine is.
func TestFaultsAreCountedOnce(t *testing.T) {
	r, registry := newReader(t, "a")
	m := r.metrics
	m.count(signals.State{Engine: "a", Reachable: true, Faults: signals.Faults{Spoilt: 2}})
	m.count(signals.State{Engine: "a", Reachable: true, Faults: signals.Faults{Spoilt: 5}})
	m.count(signals.State{Engine: "a", Reachable: true, Err: "x", Faults: signals.Faults{Spoilt: 1, Failed: 1, Redirects: 1}})
	counts := map[string]float64{}
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, x := range f.Metric {
			counts[f.GetName()+" "+x.Label[0].GetValue()] = x.GetCounter().GetValue()
		}
	}
	require.Equal(t, 6.0, counts["wardrop_signals_faults_total spoilt"])
	require.Equal(t, 1.0, counts["wardrop_signals_faults_total redirect"])
	require.Equal(t, []float64{2, 1}, []float64{counts["wardrop_signals_reads_total ok"], counts["wardrop_signals_reads_total failed"]})
	m.forget([]signals.Target{{Engine: "b"}})
	require.Empty(t, m.last)
}
