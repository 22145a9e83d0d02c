package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/control"
	"github.com/wardrop-lb/wardrop/explain"
	"github.com/wardrop-lb/wardrop/fleetgen"
	"github.com/wardrop-lb/wardrop/policy/optimal"
	"github.com/wardrop-lb/wardrop/tick"
)

type solveCmd struct {
	File     string `arg:"" optional:"" help:"View: a configuration file with a demand section." type:"path"`
	JSON     bool   `help:"Print the whole plan as JSON: weights, terms in seconds, loads in requests/s."`
	Generate string `help:"Write a random fleet to the standard output instead, like clusters=100,engines=10000,models=20,util=0.95,seed=1." placeholder:"SPEC"`
	Exact    bool   `help:"Keep weights however small: the optimum itself, to compare with other solvers."`
	Trace    bool   `help:"Print the solver's iterations to the standard error."`
	Bench    int    `help:"Solve N times, cold, and print medians as JSON: solve_seconds, pass_seconds (pricing all arcs once), passes (their ratio), gap." placeholder:"N"`
	Compare  string `help:"Compare the objective with the one in this JSON file, {\"objective\": X}; exit 1 beyond 1e-7." type:"path" placeholder:"FILE"`
}

// compareTolerance is the relative difference of objectives that counts as equal.
const compareTolerance = 1e-7

// Validate checks that the flags go together.
func (c *solveCmd) Validate() error {
	if (c.File == "") == (c.Generate == "") {
		return errors.New("give a FILE, or --generate SPEC")
	}
	if c.Bench < 0 {
		return errors.New("--bench: less than 0")
	}
	return nil
}

// Run makes a plan and prints it.
func (c *solveCmd) Run(env *environment) error {
	if c.Generate != "" {
		spec, err := fleetgen.Parse(c.Generate)
		if err != nil {
			return fmt.Errorf("--generate: %w", err)
		}
		return fleetgen.Write(env.stdout, spec.View())
	}
	cfg, err := config.Load(c.File)
	if err != nil {
		return err
	}
	if c.Bench > 0 {
		return benchSolve(env, cfg, c.Bench)
	}
	var o optimal.Options
	if c.Exact {
		problem := tick.Problem(cfg.Policy)
		problem.Floor, problem.Keep = 0, 0
		o.Problem = &problem
	}
	if c.Trace {
		fmt.Fprintf(env.stderr, "component  iteration  objective         products   dual       primal\n")
		o.Trace = func(i optimal.Iteration) {
			fmt.Fprintf(env.stderr, "%9d  %9d  %-16.10g  %-9.2e  %-9.2e  %-9.2e\n", i.Component, i.Number, i.Objective, i.Products, i.DualRes, i.PrimalRes)
		}
	}
	plan, err := control.Solve(cfg, o)
	if err != nil {
		return err
	}
	if c.Compare != "" {
		return c.compare(env, plan.Objective)
	}
	if !c.JSON {
		return explain.WriteTable(env.stdout, plan)
	}
	e := json.NewEncoder(env.stdout)
	e.SetIndent("", "  ")
	return e.Encode(explain.NewPlan(plan))
}

// compare holds the objective against another solver's.
func (c *solveCmd) compare(env *environment, objective float64) error {
	data, err := os.ReadFile(c.Compare)
	if err != nil {
		return err
	}
	var other struct{ Objective *float64 }
	if err := json.Unmarshal(data, &other); err != nil || other.Objective == nil {
		return fmt.Errorf("%s: want {\"objective\": X}", c.Compare)
	}
	difference := (objective - *other.Objective) / math.Abs(*other.Objective)
	fmt.Fprintf(env.stdout, "objective %.12g, other %.12g, relative difference %+.2e\n", objective, *other.Objective, difference)
	if math.Abs(difference) > compareTolerance {
		return fmt.Errorf("the objectives differ by %.2e, more than %.0e", difference, compareTolerance)
	}
	return nil
}
