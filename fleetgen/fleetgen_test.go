package fleetgen

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/latency"
)

func TestSpecGivesAValidFleetOfItsSize(t *testing.T) {
	s, err := Parse("clusters=7,engines=60,models=3,util=0.9,multi=0.3,seed=5")
	require.NoError(t, err)
	v := s.View()
	require.NoError(t, v.Validate())
	require.Len(t, v.Clusters, 7)
	require.Len(t, v.Engines, 60)
	require.Len(t, v.Demands, 7*3*3)
	demand, capacity := 0.0, 0.0
	for _, d := range v.Demands {
		demand += d.Rate
	}
	for _, e := range v.Engines {
		capacity += latency.New(e.Profile).Capacity()
	}
	require.InDelta(t, 0.9, demand/capacity, 0.01)
	require.Equal(t, v, s.View(), "the same spec, the same fleet")
	s.Seed++
	require.NotEqual(t, v, s.View())
}

func TestBadSpecs(t *testing.T) {
	for spec, want := range map[string]string{
		"engins=3": `unknown "engins"`, "engines=x": "engines:", "engines=0": "less than 1", "models=9,engines=2": "models:",
		"util=-1": "util:", "kappa=1": "kappa:", "multi=2": "multi:", "seed=-1": "seed:", "util=NaN": "util:",
	} {
		_, err := Parse(spec)
		require.ErrorContains(t, err, want)
	}
}
