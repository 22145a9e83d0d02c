package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/wardrop-lb/wardrop/admin"
	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/proxy"
)

// planeFlags name data planes.
type planeFlags struct {
	Admin  string `help:"Admin address of the data plane." placeholder:"ADDRESS"`
	Config string `short:"c" help:"Ask the data planes of this configuration file, at the admin addresses of its clusters." type:"path"`
}

type whyRequestCmd struct {
	ID string `arg:"" help:"The x-wardrop-decision header of the answer."`
	planeFlags
	JSON bool `help:"Print JSON."`
}

// Run asks the data planes one after the other: only the one that made the decision knows it.
func (c *whyRequestCmd) Run(env *environment) error {
	d, err := c.decision(env, c.ID)
	if err != nil {
		return err
	}
	if c.JSON {
		return writeJSON(env.stdout, d)
	}
	_, err = fmt.Fprintln(env.stdout, strings.Join(d.Words(), "\n"))
	return err
}

func (c *planeFlags) decision(env *environment, id string) (*proxy.Decision, error) {
	addresses, err := c.addresses()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, a := range addresses {
		d, err := admin.Client{Base: a}.Decision(env.ctx, id)
		if err == nil {
			return d, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", a, err))
	}
	return nil, errors.Join(errs...)
}

type whyNotCmd struct {
	ID      string `arg:"" optional:"" help:"The x-wardrop-decision header of an answer. Without it: why the engine gets no traffic, or how much, of --cluster and --model."`
	Engine  string `required:"" help:"The engine that was not picked."`
	Cluster string `help:"Cluster where the requests arrive."`
	Model   string `help:"Model that they ask for."`
	Admin   string `help:"Admin address: with an ID of the data plane that answered, else of the control plane." placeholder:"ADDRESS"`
	Config  string `short:"c" help:"Take the admin addresses from this configuration file." type:"path"`
	JSON    bool   `help:"Print JSON."`
}

// Run asks the data plane for the decision, or the control plane for the weight.
func (c *whyNotCmd) Run(env *environment) error {
	if c.ID == "" {
		return c.weight(env)
	}
	planes := planeFlags{Admin: c.Admin, Config: c.Config}
	d, err := planes.decision(env, c.ID)
	if err != nil {
		return err
	}
	words := d.WhyNot(c.Engine)
	if c.JSON {
		return writeJSON(env.stdout, map[string]any{"id": d.ID, "engine": c.Engine, "picked": d.Picked, "words": words})
	}
	_, err = fmt.Fprintln(env.stdout, strings.Join(words, "\n"))
	return err
}

func (c *whyNotCmd) weight(env *environment) error {
	if c.Cluster == "" || c.Model == "" {
		return usageError{errors.New("of which requests? Give the ID of a decision, or --cluster and --model")}
	}
	members := adminFlags{Admin: cmp.Or(c.Admin, defaultAdmin), Config: c.Config}
	a, err := members.client(env.ctx)
	if err != nil {
		return err
	}
	ask := whyWeightCmd{Cluster: c.Cluster, Model: c.Model, Engine: c.Engine, JSON: c.JSON}
	return ask.ask(env, a)
}

func (c *planeFlags) addresses() ([]string, error) {
	if c.Admin != "" {
		return []string{c.Admin}, nil
	}
	if c.Config == "" {
		return nil, usageError{errors.New("whom shall I ask? --admin ADDRESS of the data plane, or -c FILE")}
	}
	cfg, err := config.Load(c.Config)
	if err != nil {
		return nil, err
	}
	out := cfg.DataPlaneAdmins()
	if out == nil {
		return nil, fmt.Errorf("%s names no admin address of a cluster: ask with --admin", c.Config)
	}
	return out, nil
}
