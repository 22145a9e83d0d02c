package optimal_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/policy"
	"github.com/wardrop-lb/wardrop/policy/optimal"
)

func BenchmarkSolve(b *testing.B) {
	for _, s := range []shape{
		{clusters: 10, engines: 100, models: 1, regions: 6},
		{clusters: 50, engines: 2000, models: 10, regions: 12},
		{clusters: 100, engines: 10000, models: 20, regions: 24},
	} {
		for _, name := range []string{"each", "kinds"} {
			s.kinds, s.seed, s.util = name == "kinds", 1, 0.95
			v := s.view()
			b.Run(fmt.Sprintf("%dx%dx%d/%s", s.clusters, s.engines, s.models, name), func(b *testing.B) {
				policy := optimal.New(optimal.Options{})
				for b.Loop() {
					_, err := policy.Plan(v, nil)
					require.NoError(b, err)
				}
			})
		}
	}
}

// BenchmarkResolve solves again after demand has moved.
func BenchmarkResolve(b *testing.B) {
	for _, s := range []shape{
		{clusters: 10, engines: 100, models: 1, regions: 6},
		{clusters: 50, engines: 2000, models: 10, regions: 12},
		{clusters: 100, engines: 10000, models: 20, regions: 24},
	} {
		for _, name := range []string{"each", "kinds"} {
			s.kinds, s.seed, s.util = name == "kinds", 1, 0.8
			v := s.view()
			last := solve(b, policy.DefaultProblem(), v, nil)
			for _, by := range []float64{0.005, 0.05} {
				w := drifted(v, by, 1)
				b.Run(fmt.Sprintf("%dx%dx%d/%s/%v", s.clusters, s.engines, s.models, name, by), func(b *testing.B) {
					policy := optimal.New(optimal.Options{})
					for b.Loop() {
						_, err := policy.Plan(w, last)
						require.NoError(b, err)
					}
				})
			}
		}
	}
}
