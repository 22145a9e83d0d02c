package discover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
)

// scripted is a source that says what a test tells it to.
type scripted chan Found

func (s scripted) Run(ctx context.Context, report func(Found)) error {
	for {
		select {
		case f := <-s:
			report(f)
		case <-ctx.Done():
			return nil
		}
	}
}

// world is a discovery under virtual time: scripted sources, and engines that answer
// with the models they are told.
type world struct {
	*Discovery
	registry *prometheus.Registry
	log      lockedBuffer
	sources  map[string]scripted
	stop     func()

	mu      sync.Mutex
	models  map[string]string // host:port -> page; none refuses the connection
	reads   int
	applied []*config.Config
	times   []time.Time
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func startWorld(t *testing.T, text, path string) *world {
	w := &world{registry: prometheus.NewRegistry(), models: map[string]string{}, sources: map[string]scripted{}}
	for _, name := range []string{"one", "two"} {
		w.sources[name] = make(scripted)
	}
	w.Discovery = New(Options{
		Config: parse(t, text), Path: path, Registry: w.registry, Log: slog.New(slog.NewTextHandler(&w.log, nil)), Transport: w,
		Open: func(s config.Source, _ *slog.Logger) (Source, error) { return w.sources[s.Name], nil },
		Apply: func(c *config.Config) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.applied, w.times = append(w.applied, c), append(w.times, time.Now())
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	w.stop = func() {
		cancel()
		require.NoError(t, <-done)
	}
	synctest.Wait()
	return w
}

// RoundTrip implements http.RoundTripper.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	page, ok := w.models[r.URL.Host]
	if !ok {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(page))}, nil
}

func (w *world) serve(host string, models ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.models[host] = `{"data":[{"id":"` + strings.Join(models, `"},{"id":"`) + `"}]}`
}

func (w *world) down(host string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.models, host)
}

func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.applied)
}

// asked counts the reads of models.
func (w *world) asked() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reads
}

// after lets time pass.
func (w *world) after(d time.Duration) {
	time.Sleep(d) // virtual
	synctest.Wait()
}

// engines shows the engines in force: name=models.
func (w *world) engines() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, e := range w.applied[len(w.applied)-1].Engines {
		text := strings.TrimPrefix(e.Name, "10.0.0.") + "=" + strings.Join(e.Models, "+")
		if e.Drain {
			text += "!"
		}
		out = append(out, strings.Replace(text, ":8000", "", 1))
	}
	return strings.Join(out, " ")
}

func (w *world) hasSettled() bool {
	select {
	case <-w.Settled():
		return true
	default:
		return false
	}
}

const worldFile = `
clusters: [{name: a, region: eu, distances: {eu: 2ms}}]
discover:
  - {name: one, file: x, region: eu, models: [m]}
  - {name: two, file: y, region: eu}
`

// All is asked once before the first plan; from then on a burst is one change.
func TestDiscoverySettlesAndCoalesces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWorld(t, worldFile, "")
		w.serve("10.0.0.9:8000", "read")
		require.Zero(t, w.count())
		w.sources["one"] <- Found{Engines: enginesOf(1, 2)}
		w.after(0)
		require.False(t, w.hasSettled(), "the other source has said nothing")
		w.sources["two"] <- Found{Engines: enginesOf(9, 1)}
		w.after(0)
		require.True(t, w.hasSettled())
		require.Equal(t, 1, w.count())
		require.Equal(t, "1=m 2=m 9=read", w.engines())

		for n := 3; n < 8; n++ {
			w.sources["one"] <- Found{Engines: enginesOf(1, 2, n)}
			w.after(10 * time.Millisecond)
		}
		require.Equal(t, 1, w.count())
		w.after(coalesce)
		require.Equal(t, 2, w.count())
		require.Equal(t, "1=m 2=m 7=m 9=read", w.engines())
		require.GreaterOrEqual(t, w.times[1].Sub(w.times[0]), coalesce)

		for range 5 { // the same again is no change
			w.sources["one"] <- Found{Engines: enginesOf(7, 2, 1)}
			w.after(coalesce)
		}
		require.Equal(t, 2, w.count())
		w.stop()
	})
}

// A source that never answers does not keep the others from being used.
func TestDiscoveryDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWorld(t, worldFile, "")
		w.sources["one"] <- Found{Engines: enginesOf(1)}
		w.after(coalesce)
		require.False(t, w.hasSettled())
		require.Equal(t, "1=m", w.engines())
		w.sources["two"] <- Found{Err: errors.New("out of order")}
		w.after(0)
		require.True(t, w.hasSettled(), "a failure is an answer")
		require.Contains(t, w.log.String(), "out of order")
		w.stop()
	})
}

