package signals

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMetricsElsewhere: the metrics have a port of their own, the engine is at
// another address or at a socket.
func TestMetricsElsewhere(t *testing.T) {
	serve := func(path, file string) *httptest.Server {
		mux := http.NewServeMux()
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(golden(t, file).Body) })
		server := httptest.NewServer(mux)
		t.Cleanup(server.Close)
		return server
	}
	metrics := serve("/metrics", "triton.txt")
	engine := httptest.NewServer(http.NotFoundHandler())
	defer engine.Close()
	for _, kind := range []string{"triton", "", KindAuto} {
		st := attempt(t, longTime, Target{Engine: "e", URL: engine.URL, Kind: kind, MetricsURL: metrics.URL + "/metrics"})
		require.Empty(t, st.Err)
		require.Equal(t, "triton", st.Kind)
		require.Equal(t, Some(8), st.Signal.Running)
	}

	// A generic engine on a socket: its own page below it, or one on another port.
	socket := filepath.Join(t.TempDir(), "e.sock")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	below := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stats" {
			_, _ = io.WriteString(w, "busy 4\n")
		}
	})}}
	below.Start()
	defer below.Close()
	other := serve("/x/y", "generic.txt")
	for url, want := range map[string]float64{"/stats": 4, other.URL + "/x/y": 77} {
		st := attempt(t, longTime, Target{Engine: "e", URL: "unix://" + socket, Kind: KindGeneric, MetricsURL: url,
			Names: Names{Running: []string{"busy", "myengine_steps_total"}}})
		require.Empty(t, st.Err)
		require.Equal(t, KindGeneric, st.Kind)
		require.Equal(t, Some(want), st.Signal.Running)
	}
}

// TestATargetThatChangesInAnythingIsReadAnew, and one that is told again in the
// same words is not.
func TestATargetThatChangesInAnythingIsReadAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewScraper(t.Context(), Options{Transport: network(func(*http.Request) (*http.Response, error) { return answer(200, "a 1\nb 2\n") })})
		defer s.Close()
		target := func(metrics string, names ...string) []Target {
			return []Target{{Engine: "e", URL: "http://e", Kind: KindGeneric, MetricsURL: metrics, Names: Names{Running: names}}}
		}
		expect := func(set []Target, sequence uint64, running float64) {
			require.NoError(t, s.Set(set))
			time.Sleep(5 * time.Second)
			st := s.States()[0]
			require.InDelta(t, sequence, st.Signal.Sequence, 1)
			require.Equal(t, Some(running), st.Signal.Running)
		}
		expect(target("", "a"), 5, 1)
		expect(target("", "a"), 10, 1)
		expect(target("", "b", "a"), 5, 2)
		expect(target("/m", "b", "a"), 5, 2)
	})
}

// TestReadingTakesATenthOfTheTime: an engine that is slow to tell is asked less
// often, at the pace its answers take, and no other engine notices.
func TestReadingTakesATenthOfTheTime(t *testing.T) {
	for takes, most := range map[time.Duration]int64{0: 220, 50 * time.Millisecond: 220, 200 * time.Millisecond: 100, 400 * time.Millisecond: 51, 1900 * time.Millisecond: 30} {
		synctest.Test(t, func(t *testing.T) {
			var asked, busy atomic.Int64
			s := NewScraper(t.Context(), Options{Transport: network(func(r *http.Request) (*http.Response, error) {
				if r.URL.Host == "slow" {
					begin := time.Now()
					asked.Add(1)
					time.Sleep(takes)
					busy.Add(int64(time.Since(begin)))
				}
				return answer(200, vllmPage(1.7e9, 1, 1))
			})})
			defer s.Close()
			require.NoError(t, s.Set(targets("slow", "other")))
			const whole = 200 * time.Second
			time.Sleep(whole)
			states := s.States()
			require.Equal(t, "other", states[0].Engine)
			require.InDelta(t, 200, states[0].Signal.Sequence, 15, "the other is read once a second")
			require.LessOrEqual(t, asked.Load(), most)
			require.GreaterOrEqual(t, asked.Load(), int64(25), "it is not given up either")
			require.Less(t, time.Since(states[1].LastGood), 8*time.Second)
			if takes <= 400*time.Millisecond {
				require.LessOrEqual(t, busy.Load(), int64(whole/10+whole/100))
			}
		})
	}
}
