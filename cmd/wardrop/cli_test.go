package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/explain"
	"github.com/wardrop-lb/wardrop/internal/testaddr"
)

// command runs a command line in this process.
func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, log bytes.Buffer
	code = run(t.Context(), args, &out, &log)
	return code, out.String(), log.String()
}

const valid = `clusters:
  - {name: a, region: eu, distances: {eu: 2ms}}
engines:
  - {name: e, region: eu, models: [demo]}
demand:
  - {cluster: a, model: demo, rate: 10}
`

func TestHelp(t *testing.T) {
	code, help, stderr := command(t)
	require.Zero(t, code)
	require.Empty(t, stderr)
	for _, name := range []string{"up", "control", "proxy", "testengine", "solve", "why weight", "engines", "demand", "distances", "check"} {
		require.Contains(t, help, "\n  "+name+" ")
	}
	require.Contains(t, help, "wardrop up --load")
	_, asked, _ := command(t, "--help")
	require.Equal(t, asked, help)

	for name, flags := range map[string][]string{
		"up":         {"--config", "--scenario", "--for", "--load", "--report", "--quiet"},
		"control":    {"--config"},
		"proxy":      {"--config", "--cluster"},
		"testengine": {"--listen", "--name", "--model", "--t0", "--u-max", "--batch", "--prompt", "--output", "--seed"},
		"solve":      {"<file>", "--json"},
		"why weight": {"--cluster", "--model", "--engine", "--admin", "--config", "--json"},
		"engines":    {"--admin", "--config", "--json", "--watch"},
		"demand":     {"--admin", "--config", "--json", "--watch"},
		"distances":  {"--admin", "--config", "--json", "--watch"},
		"check":      {"<file>"},
	} {
		code, help, stderr := command(t, append(strings.Fields(name), "--help")...)
		require.Zero(t, code, name)
		require.Empty(t, stderr, name)
		for _, flag := range append(flags, "--log-level") {
			require.Contains(t, help, flag, name)
		}
	}
}

func TestWrongUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"unexpected argument nope":       {"nope"},
		"unknown flag --nope":            {"up", "--nope"},
		"missing flags: --cluster":       {"proxy", "-c", "x.yaml"},
		"missing flags: --config":        {"control"},
		`expected "<file>"`:              {"check"},
		"can't be used together":         {"up", "-c", "x.yaml", "--scenario", "talk"},
		`expected duration but got "ten`: {"up", "--for", "ten"},
	} {
		code, stdout, stderr := command(t, args...)
		require.Equal(t, 2, code, args)
		require.Empty(t, stdout, args)
		require.Contains(t, stderr, want)
		require.Contains(t, stderr, "see wardrop --help")
	}
}

func TestCheck(t *testing.T) {
	path := newFile(t, valid)
	code, stdout, stderr := command(t, "check", path)
	require.Zero(t, code, stderr)
	require.Equal(t, path+" is valid: 1 clusters, 1 engines, policy optimal\n", stdout)
	for _, name := range []string{"demo", "talk"} {
		code, _, stderr := command(t, "check", "../../examples/"+name+".yaml")
		require.Zero(t, code, stderr)
	}

	missing := filepath.Join(t.TempDir(), "none.yaml")
	code, stdout, stderr = command(t, "check", missing)
	require.Equal(t, 1, code)
	require.Empty(t, stdout)
	require.Equal(t, "wardrop: open "+missing+": no such file or directory\n", stderr)
}

// TestCheckMistakes has one mistake of each kind; package config has them all.
func TestCheckMistakes(t *testing.T) {
	for name, c := range map[string]struct{ old, replacement, want string }{
		"not YAML":        {"  - {cluster", "\t- {cluster", ":6:1: not YAML: found character that cannot start any token"},
		"unknown key":     {"region: eu, models", "regoin: eu, models", `:4:15: unknown key "regoin" in engines[0]: did you mean "region"?`},
		"wrong type":      {"rate: 10", "rate: ten", `:6:37: demand[0].rate: want a number, got "ten"`},
		"bad duration":    {"2ms", "2", `:2:43: clusters[0].distances.eu: "2" is not a duration`},
		"unknown name":    {"cluster: a", "cluster: b", `:6:15: demand[0].cluster: unknown cluster "b": known are a`},
		"nothing in list": {"models: [demo]", "models: []", `:4:35: engines[0].models: none`},
		"missing part":    {"{eu: 2ms}", "{}", `:2:38: clusters[0].distances: none to region "eu"`},
	} {
		require.Contains(t, valid, c.old, name)
		path := newFile(t, strings.Replace(valid, c.old, c.replacement, 1))
		code, stdout, stderr := command(t, "check", path)
		require.Equal(t, 2, code, name)
		require.Empty(t, stdout, name)
		require.Contains(t, stderr, path+c.want, name)
	}
}

