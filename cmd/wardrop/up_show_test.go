package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFit: on a terminal no line may wrap and none may scroll away, else the
// table is not drawn over but piles up.
func TestFit(t *testing.T) {
	text := "\nHEAD of it\nrow 1\nrow 2\nrow 3\nrow 4\nplan\nload\n"
	require.Equal(t, text, fit(text, 80, 40))
	require.Equal(t, text, fit(text, 80, 9))
	require.Equal(t, text, fit(text, 0, 0), "a size that is not known")
	require.Equal(t, "\nHEAD\nrow \nplan\nload\n", fit(text, 4, 6), "the summary stays")
	require.Equal(t, "\nüüü\n", fit("\nüüüü\n", 3, 9))
	for height := 4; height < 12; height++ {
		got := fit(text, 5, height)
		require.Less(t, strings.Count(got, "\n"), height)
		for line := range strings.Lines(got) {
			require.LessOrEqual(t, len(strings.TrimSuffix(line, "\n")), 5)
		}
	}
}

func TestRedrawGoesBackOverTheLastTable(t *testing.T) {
	const notATerminal = -1
	first, lines := redraw("a\nb\n", 0, notATerminal)
	require.Equal(t, "a\nb\n", first)
	require.Equal(t, 2, lines)
	second, lines := redraw("c\n", lines, notATerminal)
	require.Equal(t, "\x1b[2A\x1b[Jc\n", second)
	require.Equal(t, 1, lines)
}
