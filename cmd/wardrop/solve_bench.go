package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/control"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/policy/optimal"
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
	problem := control.Problem(cfg.Policy)
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

// writeView writes a view as a configuration file.
func writeView(w io.Writer, v *fleet.View) error {
	out := &strings.Builder{}
	fmt.Fprintln(out, "clusters:")
	for _, c := range v.Clusters {
		var distances []string
		for _, d := range v.Distances {
			if d.Cluster == c.Name {
				distances = append(distances, fmt.Sprintf("%s: %s", d.Region, duration(d.Seconds)))
			}
		}
		fmt.Fprintf(out, "  - {name: %s, region: %s, distances: {%s}}\n", c.Name, c.Region, strings.Join(distances, ", "))
	}
	fmt.Fprintln(out, "engines:")
	for _, e := range v.Engines {
		fmt.Fprintf(out, "  - {name: %s, region: %s, models: [%s], profile: {t0: %s, u_max: %v, batch: %v, kappa: %v}}\n",
			e.Name, e.Region, strings.Join(e.Models, ", "), duration(e.Profile.T0), e.Profile.UMax, e.Profile.Batch, e.Profile.Kappa)
	}
	fmt.Fprintln(out, "demand:")
	for _, d := range v.Demands {
		fmt.Fprintf(out, "  - {cluster: %s, model: %s, priority: %s, rate: %v}\n", d.Cluster, d.Model, d.Priority, d.Rate)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func duration(seconds float64) time.Duration {
	return time.Duration(seconds*1e6+0.5) * time.Microsecond
}