// TestNothingStartsFromAnInvalidFile holds the addresses itself: a command that
// opened one before it looked at the file would fail in another way.
func TestNothingStartsFromAnInvalidFile(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	dir := t.TempDir()
	path := filepath.Join(dir, "wardrop.yaml")
	data := filepath.Join(dir, "data")
	writeFile(t, path, fmt.Sprintf("control: {listen: %q, admin: %q, data: %q}\nproxy: {data: %q}\n",
		l.Addr(), l.Addr(), data, data)+strings.Replace(valid, "rate: 10", "rate: ten", 1))
	for _, args := range [][]string{
		{"control", "-c", path}, {"proxy", "-c", path, "--cluster", "a"}, {"up", "-c", path}, {"solve", path},
		{"why", "weight", "-c", path, "--cluster", "a", "--model", "demo"},
	} {
		code, stdout, stderr := command(t, args...)
		require.Equal(t, 2, code, args)
		require.Empty(t, stdout, args)
		require.Equal(t, path+`:8:37: demand[0].rate: want a number, got "ten"`+"\n", stderr, args)
		require.NoDirExists(t, data, args)
	}

	missing := filepath.Join(dir, "none.yaml")
	for _, args := range [][]string{{"control", "-c", missing}, {"proxy", "-c", missing, "--cluster", "a"}, {"up", "-c", missing}, {"solve", missing}} {
		code, _, stderr := command(t, args...)
		require.Equal(t, 1, code, args)
		require.Equal(t, "wardrop: open "+missing+": no such file or directory\n", stderr, args)
	}
}

func TestTakenAddressesAreNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	dir := t.TempDir()
	settings := fmt.Sprintf("control: {store: memory, listen: %q, data: %q}\nproxy: {data: %q}\n", l.Addr(), dir, dir)
	path := newFile(t, settings+strings.Replace(valid, "region: eu,", fmt.Sprintf("region: eu, listen: %q,", l.Addr()), 1))
	for what, args := range map[string][]string{
		"control.listen": {"control", "-c", path}, "listen": {"proxy", "-c", path, "--cluster", "a"},
	} {
		code, _, stderr := command(t, args...)
		require.Equal(t, 1, code)
		require.Contains(t, stderr, fmt.Sprintf("wardrop: %s: listen tcp %s: bind: address already in use\n", what, l.Addr()))
	}
}

func TestProxyOfAnUnknownCluster(t *testing.T) {
	path := newFile(t, valid)
	code, _, stderr := command(t, "proxy", "-c", path, "--cluster", "b")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, path+` has no cluster "b"`)
}

func TestUnknownScenarioNamesTheKnown(t *testing.T) {
	code, stdout, stderr := command(t, "up", "--scenario", "tlak")
	require.Equal(t, 1, code)
	require.Empty(t, stdout)
	require.Equal(t, "wardrop: unknown scenario \"tlak\": known are demo, talk, or a file's name that ends in .yaml\n", stderr)
}

func TestWhyWithoutAControlPlane(t *testing.T) {
	code, stdout, stderr := command(t, "why", "weight", "--cluster", "a", "--model", "demo", "--admin", testaddr.Own(t))
	require.Equal(t, 1, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "wardrop: the control plane does not answer: ")
}

const talkFile = "../../examples/talk.yaml"

func TestSolveTable(t *testing.T) {
	code, table, stderr := command(t, "solve", talkFile)
	require.Zero(t, code, stderr)
	require.Empty(t, stderr)
	want, gap, found := strings.Cut(table, ", gap ")
	require.True(t, found)
	require.Regexp(t, `^\d(\.\d)?(e-\d+)?\n$`, gap)
	require.Equal(t, `CLUSTER  MODEL  ENGINE  WEIGHT  REQ/S  NETWORK  LATENCY  CONGESTION  CAP  PENALTY  CHURN  TOTAL
a        demo   far     0.2550  30.6   150ms    681.4ms  1.657s      0    0        0      2.488s
a        demo   near    0.7450  89.4   5ms      702.9ms  1.78s       0    0        0      2.488s
c        demo   far     1.0000  40     5ms      681.4ms  1.657s      0    0        0      2.343s

ENGINE  LOAD  CAPACITY  USED   PRICE
far     70.6  80        88.3%  2.338s
near    89.4  100       89.4%  2.483s

policy optimal: objective 116.188, bound 116.188`, want)
}

// requireKeys checks that a JSON object has exactly these keys and gives it.
func requireKeys(t *testing.T, v any, keys ...string) map[string]any {
	t.Helper()
	require.IsType(t, map[string]any{}, v)
	require.ElementsMatch(t, keys, slices.Collect(maps.Keys(v.(map[string]any))))
	return v.(map[string]any)
}

