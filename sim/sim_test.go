package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const small = `
about: two regions
duration: 2m
warmup: 0s
load:
  - {prompt: {mean: 200}, output: {mean: 40}, sessions: {turns: 3, think: 1s}, shared: 100}
fleet:
  clusters:
    - {name: a, region: a, distances: {a: 5ms, b: 50ms}}
    - {name: b, region: b, distances: {a: 50ms, b: 5ms}}
  engines:
    - {name: a1, region: a, models: [m], profile: {t0: 500ms, u_max: 50, batch: 60}}
    - {name: a2, region: a, models: [m], profile: {t0: 500ms, u_max: 50, batch: 60}}
    - {name: b1, region: b, models: [m], profile: {t0: 500ms, u_max: 50, batch: 60}}
  demand:
    - {cluster: a, model: m, rate: 30}
    - {cluster: b, model: m, priority: batch, rate: 20}
`

func load(t testing.TB, text string) *Scenario {
	t.Helper()
	s, err := LoadScenario("s.yaml", []byte(text), nil)
	require.NoError(t, err)
	return s
}

func simulate(t testing.TB, s *Scenario, policy string, o Options) *Result {
	t.Helper()
	r, err := Run(context.Background(), s, policy, Policies()[policy], o)
	require.NoError(t, err)
	return r
}

func asJSON(t *testing.T, r *Result) string {
	b, err := json.Marshal(r)
	require.NoError(t, err)
	return string(b)
}

// TestSeedsDecide: a run depends on scenario and seed alone.
func TestSeedsDecide(t *testing.T) {
	s := load(t, small+"network: {jitter: 0.2}\nsignals: {loss: 0.3, delay: 2s}\n")
	for policy := range Policies() {
		one := asJSON(t, simulate(t, s, policy, Options{Seed: 1}))
		require.Equal(t, one, asJSON(t, simulate(t, s, policy, Options{Seed: 1})), policy)
		require.NotEqual(t, one, asJSON(t, simulate(t, s, policy, Options{Seed: 2})), policy)
	}
}

// TestNothingIsLost: whatever happens to engines and clients, every request ends in one
// way, once.
func TestNothingIsLost(t *testing.T) {
	for _, events := range []string{
		"", `
  - {at: 20s, for: 20s, engine: a1, do: down}
  - {at: 50s, for: 20s, region: a, do: down}`, `
  - {at: 20s, for: 30s, engine: "*1", do: hang}`, `
  - {at: 20s, for: 20s, engine: "*", do: down}
  - {at: 50s, for: 20s, engine: a2, do: slow, factor: 20}`, `
  - {at: 10s, for: 60s, control: down}
  - {at: 20s, for: 30s, engine: a1, do: drain}
  - {at: 20s, for: 30s, cluster: a, factor: 4}`,
	} {
		for _, clients := range []string{"", "clients: {timeout: 2s}\n"} {
			s := load(t, small+clients+"events:\n  - {at: 80s, cluster: \"*\", factor: 0}"+events+"\n")
			for policy := range Policies() {
				r := simulate(t, s, policy, Options{Seed: 3})
				ended := r.Answered + r.Failed + r.Left + r.Shed[0] + r.Shed[1] + r.Shed[2]
				require.Equal(t, r.Arrived, ended, "%s under%s", policy, events)
				require.Greater(t, r.Answered, r.Arrived/3)
			}
		}
	}
}

// TestFastIsStepped: engines that jump between events give what those give that take
// every step.
func TestFastIsStepped(t *testing.T) {
	s := load(t, strings.Replace(small, "duration: 2m", "duration: 10m", 1))
	fast, steps := simulate(t, s, "optimal", Options{Seed: 1}), simulate(t, s, "optimal", Options{Seed: 1, Steps: true})
	assert.InEpsilon(t, steps.Whole.Mean, fast.Whole.Mean, 0.02)
	assert.InEpsilon(t, steps.First.Mean, fast.First.Mean, 0.02)
	assert.InEpsilon(t, steps.Whole.P99, fast.Whole.P99, 0.05)
	assert.InDelta(t, steps.HitRate, fast.HitRate, 0.01)
}

