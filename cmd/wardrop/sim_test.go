package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// scenariosInTests are those small enough for every run of the tests.
var scenariosInTests = []string{"black-hole", "flash-crowd", "heterogeneous", "hot-prefix", "oscillation", "overload", "region-lost",
	"retry-storm", "rolling-restart", "sessions", "slow-engine", "talk"}

var named = regexp.MustCompile(`([a-z0-9-]+)\.[a-z0-9_]+`)

// TestScenarios runs the scenarios under the policies that their expectations name.
func TestScenarios(t *testing.T) {
	for _, name := range scenariosInTests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join("..", "..", "scenarios", name+".yaml")
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			_, expect, ok := strings.Cut(string(text), "\nexpect:\n")
			require.True(t, ok, "a scenario says what is to be seen in it")
			expect, _, _ = strings.Cut(expect, "\nfleet:")
			var policies []string
			for _, m := range named.FindAllStringSubmatch(expect, -1) {
				if p := m[1]; p[0] >= 'a' && p != "bound" {
					policies = append(policies, p)
				}
			}
			slices.Sort(policies)
			code, out, errors := wardrop(t, "sim", file, "--policies", strings.Join(slices.Compact(policies), ","))
			require.Zero(t, code, "%s\n%s", out, errors)
		})
	}
}

// TestEveryScenarioLoads holds the whole library to its form.
func TestEveryScenarioLoads(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "scenarios", "*.yaml"))
	require.NoError(t, err)
	require.Greater(t, len(files), len(scenariosInTests))
	for _, file := range files {
		s, err := (&simCmd{File: file}).load()
		require.NoError(t, err)
		for _, p := range s.Policies {
			require.Contains(t, makers(), p, file)
		}
	}
}

func TestSimPrintsJSONAndWritesAReport(t *testing.T) {
	report := filepath.Join(t.TempDir(), "report.html")
	code, out, _ := wardrop(t, "sim", "../../scenarios/talk.yaml", "--for", "20s", "--policies", "static,nearest", "--seeds", "2", "--json", "--html", report)
	require.Zero(t, code)
	var result struct {
		Policies []struct {
			Policy string
			Runs   []struct {
				Policy  string
				Latency struct{ Mean float64 }
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &result))
	require.Len(t, result.Policies, 2)
	require.Len(t, result.Policies[0].Runs, 2)
	require.Positive(t, result.Policies[1].Runs[1].Latency.Mean)
	html, err := os.ReadFile(report)
	require.NoError(t, err)
	require.Contains(t, string(html), "nearest")
}

func TestSimSaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"sim", "no-such-file.yaml"}, exitInvalid, "no-such-file.yaml"},
		{[]string{"sim", "../../scenarios/talk.yaml", "--policies", "best"}, exitInvalid, `unknown policy "best": known are`},
		{[]string{"sim", "../../scenarios/talk.yaml", "--seeds", "0"}, exitInvalid, "--seeds"},
		{[]string{"sim", "../../go.mod"}, exitInvalid, "go.mod:1:1:"},
	} {
		code, _, errors := wardrop(t, c.args...)
		require.Equal(t, c.code, code, c.args)
		require.Contains(t, errors, c.says)
	}
}
