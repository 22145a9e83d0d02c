package baseline

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wardrop-lb/wardrop/sim"
)

// watcher stands between a world and a router and sees to what holds for every rule.
type watcher struct {
	sim.Router
	env      sim.Env
	open     [][]int // attempts by cluster and engine
	sent     []int   // by engine
	problems []string
}

func watch(make sim.Maker, w *watcher) sim.Maker {
	return func(e sim.Env) sim.Router {
		*w = watcher{Router: make(e), env: e, open: table(e), sent: w.sent[:0]}
		for range e.Fleet().Engines {
			w.sent = append(w.sent, 0)
		}
		return w
	}
}

func table(e sim.Env) [][]int {
	var x [][]int
	for range e.Fleet().Clusters {
		x = append(x, make([]int, len(e.Fleet().Engines)))
	}
	return x
}

func (w *watcher) problem(format string, args ...any) {
	w.problems = append(w.problems, fmt.Sprintf(format, args...))
}

func (w *watcher) Route(r *sim.Request) (int, bool) {
	output := r.Output
	r.Output = -1 // nobody may look
	e, ok := w.Router.Route(r)
	r.Output = output
	if !ok {
		if r.Attempts == 0 {
			w.problem("a request was refused that nobody had tried")
		}
		return e, ok
	}
	if !slices.Contains(w.env.Fleet().Serving[r.Model], e) {
		w.problem("engine %d does not serve model %d", e, r.Model)
	}
	usable := func(e int) bool { return !w.env.Drained(e) && w.env.Up(r.Cluster, e) }
	if !usable(e) && slices.ContainsFunc(w.env.Fleet().Serving[r.Model], usable) {
		w.problem("engine %d is down or being drained, and others are not", e)
	}
	w.open[r.Cluster][e]++
	w.sent[e]++
	return e, ok
}

func (w *watcher) Done(r *sim.Request, o sim.Outcome) {
	w.open[r.Cluster][r.Engine]--
	w.Router.Done(r, o)
}

func scenario(t require.TestingT, text string) *sim.Scenario {
	s, err := sim.LoadScenario("s.yaml", []byte(text), nil)
	require.NoError(t, err)
	return s
}

func run(t require.TestingT, s *sim.Scenario, name string, seed uint64) (*sim.Result, *watcher) {
	w := &watcher{}
	r, err := sim.Run(context.Background(), s, name, watch(Policies()[name], w), sim.Options{Seed: seed})
	require.NoError(t, err)
	return r, w
}

var names = slices.Sorted(maps.Keys(Policies()))

// drawScenario draws a fleet and what happens to it. Nothing arrives in the last part.
func drawScenario(t *rapid.T) string {
	var b strings.Builder
	fmt.Fprintf(&b, "about: x\nduration: 60s\nwarmup: 0s\n")
	fmt.Fprintf(&b, "load:\n  - {prompt: {mean: 200}, output: {mean: 30}, shared: %d, sessions: {turns: %d, think: 1s}, documents: {count: %d, tokens: 500}}\n",
		rapid.SampledFrom([]int{0, 300}).Draw(t, "shared"), rapid.IntRange(1, 2).Draw(t, "turns"), rapid.IntRange(0, 3).Draw(t, "documents"))
	fmt.Fprintf(&b, "signals: {delay: %ds, loss: %v}\n", rapid.IntRange(0, 5).Draw(t, "delay"), rapid.SampledFrom([]float64{0, 0.5}).Draw(t, "loss"))
	fmt.Fprintf(&b, "clients: {timeout: %ds, retries: %d}\n", rapid.SampledFrom([]int{0, 3}).Draw(t, "timeout"), rapid.IntRange(0, 2).Draw(t, "retries"))
	fmt.Fprintf(&b, "events:\n  - {at: 20s, cluster: \"*\", factor: 0}\n")
	engines := rapid.IntRange(2, 6).Draw(t, "engines")
	for range rapid.IntRange(0, 5).Draw(t, "events") {
		who := fmt.Sprint("e", rapid.IntRange(0, engines-1).Draw(t, "who"))
		if rapid.IntRange(0, 5).Draw(t, "all") == 0 {
			who = "*"
		}
		fmt.Fprintf(&b, "  - {at: %dms, for: %dms, engine: %q, do: %s, factor: 3}\n", rapid.IntRange(0, 19000).Draw(t, "at"), rapid.IntRange(1, 20000).Draw(t, "for"),
			who, rapid.SampledFrom([]string{"down", "drain", "hang", "slow"}).Draw(t, "do"))
	}
	fmt.Fprintf(&b, "fleet:\n  clusters:\n")
	clusters := rapid.IntRange(1, 3).Draw(t, "clusters")
	for c := range clusters {
		fmt.Fprintf(&b, "    - {name: c%d, region: r%d, distances: {r0: %dms, r1: %dms}}\n", c, c, rapid.IntRange(1, 90).Draw(t, "r0"), rapid.IntRange(1, 90).Draw(t, "r1"))
	}
	fmt.Fprintf(&b, "  engines:\n")
	for e := range engines {
		models, region := "m, n", e // each model somewhere, each region something
		if e > 1 {
			models = rapid.SampledFrom([]string{"m", "n", "m, n"}).Draw(t, "models")
			region = rapid.IntRange(0, 1).Draw(t, "region")
		}
		fmt.Fprintf(&b, "    - {name: e%d, region: r%d, models: [%s], profile: {t0: 300ms, u_max: 30, batch: 12}}\n", e, region, models)
	}
	fmt.Fprintf(&b, "  demand:\n")
	for c := range clusters {
		fmt.Fprintf(&b, "    - {cluster: c%d, model: m, rate: %d}\n    - {cluster: c%d, model: n, rate: 2}\n", c, rapid.IntRange(1, 15).Draw(t, "rate"), c)
	}
	return b.String()
}