// A broken source does not empty a fleet: neither by failing nor by saying that all
// are gone; only by saying so for the whole of Grace.
func TestDiscoveryHoldsWhatVanishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWorld(t, worldFile, "")
		w.sources["two"] <- Found{}
		w.sources["one"] <- Found{Engines: enginesOf(1, 2, 3, 4)}
		w.after(0)
		w.sources["one"] <- Found{Err: errors.New("broken")}
		w.after(10 * Grace)
		require.Equal(t, "1=m 2=m 3=m 4=m", w.engines())

		w.sources["one"] <- Found{Engines: enginesOf(1, 2, 4)}
		w.after(coalesce)
		require.Equal(t, "1=m 2=m 4=m", w.engines(), "one of four may go at once")

		w.sources["one"] <- Found{Engines: enginesOf(5)}
		w.after(coalesce)
		require.Equal(t, "1=m 2=m 4=m 5=m", w.engines(), "what is new comes at once")
		require.Contains(t, w.log.String(), "more than half")
		require.NoError(t, testutil.GatherAndCompare(w.registry, strings.NewReader(`
# HELP wardrop_discover_held Engines kept for a while though their source says that they are gone.
# TYPE wardrop_discover_held gauge
wardrop_discover_held{source="one"} 3
wardrop_discover_held{source="two"} 0
# HELP wardrop_discover_refreshes_total Looks of a source at its engines.
# TYPE wardrop_discover_refreshes_total counter
wardrop_discover_refreshes_total{outcome="failed",source="one"} 1
wardrop_discover_refreshes_total{outcome="held",source="one"} 1
wardrop_discover_refreshes_total{outcome="ok",source="one"} 2
wardrop_discover_refreshes_total{outcome="ok",source="two"} 1
# HELP wardrop_discover_engines Engines in force that a source found.
# TYPE wardrop_discover_engines gauge
wardrop_discover_engines{source="one"} 4
wardrop_discover_engines{source="two"} 0
`), "wardrop_discover_held", "wardrop_discover_refreshes_total", "wardrop_discover_engines"))

		w.after(Grace - 2*coalesce)
		require.Equal(t, "1=m 2=m 4=m 5=m", w.engines())
		w.after(2 * coalesce) // a watch says nothing more: time alone lets go
		require.Equal(t, "5=m", w.engines())
		require.Contains(t, w.log.String(), "they are dropped")
		w.stop()
	})
}

// Models are read, read again, and kept while an engine does not answer; what comes
// back after a restart is seen within seconds.
func TestDiscoveryReadsModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWorld(t, `
clusters: [{name: a, region: eu, distances: {eu: 2ms}}]
engines: [{name: own, region: eu, url: "http://10.0.0.8:8000"}, {name: fixed, region: eu, url: "http://10.0.0.7:8000", models: [f]}]
discover: [{name: one, file: x, region: eu}]
`, "")
		w.serve("10.0.0.8:8000", "base", "adapter", "bad name")
		w.sources["one"] <- Found{Engines: enginesOf(1)}
		w.after(0)
		require.True(t, w.hasSettled(), "not to say one's models is an answer")
		require.Equal(t, "own= fixed=f 1=", w.engines())
		w.after(3 * time.Second) // the engine is asked again after a second, the change is a second behind
		require.Equal(t, "own=adapter+base fixed=f 1=", w.engines(), "1 is listed, and gets nothing")
		require.Len(t, w.applied[len(w.applied)-1].View().Engines, 2)
		require.Contains(t, w.log.String(), "names of models are refused")
		require.NoError(t, testutil.GatherAndCompare(w.registry, strings.NewReader(`
# HELP wardrop_discover_engines_without_models Engines whose models are neither configured nor read.
# TYPE wardrop_discover_engines_without_models gauge
wardrop_discover_engines_without_models 1
# HELP wardrop_discover_models_refused Names of models that engines say and that are refused.
# TYPE wardrop_discover_models_refused gauge
wardrop_discover_models_refused 1
`), "wardrop_discover_engines_without_models", "wardrop_discover_models_refused"))

		w.serve("10.0.0.1:8000", "m")
		w.after(6 * time.Second)
		require.Equal(t, "own=adapter+base fixed=f 1=m", w.engines())

		w.down("10.0.0.8:8000")
		w.after(time.Minute)
		require.Equal(t, "own=adapter+base fixed=f 1=m", w.engines(), "a failing read changes nothing")
		w.serve("10.0.0.8:8000", "other")
		w.after(20 * time.Second)
		require.Equal(t, "own=other fixed=f 1=m", w.engines())

		before := w.asked()
		w.after(60 * time.Second)
		require.InDelta(t, 8, w.asked()-before, 2, "two engines, each every quarter minute or a little more often")
		w.stop()
	})
}