// TestLoad holds the laws of arrivals and sizes to their means and variations.
func TestLoad(t *testing.T) {
	for _, law := range []string{"poisson", "gamma", "weibull"} {
		l := &Load{Arrivals: law, CV: 2, Prompt: Size{300, 1.5}, Output: Size{100, 0.5}}
		l.Sessions.Turns, l.Daily.Period = 1, 1
		s := newSource(0, 0, 0, 50, l, 9)
		var gaps, prompts []float64
		for range 200_000 {
			gaps = append(gaps, s.gap(0).Seconds())
			r := &Request{}
			s.start(r)
			prompts = append(prompts, float64(r.Prompt))
		}
		want := map[string]float64{"poisson": 1, "gamma": 2, "weibull": 2}[law]
		mean, cv := moments(gaps)
		assert.InEpsilon(t, 0.02, mean, 0.03, law)
		assert.InEpsilon(t, want, cv, 0.05, law)
		mean, cv = moments(prompts)
		assert.InEpsilon(t, 300, mean, 0.02, law)
		assert.InEpsilon(t, 1.5, cv, 0.1, law)
	}
}

func moments(x []float64) (mean, cv float64) {
	square := 0.0
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		square += (v - mean) * (v - mean) / float64(len(x))
	}
	return mean, math.Sqrt(square) / mean
}

// TestConversations: a turn's prompt is all that was said before and something new, and
// conversations have as many turns as the load says.
func TestConversations(t *testing.T) {
	l := &Load{Prompt: Size{100, 0.5}, Output: Size{50, 0.5}, Shared: 70}
	l.Sessions.Turns, l.Daily.Period = 5, 1
	s := newSource(0, 0, 0, 50, l, 9)
	turns, conversations := 0.0, 5_000
	for range conversations {
		r := &Request{}
		s.start(r)
		require.NotZero(t, r.Session)
		for more := true; more; turns++ {
			before, prompt, output := slices.Clone(r.Prefix), r.Prompt, r.Output
			require.Equal(t, prompt, before[len(before)-1].End)
			if _, more = s.follow(r); more {
				require.Equal(t, before, r.Prefix[:len(before)])
				require.Greater(t, r.Prompt, prompt+output)
			}
		}
	}
	assert.InEpsilon(t, 5, turns/float64(conversations), 0.05)
	a, b := &Request{}, &Request{}
	s.start(a)
	s.start(b)
	require.Equal(t, a.Prefix[1], b.Prefix[1], "the shared prompt")
	require.NotEqual(t, a.Prefix[2], b.Prefix[2])
}

// TestClock: events come by time, those of one time in the order they were made.
func TestClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c clock
		type key struct {
			at    time.Duration
			order int
		}
		var want []key
		for i, at := range rapid.SliceOfN(rapid.IntRange(0, 20), 0, 200).Draw(t, "times") {
			c.add(event{at: time.Duration(at), index: int32(i)})
			want = append(want, key{time.Duration(at), i})
		}
		slices.SortStableFunc(want, func(a, b key) int { return int(a.at - b.at) })
		for _, w := range want {
			e, ok := c.take()
			require.True(t, ok)
			require.Equal(t, w, key{e.at, int(e.index)})
			require.Equal(t, w.at, c.now)
		}
		_, ok := c.take()
		require.False(t, ok)
	})
}

// TestMistakes: a scenario with errors says where they are and runs nothing.
func TestMistakes(t *testing.T) {
	for want, text := range map[string]string{
		`s.yaml:3:9: warmup: 3m0s leaves nothing`:             strings.Replace(small, "duration: 2m\nwarmup: 0s", "warmup: 3m\nduration: 2m", 1),
		`unknown key "loads": did you mean "load"?`:           strings.Replace(small, "load:", "loads:", 1),
		`load[0].arrivals: unknown law "pareto"`:              strings.Replace(small, "{prompt:", "{arrivals: pareto, prompt:", 1),
		`load[0].output.mean: 0.5 is not between 1 and`:       strings.Replace(small, "{mean: 40}", "{mean: 0.5}", 1),
		`events[0].at: 5m0s is after the end, 2m0s`:           small + "events:\n  - {at: 5m, engine: a1, do: down}\n",
		`events[0].do: unknown "explode"`:                     small + "events:\n  - {at: 1s, engine: a1, do: explode}\n",
		`events[0]: no engine is meant`:                       small + "events:\n  - {at: 1s, engine: z*, do: down}\n",
		`events[0]: nothing happens`:                          small + "events:\n  - {at: 1s}\n",
		`events[0].factor: how many times its steps take`:     small + "events:\n  - {at: 1s, engine: a1, do: slow}\n",
		`hardware[0].kind: unknown kind "tpu": known are 70b`: small + "hardware:\n  - {engine: \"*\", kind: tpu}\n",
		`expect[0]: want `:                                    small + "expect:\n  - optimal is best\n",
		`expect[0]: unknown figure "speed"`:                   small + "expect:\n  - optimal.speed < 3\n",
		`s.yaml:1:1: fleet: want a configuration`:             "about: nothing\n",
		`generate: unknown "planets"`:                         "about: x\ngenerate: planets=3\n",
		`clusters[0].distances: none to region "b"`:           strings.Replace(small, "{a: 5ms, b: 50ms}", "{a: 5ms}", 1),
		`about: missing`:                                      strings.Replace(small, "about: two regions\n", "", 1),
	} {
		_, err := LoadScenario("s.yaml", []byte(text), nil)
		assert.ErrorContains(t, err, want)
	}
}

