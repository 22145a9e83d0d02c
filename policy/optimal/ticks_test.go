package optimal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy"
	"github.com/wardrop-lb/wardrop/policy/certify"
	"github.com/wardrop-lb/wardrop/policy/optimal"
)

// One policy follows a fleet through changes of every sort, with warm starts and
// plans given back: every plan is sound, explained and proven. Set
// WARDROP_INSTANCES for more fleets.
func TestTicks(t *testing.T) {
	p := policy.DefaultProblem()
	for seed := range instances(t, 150) {
		solver := optimal.New(optimal.Options{Warm: true})
		base := randomShape(seed).view()
		var last *fleet.Plan
		for tick := range uint64(8) {
			v := base
			switch tick % 4 {
			case 1:
				v = drifted(base, 0.02, seed+tick)
			case 2:
				v = drifted(base, 0.3, seed+tick)
			case 3:
				v = perturbed(base, seed+tick)
				for i := range v.Engines {
					if (int(seed)+i)%7 == 0 {
						v.Engines[i].Ramp = 0.4
					}
				}
			}
			plan, err := solver.Plan(v, last)
			require.NoError(t, err, "seed %d tick %d", seed, tick)
			cert, err := certify.Check(v, last, plan, p)
			require.NoError(t, err, "seed %d tick %d", seed, tick)
			require.LessOrEqual(t, cert.CapExcess, 1e-9)
			requireServed(t, plan)
			requireExplained(t, v, plan)
			solver.Recycle(last)
			last = plan
		}
	}
}