// A new control plane begins with what the last one knew, and its own sources correct it.
func TestDiscoveryRemembersOverARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "found.json")
	synctest.Test(t, func(t *testing.T) {
		w := startWorld(t, worldFile, path)
		w.serve("10.0.0.9:8000", "read")
		w.sources["one"] <- Found{Engines: []config.Engine{{URL: "http://10.0.0.1:8000", Drain: true, Profile: config.Profile{T0: config.Duration(time.Minute)}}}}
		w.sources["two"] <- Found{Engines: enginesOf(9)}
		w.after(0)
		require.Equal(t, "1=m! 9=read", w.engines())
		w.stop()

		w = startWorld(t, worldFile, path)
		w.after(coalesce)
		require.Equal(t, "1=m! 9=read", w.engines(), "nobody has answered yet")
		require.Equal(t, config.Duration(time.Minute), w.applied[0].Engines[0].Profile.T0)
		w.sources["one"] <- Found{Err: errors.New("broken")}
		w.sources["two"] <- Found{}
		w.after(coalesce)
		require.Equal(t, "1=m! 9=read", w.engines())
		w.after(Grace)
		require.Equal(t, "1=m!", w.engines())
		w.stop()
	})
}

// A reload starts and stops sources; one that stays as it was is not disturbed.
func TestDiscoveryReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWorld(t, worldFile, "")
		w.sources["one"] <- Found{Engines: enginesOf(1)}
		w.sources["two"] <- Found{Engines: []config.Engine{{URL: "http://10.0.0.2:8000", Models: []string{"own"}}}}
		w.after(0)
		require.Equal(t, "1=m 2=own", w.engines())
		w.Reload(t.Context(), parse(t, strings.Replace(worldFile, "models: [m]", "models: [n]", 1)))
		w.after(coalesce)
		require.Equal(t, "1=n 2=own", w.engines(), "the source's new defaults count at once")
		w.Reload(t.Context(), parse(t, strings.Replace(worldFile, "  - {name: one, file: x, region: eu, models: [m]}\n", "", 1)))
		w.after(coalesce)
		require.Equal(t, "2=own", w.engines(), "what is no longer configured is gone at once")
		w.sources["two"] <- Found{Engines: []config.Engine{{URL: "http://10.0.0.2:8000", Models: []string{"own"}}, {URL: "http://10.0.0.3:8000", Models: []string{"x"}}}}
		w.after(coalesce)
		require.Equal(t, "2=own 3=x", w.engines())
		n, err := testutil.GatherAndCount(w.registry, "wardrop_discover_refreshes_total")
		require.NoError(t, err)
		require.Equal(t, 1, n, "the source that left shows nothing")
		w.stop()
	})
}

// Too many engines are a mistake of the source; ones that cannot be are refused, said
// once, and shown.
func TestDiscoveryRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWorld(t, worldFile, "")
		w.sources["two"] <- Found{}
		w.sources["one"] <- Found{Engines: append(enginesOf(1), config.Engine{URL: "http://10.0.0.2:8000", Region: "mars"}), Refused: []string{"what is this"}}
		w.after(coalesce)
		require.Equal(t, "1=m", w.engines())
		require.Equal(t, 1, strings.Count(w.log.String(), "no distance to"))
		require.Contains(t, w.log.String(), "what is this")
		require.NoError(t, testutil.GatherAndCompare(w.registry, strings.NewReader(`
# HELP wardrop_discover_refused Engines that a source found and that cannot be taken.
# TYPE wardrop_discover_refused gauge
wardrop_discover_refused{source="one"} 2
wardrop_discover_refused{source="two"} 0
`), "wardrop_discover_refused"))
		var many []config.Engine
		for i := range maxEngines + 1 {
			many = append(many, config.Engine{URL: fmt.Sprintf("http://e%d:1", i)})
		}
		w.sources["one"] <- Found{Engines: many}
		w.after(coalesce)
		require.Equal(t, "1=m", w.engines())
		require.Contains(t, w.log.String(), "10001 engines are more than")
		w.stop()
	})
}

// Without anything to find the configuration is what it is, at once.
func TestDiscoveryOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWorld(t, "clusters: [{name: a, region: eu, distances: {eu: 2ms}}]\nengines: [{name: e, region: eu, models: [m]}]\n", "")
		require.True(t, w.hasSettled())
		require.Equal(t, "e=m", w.engines())
		w.after(time.Hour)
		require.Equal(t, 1, w.count())
		w.stop()
	})
}