// TestExpectations: those that fail are said with both figures, those of policies that
// were not run are left out.
func TestExpectations(t *testing.T) {
	s := load(t, small+`expect:
  - x.mean < y.mean
  - x.mean < y.mean * 0.5
  - x.p99 > 3
  - z.mean < 1
  - x.shed < 0.1
`)
	x, y := &Result{Policy: "x"}, &Result{Policy: "y"}
	x.Whole.Mean, y.Whole.Mean, x.Whole.P99 = 1, 1.5, 2
	failed, skipped := s.Check([]*Result{x, y})
	require.Equal(t, []string{"x.mean < y.mean * 0.5: 1 against 0.75", "x.p99 > 3: 2 against 3"}, failed)
	require.Equal(t, []string{"z.mean < 1"}, skipped)
}

// TestStopped: a run that is stopped gives what it has, and says so.
func TestStopped(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	s := load(t, strings.Replace(small, "duration: 2m", "duration: 10h", 1))
	r, err := Run(ctx, s, "static", Policies()["static"], Options{Progress: func(float64) { cancel() }})
	require.NoError(t, err)
	require.True(t, r.Partial)
	require.Positive(t, r.Answered)
	require.Less(t, r.Seconds, 3600.0)
}

// TestReport: it stands alone and shows every policy.
func TestReport(t *testing.T) {
	s := load(t, small+"events:\n  - {at: 30s, for: 20s, engine: a1, do: down}\n")
	var all []*Summary
	for _, name := range []string{"optimal", "static"} {
		x := &Summary{Policy: name}
		for seed := range uint64(2) {
			x.Runs = append(x.Runs, simulate(t, s, name, Options{Seed: seed}))
		}
		all = append(all, x)
	}
	var html, table bytes.Buffer
	require.NoError(t, WriteHTML(&html, s, all, 1.25))
	require.NoError(t, WriteTable(&table, all))
	for _, reference := range []string{"http://", "https://", "src=", "<script", "@import"} {
		require.NotContains(t, html.String(), reference)
	}
	for _, x := range all {
		require.Contains(t, html.String(), x.Policy)
		require.Contains(t, table.String(), x.Policy)
	}
	require.Contains(t, html.String(), "engines a1: down")
	require.Equal(t, 4, strings.Count(html.String(), "<svg"), "two of loads, latencies, what moved")
	require.Contains(t, html.String(), "Fluid bound of the mean: 1.25s")
	require.NotContains(t, html.String(), "NaN")
	require.Contains(t, table.String(), "±")
}

// TestOscillation: a load that swings has a high index, noise a low one.
func TestOscillation(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var noise, swing []float32
	for i := range 600 {
		x := r.NormFloat64()
		noise = append(noise, float32(10+x))
		swing = append(swing, float32(10+x+3*math.Sin(float64(i)/3)))
	}
	require.Less(t, oscillation([][]float32{noise}), 0.1)
	require.Greater(t, oscillation([][]float32{swing}), 0.7)
	require.Zero(t, oscillation([][]float32{make([]float32, 600)}))
	require.Zero(t, oscillation(nil))
}

// TestBound: where chance matters little the optimum comes near the bound, which nobody
// passes by more than engines differ from their profiles.
func TestBound(t *testing.T) {
	s := load(t, strings.NewReplacer("sessions: {turns: 3, think: 1s}, shared: 100", "arrivals: poisson", "rate: 30", "rate: 60").Replace(small))
	bound, err := Bound(s)
	require.NoError(t, err)
	r := simulate(t, s, "optimal", Options{Seed: 1})
	require.InEpsilon(t, bound, r.Whole.Mean, 0.1)
}