// TestEveryRule: whatever happens to a fleet, every rule names engines that serve the
// model, sends nothing to those being drained or down while there are others, counts
// what it has in flight, and does the same when it runs again.
func TestEveryRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := scenario(t, drawScenario(t))
		name := rapid.SampledFrom(names).Draw(t, "policy")
		seed := rapid.Uint64().Draw(t, "seed")
		r, w := run(t, s, name, seed)
		require.Empty(t, w.problems)
		require.Equal(t, w.open, w.Router.(*base).inFlight)
		again, _ := run(t, s, name, seed)
		require.Equal(t, r, again)
	})
}

const four = `
about: x
duration: 2m
warmup: 0s
load:
  - {prompt: {mean: 256}, output: {mean: 128}}
fleet:
  clusters:
    - {name: c, region: r, distances: {r: 2ms}}
  engines:
    - {name: e1, region: r, models: [m], profile: {t0: 1s, u_max: 60, batch: 120}}
    - {name: e2, region: r, models: [m], profile: {t0: 1s, u_max: 60, batch: 120}}
    - {name: e3, region: r, models: [m], profile: {t0: 1s, u_max: 60, batch: 120}}
    - {name: e4, region: r, models: [m], profile: {t0: 1s, u_max: 60, batch: 120}}
  demand:
    - {cluster: c, model: m, rate: 80}
`

// TestNothingStaysInFlight: when requests stop coming, every counter is back at zero.
func TestNothingStaysInFlight(t *testing.T) {
	s := scenario(t, four+"events: [{at: 30s, cluster: c, factor: 0}, {at: 10s, for: 5s, engine: e1, do: down}]\nclients: {timeout: 1s}\n")
	for _, name := range names {
		r, w := run(t, s, name, 1)
		assert.Positive(t, r.Left, name)
		assert.Equal(t, [][]int{{0, 0, 0, 0}}, w.Router.(*base).inFlight, name)
		assert.Empty(t, w.problems, name)
	}
}

// TestAllDown: nobody panics, and everything fails.
func TestAllDown(t *testing.T) {
	s := scenario(t, four+"events: [{at: 0s, engine: \"*\", do: down}]\nclients: {retries: 1}\n")
	s.Shorten(20 * time.Second)
	for _, name := range names {
		r, _ := run(t, s, name, 1)
		assert.Zero(t, r.Answered, name)
		assert.Positive(t, r.Failed, name)
	}
}

// TestPrequalAvoidsTheSlow: an engine that takes four times as long gets much less than
// the part of it that two choices give, and the tail is shorter.
func TestPrequalAvoidsTheSlow(t *testing.T) {
	s := scenario(t, four+"events: [{at: 0s, engine: e1, do: slow, factor: 4}]\n")
	prequal, own := run(t, s, "prequal", 1)
	choices, other := run(t, s, "p2c", 1)
	assert.Less(t, own.sent[0], other.sent[0]/2)
	assert.Less(t, prequal.Whole.P99, choices.Whole.P99*0.8)
}

// TestPrefixesAreFound: rules that look for prefixes find more of them in caches than
// one that does not.
func TestPrefixesAreFound(t *testing.T) {
	s := scenario(t, strings.Replace(four, "- {prompt: {mean: 256}", "- {sessions: {turns: 5, think: 2s}, prompt: {mean: 256}", 1))
	s.Shorten(time.Minute)
	plain, _ := run(t, s, "least-request", 1)
	for _, name := range []string{"endpoint-picker", "cache-aware", "consistent-hash-bounded", "skywalker", "gorgo"} {
		r, _ := run(t, s, name, 1)
		assert.Greater(t, r.HitRate, plain.HitRate*1.2, name)
	}
}

// TestFeedbackSwings: latency that is known only when requests end is late, and what
// follows it goes to and fro.
func TestFeedbackSwings(t *testing.T) {
	s := scenario(t, `
about: x
duration: 20m
load:
  - {prompt: {mean: 256}, output: {mean: 128}}
fleet:
  clusters:
    - {name: c, region: r, distances: {r: 2ms}}
  engines:
    - {name: left, region: r, models: [m], profile: {t0: 8s, u_max: 20, batch: 800}}
    - {name: right, region: r, models: [m], profile: {t0: 8s, u_max: 20, batch: 800}}
  demand:
    - {cluster: c, model: m, rate: 30}
`)
	feedback, _ := run(t, s, "latency-feedback", 1)
	random, _ := run(t, s, "random", 1)
	assert.Greater(t, feedback.Oscillation, random.Oscillation*1.4)
}
