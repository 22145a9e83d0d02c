package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
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

// writeView writes a view as a configuration file.
func writeView(w io.Writer, v *fleet.View) error {
	out := &strings.Builder{}
	fmt.Fprintln(out, "clusters:")
	for _, c := range v.Clusters {
		var distances, own []string
		for _, d := range v.Distances {
			switch {
			case d.Cluster != c.Name:
			case d.Engine != "":
				own = append(own, fmt.Sprintf("%s: %s", d.Engine, duration(d.Seconds)))
			default:
				distances = append(distances, fmt.Sprintf("%s: %s", d.Region, duration(d.Seconds)))
			}
		}
		fmt.Fprintf(out, "  - {name: %s, region: %s, distances: {%s}", c.Name, c.Region, strings.Join(distances, ", "))
		if own != nil {
			fmt.Fprintf(out, ", engine_distances: {%s}", strings.Join(own, ", "))
		}
		fmt.Fprintln(out, "}")
	}
	if v.Models != nil {
		fmt.Fprintln(out, "models:")
	}
	for _, m := range v.Models {
		fmt.Fprintf(out, "  - {name: %s, work: %v, token_seconds: %v, slot_seconds: %v, worth: {first_token: %v, decode: %v}}\n",
			m.Name, m.Work, m.TokenSeconds, m.SlotSeconds, m.FirstToken, m.Decode)
	}
	fmt.Fprintln(out, "engines:")
	for _, e := range v.Engines {
		p := e.Profile
		fmt.Fprintf(out, "  - {name: %s, region: %s, models: [%s], profile: {t0: %s, u_max: %v, batch: %v, kappa: %v",
			e.Name, e.Region, strings.Join(e.Models, ", "), duration(p.T0), p.UMax, p.Batch, p.Kappa)
		if v.Models != nil {
			fmt.Fprintf(out, ", first_token: %s, tokens: %v, slots: %v", duration(p.FirstToken), p.Tokens, p.Slots)
		}
		fmt.Fprintln(out, "}}")
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
