package config

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const placed = `
regions: [{name: eu, coordinates: [50.11, 8.68]}, {name: us, coordinates: [40.71, -74.01]}]
clusters:
  - {name: a, region: eu, distances: {eu: 2ms}}
  - {name: b, region: us}
engines:
  - {name: near, region: eu, models: [demo]}
  - {name: far, region: us, models: [demo]}
`

// TestDistancesByPlaces: what is written counts more, and what is neither written nor
// known by places is a mistake.
func TestDistancesByPlaces(t *testing.T) {
	c, err := Parse("w.yaml", []byte(placed))
	require.NoError(t, err)
	require.NoError(t, c.View().Validate())
	seconds := map[string]float64{}
	for _, d := range c.View().Distances {
		seconds[d.Cluster+" "+d.Region] = d.Seconds
	}
	require.Len(t, seconds, 4)
	require.Equal(t, 0.002, seconds["a eu"])
	require.Equal(t, 0.001, seconds["b us"])
	// Frankfurt to New York is 6,200 km.
	require.InDelta(t, 0.063, seconds["a us"], 0.0005)
	require.InDelta(t, seconds["a us"], seconds["b eu"], 1e-9)
	require.True(t, c.WrittenDistance("a", "eu"))
	require.False(t, c.WrittenDistance("a", "us"))
	require.NoError(t, c.CheckEngine(Engine{Name: "e", URL: "http://10.0.0.1:8000", Region: "us"}))

	for old, want := range map[string][2]string{
		"name: us, ":         {"name: usa, ", `w.yaml:2:58: regions[1].name: no cluster or engine lies in region "usa": did you mean "us"?`},
		"[40.71, -74.01]":    {"[91, -74.01]", `w.yaml:2:76: regions[1].coordinates[0]: 91 is not between -90 and 90`},
		"[50.11, 8.68]":      {"[50.11]", `regions[0].coordinates: want latitude and longitude in degrees, like [50.1, 8.7]`},
		"[50.11":             {"[.nan", `regions[0].coordinates[0]: NaN is not between -90 and 90`},
		"{name: b, region: ": {"{name: b, region: m", `clusters[1].distances: none to region "eu", where engines are: add`},
	} {
		require.Contains(t, placed, old)
		_, err := Parse("w.yaml", []byte(strings.Replace(placed, old, want[0], 1)))
		require.ErrorContains(t, err, want[1])
	}
}

// TestFoundEnginesMayLieWhereRegionsAre, though the file knows none there.
func TestFoundEnginesMayLieWhereRegionsAre(t *testing.T) {
	c, err := Parse("w.yaml", []byte("regions: [{name: eu, coordinates: [50, 8]}, {name: us, coordinates: [40, -74]}]\n"+
		"clusters: [{name: a, region: eu}]\ndiscover: [{file: x.yaml, region: eu}]\n"))
	require.NoError(t, err)
	require.NoError(t, c.CheckEngine(Engine{Name: "e", URL: "http://10.0.0.1:8000", Region: "us"}))
	require.ErrorContains(t, c.CheckEngine(Engine{Name: "e", URL: "http://10.0.0.1:8000", Region: "mars"}), "no distance")
}

// TestGreatCircle is a metric on the earth, and knows its size.
func TestGreatCircle(t *testing.T) {
	require.InDelta(t, math.Pi*earthRadius, greatCircle([]float64{90, 0}, []float64{-90, 123}), 1e-6)
	require.InDelta(t, math.Pi*earthRadius/2, greatCircle([]float64{0, 0}, []float64{0, 90}), 1e-6)
	require.InDelta(t, 10, greatCircle([]float64{0, 179.95}, []float64{0, -179.96}), 0.1, "over the date line")
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) []float64 {
			return []float64{rapid.Float64Range(-90, 90).Draw(t, name), rapid.Float64Range(-180, 180).Draw(t, name)}
		}
		a, b, c := draw("a"), draw("b"), draw("c")
		require.InDelta(t, greatCircle(a, b), greatCircle(b, a), 1e-6)
		require.InDelta(t, 0, greatCircle(a, a), 1e-6)
		require.LessOrEqual(t, greatCircle(a, c), greatCircle(a, b)+greatCircle(b, c)+1e-3)
	})
	c := Config{Regions: []Region{{Name: "x", Coordinates: []float64{1, 2}}}}
	d, ok := c.geography("x", "x")
	require.True(t, ok)
	require.Equal(t, Duration(time.Millisecond), d)
}