// TestSolveJSONShape holds the JSON to its form, key by key: others parse it.
func TestSolveJSONShape(t *testing.T) {
	_, stdout, _ := command(t, "solve", "--json", talkFile)
	var plan any
	require.NoError(t, json.Unmarshal([]byte(stdout), &plan))
	top := requireKeys(t, plan, "policy", "objective", "bound", "gap", "rows", "engines")
	require.Len(t, top["rows"], 2)
	for _, r := range top["rows"].([]any) {
		row := requireKeys(t, r, "cluster", "model", "rate", "weights", "shed", "terms")
		requireKeys(t, row["shed"], "critical", "standard", "batch")
		for _, terms := range requireKeys(t, row["terms"], "near", "far") {
			requireKeys(t, terms, "network", "latency", "congestion", "cap", "penalty", "churn", "total")
		}
		for _, w := range row["weights"].(map[string]any) {
			require.IsType(t, 0.0, w)
		}
	}
	for _, e := range requireKeys(t, top["engines"], "near", "far") {
		requireKeys(t, e, "load", "capacity", "price")
	}
}

func solve(t *testing.T, path string) *explain.Plan {
	t.Helper()
	code, stdout, stderr := command(t, "solve", "--json", path)
	require.Zero(t, code, stderr)
	var p explain.Plan
	require.NoError(t, json.Unmarshal([]byte(stdout), &p))
	_, again, _ := command(t, "solve", "--json", path)
	require.Equal(t, stdout, again, "the same file gives the same bytes")
	return &p
}

// requireSound checks what holds of every plan: certified, within capacity,
// weights that add up and cost the same where they are used.
func requireSound(t *testing.T, p *explain.Plan) {
	t.Helper()
	require.LessOrEqual(t, p.Gap, 1e-4)
	require.LessOrEqual(t, p.Bound, p.Objective*(1+1e-12))
	for name, e := range p.Engines {
		require.LessOrEqual(t, e.Load, e.Capacity*(1+1e-9), name)
	}
	for _, r := range p.Rows {
		sum := 0.0
		var totals []float64
		for engine, w := range r.Weights {
			sum += w
			x := r.Terms[engine]
			totals = append(totals, x.Total)
			require.InDelta(t, x.Total, x.Network+x.Latency+x.Congestion+x.Cap+x.Penalty+x.Churn, 1e-9)
		}
		require.InDelta(t, 1, sum, 1e-9)
		require.InDelta(t, slices.Min(totals), slices.Max(totals), 1e-3*slices.Max(totals), "%s/%s", r.Cluster, r.Model)
	}
}

func TestSolveTalk(t *testing.T) {
	p := solve(t, talkFile)
	requireSound(t, p)
	a := p.Rows[0]
	require.Equal(t, "a", a.Cluster)
	require.Equal(t, 120.0, a.Rate)
	require.GreaterOrEqual(t, a.Weights["far"], 0.25)
	require.LessOrEqual(t, a.Weights["far"], 0.26)
	require.InDelta(t, 100, p.Engines["near"].Capacity, 1e-9)
	require.InDelta(t, 80, p.Engines["far"].Capacity, 1e-9)
	require.InDelta(t, 160, p.Engines["near"].Load+p.Engines["far"].Load, 1e-6)
}

const overload = `clusters:
  - {name: a, region: a, distances: {a: 5ms, b: 50ms}}
  - {name: b, region: b, distances: {a: 50ms, b: 5ms}}
engines:
  - {name: one, region: a, models: [demo], profile: {t0: 200ms, u_max: 125, batch: 200}}
  - {name: two, region: b, models: [demo], profile: {t0: 200ms, u_max: 100, batch: 160}}
demand:
`

// TestSolveSheds has engines for 180 requests/s and demand for more: the lowest
// priorities are refused, exactly as much of them as is too much.
func TestSolveSheds(t *testing.T) {
	type rates map[string]float64 // by cluster
	for name, c := range map[string]struct {
		demand map[string]rates   // by priority
		shed   map[string]float64 // of all that arrives with a priority
	}{
		"part of batch": {
			map[string]rates{"critical": {"a": 60}, "standard": {"a": 60, "b": 20}, "batch": {"a": 50, "b": 50}},
			map[string]float64{"batch": 0.6},
		},
		"all of batch, part of standard": {
			map[string]rates{"critical": {"a": 60}, "standard": {"a": 150}, "batch": {"a": 20}},
			map[string]float64{"batch": 1, "standard": 0.2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			text := overload
			for priority, rates := range c.demand {
				for cluster, rate := range rates {
					text += fmt.Sprintf("  - {cluster: %s, model: demo, priority: %s, rate: %v}\n", cluster, priority, rate)
				}
			}
			p := solve(t, newFile(t, text))
			requireSound(t, p)
			for name, e := range p.Engines {
				require.InEpsilon(t, e.Capacity, e.Load, 1e-6, name)
			}
			for priority, rates := range c.demand {
				shed, all := 0.0, 0.0
				for _, r := range p.Rows {
					shed, all = shed+r.Shed[priority]*rates[r.Cluster], all+rates[r.Cluster]
				}
				require.InDelta(t, c.shed[priority], shed/all, 1e-6, priority)
			}
		})
	}
}

func TestSolveWritesOnlyToStdout(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "talk.yaml")
	data, err := os.ReadFile(talkFile)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, data, 0o600))
	require.NotNil(t, solve(t, path))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}
