package optimal_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy/optimal"
)

// A tick in steady state allocates nothing: demand moves, profiles move, weights
// move, and the plan before the last is given back.
func TestNoAllocations(t *testing.T) {
	s := shape{clusters: 10, engines: 80, models: 4, regions: 4, seed: 1, util: 0.8, multi: 0.2, mixed: true}
	t.Run("plain", func(t *testing.T) { allocateNothing(t, s) })
	s.asks = true
	t.Run("asks", func(t *testing.T) { allocateNothing(t, s) })
	s.clusters, s.engines, s.noise = 4, 140, 0.1
	t.Run("own distances", func(t *testing.T) { allocateNothing(t, s) })
}

func allocateNothing(t *testing.T, s shape) {
	v := s.view()
	p := optimal.New(optimal.Options{Warm: true})
	var views []*fleet.View
	for i := range uint64(8) {
		w := drifted(v, 0.3, i)
		w.Engines = append([]fleet.Engine(nil), v.Engines...)
		w.Engines[i].Profile.T0 *= 1.1
		views = append(views, w)
	}
	var last *fleet.Plan
	i, moved := 0, 0
	step := func() {
		plan, err := p.Plan(views[i%len(views)], last)
		require.NoError(t, err)
		if last != nil {
			moved += changed(last, plan)
		}
		p.Recycle(last)
		last = plan
		i++
	}
	for range 8 * len(views) {
		step()
	}
	moved = 0
	assert.Zero(t, testing.AllocsPerRun(2*len(views), step))
	assert.Positive(t, moved)
}
