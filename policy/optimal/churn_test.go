package optimal_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/wardrop-lb/wardrop/policy"
)

// Unchanged input, or demand that moves by one per cent, moves nothing.
func TestStaysPut(t *testing.T) {
	p := policy.DefaultProblem()
	for _, s := range []shape{
		{clusters: 5, engines: 40, models: 2, regions: 4, seed: 1, util: 0.7},
		{clusters: 20, engines: 100, models: 4, regions: 6, seed: 2, util: 0.8},
		{clusters: 20, engines: 100, models: 4, regions: 6, seed: 3, util: 0.8, multi: 0.3, mixed: true},
		{clusters: 10, engines: 60, models: 3, regions: 5, seed: 4, util: 0.75, kinds: true},
	} {
		v := s.view()
		for i := range v.Engines {
			// A churn price of 40 ms is meant for engines of a few seconds.
			v.Engines[i].Profile.T0 *= 0.3
		}
		cold := solve(t, p, v, nil)
		same := solve(t, p, v, cold)
		assert.Zero(t, changed(cold, same), "%+v unchanged", s)
		for seed := range uint64(5) {
			moved := solve(t, p, drifted(v, 0.01, seed), same)
			assert.Zero(t, changed(same, moved), "%+v moved by 1%%", s)
		}
	}
}

// The same holds for any fleet, overloaded ones too, when nothing changes.
func TestUnchangedInput(t *testing.T) {
	p := policy.DefaultProblem()
	for seed := range uint64(200) {
		v := randomShape(seed).view()
		first := solve(t, p, v, nil)
		second := solve(t, p, v, first)
		third := solve(t, p, v, second)
		assert.Zero(t, changed(first, second), "seed %d", seed)
		assert.Zero(t, changed(second, third), "seed %d", seed)
	}
}
