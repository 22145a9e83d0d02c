package main

import (
	"fmt"

	"github.com/wardrop-lb/wardrop/config"
)

type checkCmd struct {
	File string `arg:"" help:"Configuration file." type:"path"`
}

// Run validates the file and says what is in it.
func (c *checkCmd) Run(env *environment) error {
	cfg, err := config.Load(c.File)
	if err != nil {
		return err
	}
	fmt.Fprintf(env.stdout, "%s is valid: %d clusters, %d engines, policy %s\n", c.File, len(cfg.Clusters), len(cfg.Engines), cfg.Policy.Name)
	return nil
}
