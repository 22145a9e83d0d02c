package main

import (
	"encoding/json"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/control"
	"github.com/wardrop-lb/wardrop/explain"
)

type solveCmd struct {
	File string `arg:"" help:"View: a configuration file with a demand section." type:"path"`
	JSON bool   `help:"Print the whole plan as JSON: weights, terms in seconds, loads in requests/s."`
}

// Run makes a plan and prints it.
func (c *solveCmd) Run(env *environment) error {
	cfg, err := config.Load(c.File)
	if err != nil {
		return err
	}
	plan, err := control.Solve(cfg)
	if err != nil {
		return err
	}
	if !c.JSON {
		return explain.WriteTable(env.stdout, plan)
	}
	e := json.NewEncoder(env.stdout)
	e.SetIndent("", "  ")
	return e.Encode(explain.NewPlan(plan))
}
