package optimal_test

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy"
	"github.com/wardrop-lb/wardrop/policy/optimal"
)

// sized is a fleet of 20 models at 95 % of its caps: 10,000 engines in 24 regions
// and 100 clusters, or 2,000 in 16 and 50.
func sized(engines int, multi float64) *fleet.View { return sizedShape(engines, multi).view() }

func sizedShape(engines int, multi float64) shape {
	s := shape{clusters: 100, engines: engines, models: 20, regions: 24, seed: 1, util: 0.95, kappa: 0.95, multi: multi}
	if engines <= 2000 {
		s.clusters, s.regions = 50, 16
	}
	return s
}

// workers runs jobs on n goroutines.
func workers(n int) func(int, func(int)) {
	return func(jobs int, job func(int)) {
		next := make(chan int, jobs)
		for i := range jobs {
			next <- i
		}
		close(next)
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				for i := range next {
					job(i)
				}
			})
		}
		wg.Wait()
	}
}

// stopwatch is how long the stages of one Plan took, in seconds.
type stopwatch struct {
	last time.Time
	took [4]float64
}

func (w *stopwatch) start() { w.last, w.took = time.Now(), [4]float64{} }

func (w *stopwatch) stage(s optimal.Stage) {
	now := time.Now()
	w.took[s] += now.Sub(w.last).Seconds()
	w.last = now
}

func (w *stopwatch) tick() float64 { return w.took[0] + w.took[1] + w.took[2] + w.took[3] }

// rig solves one view again and again.
type rig struct {
	watch  stopwatch
	policy *optimal.Policy
	solve  []float64
	tick   []float64
	gap    float64
}

func newRig(o optimal.Options) *rig {
	r := &rig{}
	o.Stage = r.watch.stage
	r.policy = optimal.New(o)
	return r
}

func (r *rig) run(b require.TestingT, view *fleet.View, last *fleet.Plan) {
	r.watch.start()
	plan, err := r.policy.Plan(view, last)
	require.NoError(b, err)
	r.solve = append(r.solve, r.watch.took[optimal.Solved])
	r.tick = append(r.tick, r.watch.tick())
	r.gap = max(r.gap, plan.Gap)
	r.policy.Recycle(plan)
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[len(x)/2]
}

// BenchmarkSpeed measures the whole of the speed table in one run, all in turn,
// so that the ratios hold whatever else the machine does.
func BenchmarkSpeed(b *testing.B) {
	small, large, multi := sized(2000, 0), sized(10000, 0), sized(10000, 0.2)
	pricer := optimal.NewPricer(large)
	price := make([]float64, len(large.Engines))
	free := policy.DefaultProblem()
	free.Lambda = 0
	cold, two, grown, both := newRig(optimal.Options{}), newRig(optimal.Options{Run: workers(2)}), newRig(optimal.Options{}), newRig(optimal.Options{})
	warm, again := newRig(optimal.Options{Problem: &free, Warm: true}), newRig(optimal.Options{Problem: &free})
	last, err := optimal.New(optimal.Options{}).Plan(large, nil)
	require.NoError(b, err)
	churn := newRig(optimal.Options{Warm: true})
	for _, r := range []*rig{cold, two, warm, again} {
		r.run(b, large, nil)
	}
	grown.run(b, small, nil)
	both.run(b, multi, nil)
	churn.run(b, large, last)
	noisy := sizedShape(10000, 0)
	noisy.noise = 0.03
	apart, own := noisy.view(), newRig(optimal.Options{})
	own.run(b, apart, nil)
	for _, r := range []*rig{cold, two, warm, again, grown, both, churn, own} {
		r.solve, r.tick, r.gap = nil, nil, 0
	}
	var passes []float64
	round := uint64(0)
	for b.Loop() {
		round++
		at := time.Now()
		for range 5 {
			pricer.Pass(price)
		}
		passes = append(passes, time.Since(at).Seconds()/5)
		cold.run(b, large, nil)
		two.run(b, large, nil)
		grown.run(b, small, nil)
		both.run(b, multi, nil)
		own.run(b, apart, nil)
		moved := shifted(large, 0.01, round)
		warm.run(b, moved, nil)
		again.run(b, moved, nil)
		churn.run(b, drifted(large, 0.2, round), last)
	}
	pass, solve := median(passes), median(cold.solve)
	b.ReportMetric(0, "ns/op")
	for _, m := range []struct {
		value float64
		unit  string
	}{
		{1e3 * pass, "ms/pass"}, {1e3 * solve, "ms/solve"}, {solve / pass, "passes"}, {cold.gap, "gap"},
		{solve / median(two.solve), "two-workers"}, {solve / median(grown.solve), "growth"},
		{median(both.solve) / solve, "multi-model"}, {median(warm.solve) / median(again.solve), "warm/cold"},
		{median(cold.tick) / solve, "tick/solve"}, {median(churn.tick) / median(churn.solve), "churn-tick/solve"},
		{median(churn.solve) / solve, "churn/cold"}, {median(own.solve) / solve, "own-distances"}, {own.gap, "own-gap"},
	} {
		b.ReportMetric(m.value, m.unit)
	}
}

// BenchmarkTick is a whole tick in steady state: build, solve, certify, snap.
func BenchmarkTick(b *testing.B) {
	for _, engines := range []int{2000, 10000} {
		for _, by := range []float64{0, 0.01, 0.2} {
			v := sized(engines, 0)
			b.Run(fmt.Sprintf("%d/%v", engines, by), func(b *testing.B) {
				p := optimal.New(optimal.Options{Warm: true})
				last, err := p.Plan(v, nil)
				require.NoError(b, err)
				var views []*fleet.View
				for i := range uint64(4) {
					views = append(views, drifted(v, by, i))
				}
				step := func(i int) {
					plan, err := p.Plan(views[i%4], last)
					require.NoError(b, err)
					p.Recycle(last)
					last = plan
				}
				for i := range 8 {
					step(i)
				}
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					step(i)
					i++
				}
				require.False(b, math.IsNaN(last.Gap))
			})
		}
	}
}
