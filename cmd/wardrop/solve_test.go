package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// wardrop runs a command line in this process.
func wardrop(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errors bytes.Buffer
	code = run(t.Context(), args, &out, &errors)
	return code, out.String(), errors.String()
}

func TestSolveGeneratedFleet(t *testing.T) {
	code, text, _ := wardrop(t, "solve", "--generate", "clusters=8,engines=60,models=3,util=1.1,multi=0.2,seed=3")
	require.Zero(t, code)
	file := filepath.Join(t.TempDir(), "fleet.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	code, _, _ = wardrop(t, "check", file)
	require.Zero(t, code, "what is generated is a valid configuration")

	code, out, trace := wardrop(t, "solve", file, "--json", "--trace")
	require.Zero(t, code)
	require.Contains(t, trace, "iteration")
	var plan struct{ Objective, Gap float64 }
	require.NoError(t, json.Unmarshal([]byte(out), &plan))
	require.LessOrEqual(t, plan.Gap, 1e-6)

	other := filepath.Join(t.TempDir(), "other.json")
	for factor, want := range map[float64]int{1: 0, 1 + 2e-7: 1} {
		data, err := json.Marshal(map[string]float64{"objective": plan.Objective * factor})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(other, data, 0o600))
		code, out, _ = wardrop(t, "solve", file, "--compare", other)
		require.Equal(t, want, code)
		require.Contains(t, out, "relative difference")
	}
	require.NoError(t, os.WriteFile(other, []byte("{}"), 0o600))
	code, _, stderr := wardrop(t, "solve", file, "--compare", other)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, `want {"objective": X}`)
}

func TestSolveBench(t *testing.T) {
	code, text, _ := wardrop(t, "solve", "--generate", "clusters=20,engines=400,models=4,seed=1")
	require.Zero(t, code)
	file := filepath.Join(t.TempDir(), "fleet.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	code, out, _ := wardrop(t, "solve", file, "--bench", "3")
	require.Zero(t, code)
	var got map[string]float64
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	for _, key := range []string{"solve_seconds", "tick_seconds", "pass_seconds", "passes"} {
		require.Positive(t, got[key], key)
	}
	require.LessOrEqual(t, got["gap"], 1e-6)
	require.Equal(t, 20.0*400, got["arcs"])
}

func TestSolveUsage(t *testing.T) {
	for _, args := range [][]string{
		{"solve"}, {"solve", "x.yaml", "--generate", "engines=3"}, {"solve", "--generate", "engins=3"},
	} {
		code, _, stderr := wardrop(t, args...)
		require.NotZero(t, code)
		require.NotEmpty(t, stderr)
	}
}
