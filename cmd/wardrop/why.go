package main

import (
	"encoding/json"
)

type whyCmd struct {
	Weight whyWeightCmd `cmd:"" help:"Why the engines of a (cluster, model) have their weights."`
}

type whyWeightCmd struct {
	Cluster string `required:"" help:"Cluster where the requests arrive."`
	Model   string `required:"" help:"Model that they ask for."`
	Engine  string `help:"Explain this engine alone."`
	adminFlags
	JSON bool `help:"Print JSON."`
}

// Run asks the control plane and prints the terms and the words.
func (c *whyWeightCmd) Run(env *environment) error {
	a, err := c.client(env.ctx)
	if err != nil {
		return err
	}
	why, err := a.WhyWeight(env.ctx, c.Cluster, c.Model, c.Engine)
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
