package main

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/internal/testturn"
	"github.com/wardrop-lb/wardrop/sim"
	"github.com/wardrop-lb/wardrop/testengine"
)

// played is a scenario on sockets and in the simulator, and what the clients saw.
func played(t *testing.T, text string) (sockets upReport, simulated *sim.Result) {
	t.Helper()
	dir := t.TempDir()
	file, report := filepath.Join(dir, "s.yaml"), filepath.Join(dir, "report.json")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	code, out, errors := wardrop(t, "up", "--scenario", file, "--quiet", "--report", report)
	require.Zero(t, code, "%s\n%s", out, errors)
	require.Contains(t, out, "POLICY")
	code, out, errors = wardrop(t, "sim", file, "--policies", "optimal", "--json")
	require.Zero(t, code, errors)
	var all struct {
		Policies []struct {
			Runs []*sim.Result `json:"runs"`
		} `json:"policies"`
	}
	require.NoError(t, json.Unmarshal([]byte(out), &all))
	sockets = readReport(t, report)
	require.NotNil(t, sockets.Measured)
	return sockets, all.Policies[0].Runs[0]
}

// TestSimulationAgreesWithSockets holds the simulator to the real thing: the same
// requests over real connections, real data planes, a real control plane. Engines are
// simulated in both, in steps here and from event to event there.
func TestSimulationAgreesWithSockets(t *testing.T) {
	testturn.Take(t)
	sockets, simulated := played(t, `
about: A near engine that is full and a far one that is not.
duration: 12s
warmup: 2s
load:
  - {prompt: {mean: 64}, output: {mean: 32}}
fleet:
  clusters:
    - {name: a, region: a, distances: {a: 5ms, c: 150ms}}
    - {name: c, region: c, distances: {a: 150ms, c: 5ms}}
  engines:
    - {name: near, region: a, models: [demo], profile: {t0: 200ms, u_max: 42, batch: 70}}
    - {name: far, region: c, models: [demo], profile: {t0: 200ms, u_max: 34, batch: 55}}
  demand:
    - {cluster: a, model: demo, rate: 35}
    - {cluster: c, model: demo, rate: 13}
`)
	m := sockets.Measured
	require.InDelta(t, simulated.Arrived, m.Arrived, 1, "the same requests")
	require.Greater(t, m.Arrived, 400)
	require.Zero(t, m.Failed+m.Left+m.Shed[0]+m.Shed[1]+m.Shed[2])
	require.InEpsilon(t, simulated.Whole.Mean, m.Whole.Mean, 0.1)
	require.InEpsilon(t, simulated.Whole.P50, m.Whole.P50, 0.1)
	share := func(engine string) (n uint64) {
		for _, r := range sockets.Requests {
			if r.Cluster == "a" && r.Engine == engine {
				n += r.Count
			}
		}
		return n
	}
	require.Positive(t, share("far"), "some of a's requests go far")
	require.Greater(t, share("near"), share("far"))
}

// TestScenarioOnSockets lets everything happen to engines that can, while
// conversations go on.
func TestScenarioOnSockets(t *testing.T) {
	sockets, simulated := played(t, `
about: An engine crashes and comes back, others are slow, hang and drain; conversations go on.
duration: 9s
warmup: 1s
load:
  - {prompt: {mean: 300}, output: {mean: 8}, shared: 400, sessions: {turns: 4, think: 1s}}
clients: {timeout: 5s, retries: 2}
events:
  - {at: 3s, for: 2s, engine: e1, do: down}
  - {at: 3s, for: 1s, engine: e2, do: slow, factor: 2}
  - {at: 4s, for: 1s, engine: e3, do: hang}
  - {at: 6s, engine: e4, do: drain}
  - {at: 5s, for: 1s, cluster: a, factor: 2}
fleet:
  policy: {tick: 1s}
  clusters:
    - {name: a, region: a, distances: {a: 2ms}}
  engines:
    - {name: e1, region: a, models: [demo], profile: {t0: 100ms, u_max: 60, batch: 40}}
    - {name: e2, region: a, models: [demo], profile: {t0: 100ms, u_max: 60, batch: 40}}
    - {name: e3, region: a, models: [demo], profile: {t0: 100ms, u_max: 60, batch: 40}}
    - {name: e4, region: a, models: [demo], profile: {t0: 100ms, u_max: 60, batch: 40}}
  demand:
    - {cluster: a, model: demo, rate: 40}
`)
	m := sockets.Measured
	require.Greater(t, m.Answered, 200)
	require.Less(t, m.Failed+m.Left, m.Answered/20, "%+v; load: %+v", m.Counts, sockets.Load)
	require.Positive(t, m.Turns)
	require.InDelta(t, simulated.HitRate, m.HitRate, 0.2, "what one engine's cache has is read from its answers")
	require.Greater(t, m.HitRate, 0.3)
	requests := map[string]uint64{}
	for _, r := range sockets.Requests {
		requests[r.Engine] += r.Count
	}
	for _, e := range []string{"e1", "e2", "e3"} {
		require.Positive(t, requests[e], e)
	}
	require.NotContains(t, requests, "e4", "an engine that is drained is in no snapshot")
}

// TestEventsMeetAtAnEngine: what is wrong with an engine adds up, outlives a crash, and
// ends by itself.
func TestEventsMeetAtAnEngine(t *testing.T) {
	s, err := sim.LoadScenario("s.yaml", []byte(`
about: One engine.
fleet:
  clusters: [{name: a, region: a, distances: {a: 2ms}}]
  engines: [{name: e, region: a, models: [demo], profile: {t0: 100ms, u_max: 60, batch: 40}}]
  demand: [{cluster: a, model: demo, rate: 1}]
`), nil)
	require.NoError(t, err)
	up := &fleetUp{cfg: s.Config, log: slog.New(slog.DiscardHandler), scenario: s, simulated: map[string]string{}}
	defer up.closeEngines()
	require.NoError(t, up.startEngines())
	p, err := newPlayer(up, s)
	require.NoError(t, err)
	change := func(do string, begins bool) { p.Change(0, &sim.Event{Do: do, Factor: 3}, begins) }
	first := up.engines[0]
	change("slow", true)
	change("hang", true)
	require.Equal(t, testengine.Faults{Hang: true, Slow: 3}, first.Faults())
	change("hang", false)
	require.Equal(t, testengine.Faults{Slow: 3}, first.Faults())

	change("down", true)
	change("down", true)
	change("down", false)
	second := up.engines[0]
	require.NotSame(t, first, second)
	require.Equal(t, first.Addr(), second.Addr())
	require.Equal(t, testengine.Faults{Slow: 3}, second.Faults())
	change("down", false)
	require.Same(t, second, up.engines[0], "it is there already")
	change("slow", false)
	require.Zero(t, second.Faults())
}

func TestScenarioThatOnlyASimulatorCanPlay(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
about: The control plane goes away.
events: [{at: 1s, control: down}]
duration: 5s
fleet:
  clusters: [{name: a, region: a, distances: {a: 2ms}}]
  engines: [{name: e, region: a, models: [demo], profile: {t0: 100ms, u_max: 60, batch: 40}}]
  demand: [{cluster: a, model: demo, rate: 1}]
`), 0o600))
	code, out, errors := wardrop(t, "up", "--scenario", file)
	require.NotZero(t, code)
	require.Empty(t, out, "nothing has begun")
	require.Contains(t, errors, "events[0]: only a simulator can take the control plane away")
	code, _, errors = wardrop(t, "up", "--scenario", filepath.Join(t.TempDir(), "none.yaml"))
	require.NotZero(t, code)
	require.Contains(t, errors, "none.yaml")
}
