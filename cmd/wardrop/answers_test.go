package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/sim"
)

var update = flag.Bool("update", false, "write the answers and docs/why.md anew; commit them only if you know why they changed")

// question is one that an operator asks at an instant of a scenario.
type question struct {
	name, asks, command string
	scenario            string
	at                  time.Duration
	change              func(*sim.Scenario) // before it is played; nil for nothing
	trips               bool                // it is about a single request
	// answer gives what the command says in words, and whether that is right is held against
	// what the answer does not come from.
	answer func(*moment) []string
}

// An answer is short.
const (
	mostLines = 7
	mostWords = 110
)

// TestOperatorsQuestions asks what operators ask, by what the commands are made of, in scenarios that
// production's rooms play under virtual time. The answers stand in golden files and in docs/why.md.
func TestOperatorsQuestions(t *testing.T) {
	all := questions()
	require.GreaterOrEqual(t, len(all), 10)
	answers := make([]string, len(all))
	t.Run("ask", func(t *testing.T) {
		for i, q := range all {
			t.Run(q.name, func(t *testing.T) {
				t.Parallel()
				m := play(t, q.scenario, q.at, q.change, q.trips)
				m.command = q.command
				words := q.answer(m)
				text := strings.Join(words, "\n") + "\n"
				require.LessOrEqual(t, len(words), mostLines, text)
				require.LessOrEqual(t, len(strings.Fields(text)), mostWords, text)
				golden(t, filepath.Join("testdata", "questions", fmt.Sprintf("%02d-%s.txt", i+1, q.name)), text)
				answers[i] = text
			})
		}
	})
	if t.Failed() {
		return
	}
	page := filepath.Join("..", "..", "docs", "why.md")
	before, err := os.ReadFile(page)
	require.NoError(t, err)
	head, _, ok := strings.Cut(string(before), questionsBegin)
	require.True(t, ok, "docs/why.md has no line %s", questionsBegin)
	golden(t, page, head+questionsBegin+listed(all, answers))
}

const questionsBegin = "<!-- What follows is written by go test ./cmd/wardrop -run TestOperatorsQuestions -update. -->\n"

// listed writes the questions with their answers as they stand in the docs.
func listed(all []question, answers []string) string {
	var b strings.Builder
	for i, q := range all {
		fmt.Fprintf(&b, "\n### %d. %s\n", i+1, q.asks)
		fmt.Fprintf(&b, "`%s` at %v of [%s](../scenarios/%s.yaml):\n\n", q.command, q.at, q.scenario, q.scenario)
		for line := range strings.SplitSeq(strings.TrimSuffix(answers[i], "\n"), "\n") {
			fmt.Fprintf(&b, "> %s  \n", line)
		}
	}
	return b.String()
}

// golden compares with a file.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}
