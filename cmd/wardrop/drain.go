package main

import (
	"fmt"

	"github.com/wardrop-lb/wardrop/admin"
	"github.com/wardrop-lb/wardrop/config"
)

type drainCmd struct {
	Engine string `arg:"" help:"Name of the engine."`
	Undo   bool   `help:"Let the engine serve again."`
	Admin  string `help:"Admin address of the control plane." default:"127.0.0.1:7601"`
	Config string `short:"c" help:"Take the admin address from this configuration file." type:"path"`
}

// Run drains an engine, or lets it serve again.
func (c *drainCmd) Run(env *environment) error {
	if c.Config != "" {
		cfg, err := config.Load(c.Config)
		if err != nil {
			return err
		}
		c.Admin = cfg.Control.Members[0].Admin
	}
	if err := (admin.Client{Base: c.Admin}).Drain(env.ctx, c.Engine, !c.Undo); err != nil {
		return err
	}
	if c.Undo {
		fmt.Fprintf(env.stdout, "%s serves again from the next plan on.\n", c.Engine)
		return nil
	}
	fmt.Fprintf(env.stdout, "%s gets nothing new from the next plan on, and finishes what it has. `wardrop engines` shows how much that is; --undo lets it serve again.\n", c.Engine)
	return nil
}
