package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/wardrop-lb/wardrop/admin"
	"github.com/wardrop-lb/wardrop/history"
	"github.com/wardrop-lb/wardrop/suppose"
)

type whyCmd struct {
	Weight  whyWeightCmd  `cmd:"" help:"Why the engines of a (cluster, model) have their weights."`
	Request whyRequestCmd `cmd:"" help:"How a data plane routed one request, by the x-wardrop-decision header of its answer."`
	Not     whyNotCmd     `cmd:"" help:"Why an engine did not get a request, or does not get traffic."`
	Change  whyChangeCmd  `cmd:"" help:"Why weights changed from one plan to another: which input moved what."`
}

type whyWeightCmd struct {
	Cluster string `required:"" help:"Cluster where the requests arrive."`
	Model   string `required:"" help:"Model that they ask for."`
	Engine  string `help:"Explain this engine alone, and what would have to be different for it to get traffic."`
	adminFlags
	JSON bool `help:"Print JSON."`
}

// Run asks the control plane and prints the terms and the words.
func (c *whyWeightCmd) Run(env *environment) error {
	a, err := c.client(env.ctx)
	if err != nil {
		return err
	}
	return c.ask(env, a)
}

func (c *whyWeightCmd) ask(env *environment, a admin.Client) error {
	why, err := a.WhyWeight(env.ctx, c.Cluster, c.Model, c.Engine)
	if err != nil {
		return err
	}
	if c.JSON {
		return writeJSON(env.stdout, why)
	}
	if err := why.Write(env.stdout); err != nil || c.Engine == "" || why.Engines[0].Weight > 0 {
		return err
	}
	list, err := a.Thresholds(env.ctx, c.Cluster, c.Model, c.Engine)
	if err != nil {
		return err
	}
	for _, t := range list {
		fmt.Fprintln(env.stdout, t.Words)
	}
	return nil
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

type whyChangeCmd struct {
	adminFlags
	From string `help:"The plan before, EPOCH.VERSION as the status shows it. Default: the one recorded before --to." placeholder:"PLAN"`
	To   string `help:"The plan after. Default: the newest." placeholder:"PLAN"`
	Most int    `help:"Show so many weights." default:"20"`
	JSON bool   `help:"Print JSON."`
}

// Run asks which input moved which weight by how much.
func (c *whyChangeCmd) Run(env *environment) error {
	a, err := c.client(env.ctx)
	if err != nil {
		return err
	}
	plans, err := a.Plans(env.ctx)
	if err != nil {
		return err
	}
	if err := c.between(plans.Plans); err != nil {
		return err
	}
	change, err := a.WhyChange(env.ctx, c.From, c.To)
	if err != nil {
		return err
	}
	if c.JSON {
		return writeJSON(env.stdout, change)
	}
	return writeChange(env.stdout, change, c.Most)
}

// between fills in the plans that were not given.
func (c *whyChangeCmd) between(plans []history.Entry) error {
	name := func(i int) string { return planName(&plans[i]) }
	if c.To == "" && len(plans) > 0 {
		c.To = name(len(plans) - 1)
	}
	for i := range plans {
		if c.From == "" && name(i) == c.To {
			c.From = name(max(0, i-1)) // of the first: what was held back since
		}
	}
	if c.From == "" || c.To == "" {
		return errors.New("no plan is recorded yet, or not that one (wardrop plans shows them)")
	}
	return nil
}

func writeChange(w io.Writer, c *suppose.Change, most int) error {
	fmt.Fprintf(w, "from plan %d.%d to %d.%d, %d steps\n\n", c.From[0], c.From[1], c.To[0], c.To[1], c.Steps)
	for _, s := range c.Words {
		fmt.Fprintln(w, s)
	}
	if len(c.Weights) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	list := c.Weights[:min(most, len(c.Weights))]
	if err := writeTable(w, list, []column[suppose.WeightChange]{
		{"CLUSTER", func(x suppose.WeightChange) string { return x.Cluster }},
		{"MODEL", func(x suppose.WeightChange) string { return x.Model }},
		{"ENGINE", func(x suppose.WeightChange) string { return x.Engine }},
		{"BEFORE", func(x suppose.WeightChange) string { return fmt.Sprintf("%.4f", x.Before) }},
		{"AFTER", func(x suppose.WeightChange) string { return fmt.Sprintf("%.4f", x.After) }},
		{"BECAUSE OF", func(x suppose.WeightChange) string {
			var parts []string
			for _, p := range x.Parts {
				parts = append(parts, fmt.Sprintf("%s %+.4f", p.Input, p.Weight))
			}
			return strings.Join(parts, ", ")
		}},
	}); err != nil {
		return err
	}
	if n := len(c.Weights) - len(list); n > 0 {
		fmt.Fprintf(w, "and %d more (--most)\n", n)
	}
	return nil
}
