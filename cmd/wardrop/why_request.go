package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/wardrop-lb/wardrop/admin"
	"github.com/wardrop-lb/wardrop/config"
)

type whyRequestCmd struct {
	ID     string `arg:"" help:"The x-wardrop-decision header of the answer."`
	Admin  string `help:"Admin address of the data plane that answered." placeholder:"ADDRESS"`
	Config string `short:"c" help:"Ask the data planes of this configuration file, at the admin addresses of its clusters." type:"path"`
	JSON   bool   `help:"Print JSON."`
}

// Run asks the data planes one after the other: only the one that made the decision knows it.
func (c *whyRequestCmd) Run(env *environment) error {
	addresses, err := c.addresses()
	if err != nil {
		return err
	}
	var errs []error
	for _, a := range addresses {
		d, err := admin.Client{Base: a}.Decision(env.ctx, c.ID)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", a, err))
			continue
		}
		if c.JSON {
			return writeJSON(env.stdout, d)
		}
		_, err = fmt.Fprintln(env.stdout, strings.Join(d.Words(), "\n"))
		return err
	}
	return errors.Join(errs...)
}

func (c *whyRequestCmd) addresses() ([]string, error) {
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
	var out []string
	for _, cl := range cfg.Clusters {
		if !strings.HasSuffix(cl.Admin, ":0") {
			out = append(out, cl.Admin)
		}
	}
	if out == nil {
		return nil, fmt.Errorf("%s names no admin address of a cluster: ask with --admin", c.Config)
	}
	return out, nil
}
