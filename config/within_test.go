package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

type outer struct {
	Seed int `yaml:"seed"`
}

// A configuration within another file is one with its defaults, and what else the file
// holds is the caller's.
func TestWithin(t *testing.T) {
	const text = `seed: 7
fleet:
  clusters: [{name: a, region: a, distances: {a: 1ms}}]
  engines: [{name: e, region: a, models: [m]}]
`
	var rest outer
	c, places, err := Within("s.yaml", []byte(text), "fleet", &rest)
	require.NoError(t, err)
	require.Equal(t, 7, rest.Seed)
	require.Equal(t, "optimal", c.Policy.Name)
	require.True(t, places.Has("seed"))
	require.False(t, places.Has("clusters"), "that is the configuration's")
	require.NoError(t, places.Err())
	places.Fail("seed", "not %d", 7)
	require.EqualError(t, places.Err(), "s.yaml:1:7: seed: not 7")

	c, _, err = Within("s.yaml", []byte("seed: 7\n"), "fleet", &rest)
	require.NoError(t, err)
	require.Nil(t, c)
}

// Mistakes of both are found at once, each at its place in the file.
func TestWithinNamesThePlace(t *testing.T) {
	for text, want := range map[string]string{
		"": "s.yaml:1:1: the file is empty",
		"seed: 1\nfleet: {engines: [{name: e, region: a, models: [m]}]}\n": "s.yaml:2:8: clusters: none",
		"seed: x\nfleet:\n  clusters: [{name: a}]\n":                       "s.yaml:1:7: seed: want a whole number, got \"x\"\ns.yaml:3:3: engines: none",
		"sed: 1\n": `s.yaml:1:1: unknown key "sed"`,
		"seed: 1\nfleet:\n  clusters: [{name: a, regoin: a}]\n": `s.yaml:3:24: unknown key "regoin" in clusters[0]`,
	} {
		var rest outer
		c, places, err := Within("s.yaml", []byte(text), "fleet", &rest)
		require.ErrorContains(t, err, want)
		require.Nil(t, c)
		require.Nil(t, places)
	}
}
