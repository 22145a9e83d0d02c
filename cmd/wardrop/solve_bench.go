package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/policy/optimal"
	"github.com/wardrop-lb/wardrop/tick"
)

// solveBench is what `solve --bench` prints.
type solveBench struct {
	SolveSeconds float64 `json:"solve_seconds"`
	TickSeconds  float64 `json:"tick_seconds"` // reading, writing and certifying included
	PassSeconds  float64 `json:"pass_seconds"`
	Passes       float64 `json:"passes"`
	Gap          float64 `json:"gap"`
	Arcs         int     `json:"arcs"`
}

// benchSolve solves n times, each time as if for the first, and prices all arcs
// once beside each.
func benchSolve(env *environment, cfg *config.Config, n int) error {
	view := cfg.View()
	problem := tick.Problem(cfg.Policy)
	var solve, tick, pass, passes, gaps []float64
	began, solved := time.Now(), 0.0
	policy := optimal.New(optimal.Options{Problem: &problem, Stage: func(s optimal.Stage) {
		now := time.Now()
		if s == optimal.Solved {
			solved += now.Sub(began).Seconds()
		}
		began = now
	}})
	pricer := optimal.NewPricer(view)
	price := make([]float64, len(view.Engines))
	for range n + 1 {
		start := time.Now()
		began, solved = start, 0
		plan, err := policy.Plan(view, nil)
		if err != nil {
			return fmt.Errorf("solve: %w", err)
		}
		tick, solve, gaps = append(tick, time.Since(start).Seconds()), append(solve, solved), append(gaps, plan.Gap)
		policy.Recycle(plan)
		start = time.Now()
		pricer.Pass(price)
		pass = append(pass, time.Since(start).Seconds())
		passes = append(passes, solved/pass[len(pass)-1])
	}
	median := func(x []float64) float64 {
		x = slices.Sorted(slices.Values(x[1:])) // the first run makes the memory that the others use
		return x[len(x)/2]
	}
	return json.NewEncoder(env.stdout).Encode(solveBench{median(solve), median(tick), median(pass), median(passes), median(gaps), pricer.Arcs()})
}
