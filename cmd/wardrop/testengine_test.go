package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/testengine"
)

// Line by line: none is wrapped.
func TestTestengineHelpListsTheFaults(t *testing.T) {
	_, help, _ := command(t, "testengine", "--help")
	for line := range strings.Lines(testengine.Help) {
		if strings.HasPrefix(line, "  ") {
			require.Contains(t, help, strings.TrimSpace(line))
		}
	}
}
