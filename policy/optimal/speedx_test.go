package optimal_test

import (
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy/optimal"
)

func init() {
	optimal.ViewX = func(multi float64, big bool) *fleet.View {
		s := shape{clusters: 100, engines: 10000, models: 20, regions: 24, seed: 1, util: 0.95, kappa: 0.95, multi: multi}
		if !big {
			s.clusters, s.engines, s.models, s.regions = 50, 2000, 10, 12
		}
		return s.view()
	}
}
