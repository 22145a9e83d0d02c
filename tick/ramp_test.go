package tick

import (
	"testing"

	"github.com/stretchr/testify/require"

	pb "github.com/wardrop-lb/wardrop/api/wardropv1"
	"github.com/wardrop-lb/wardrop/fleet"
)

// TestColdEnginesRamp: an engine that is new, back or restarted gets to its whole
// capacity in steps; those that were there when the leader began do not.
func TestColdEnginesRamp(t *testing.T) {
	var r ramps
	ramp := func(incarnation uint64, names ...string) []float64 {
		v := &fleet.View{}
		readings := map[string]*pb.Reading{"a": {Incarnation: incarnation}}
		for _, n := range names {
			v.Engines = append(v.Engines, fleet.Engine{Name: n})
		}
		r.apply(v, readings)
		var out []float64
		for _, e := range v.Engines {
			out = append(out, e.Ramp)
		}
		return out
	}
	require.Equal(t, []float64{0, 0}, ramp(0, "a", "b"), "a new leader is no reason to move traffic")
	require.Equal(t, []float64{0, 0, 0.1}, ramp(7, "a", "b", "new"))
	require.Equal(t, []float64{0, 0, 0.2}, ramp(7, "a", "b", "new"))
	require.Equal(t, []float64{0, 0.3}, ramp(7, "a", "new"))
	require.Equal(t, []float64{0, 0.1, 0.4}, ramp(7, "a", "b", "new"), "b was away")
	require.Equal(t, 0.1, ramp(8, "a", "b", "new")[0], "a was restarted")
	for range rampTicks {
		ramp(8, "a", "b", "new")
	}
	require.Equal(t, []float64{0, 0, 0}, ramp(8, "a", "b", "new"))
}
