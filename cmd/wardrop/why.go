package main

import (
	"encoding/json"

	"github.com/wardrop-lb/wardrop/admin"
	"github.com/wardrop-lb/wardrop/config"
)

type whyCmd struct {
	Weight whyWeightCmd `cmd:"" help:"Why the engines of a (cluster, model) have their weights."`
}

type whyWeightCmd struct {
	Cluster string `required:"" help:"Cluster where the requests arrive."`
	Model   string `required:"" help:"Model that they ask for."`
	Engine  string `help:"Explain this engine alone."`
	Admin   string `help:"Admin address of the control plane." default:"127.0.0.1:7601"`
	Config  string `short:"c" help:"Take the admin address from this configuration file." type:"path"`
	JSON    bool   `help:"Print JSON."`
}

// Run asks the control plane and prints the terms and the words.
func (c *whyWeightCmd) Run(env *environment) error {
	if c.Config != "" {
		cfg, err := config.Load(c.Config)
		if err != nil {
			return err
		}
		c.Admin = cfg.Control.Members[0].Admin
	}
	why, err := admin.Client{Base: c.Admin}.WhyWeight(env.ctx, c.Cluster, c.Model, c.Engine)
	if err != nil {
		return err
	}
	if !c.JSON {
		return why.Write(env.stdout)
	}
	e := json.NewEncoder(env.stdout)
	e.SetIndent("", "  ")
	return e.Encode(why)
}
