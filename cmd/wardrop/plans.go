package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/wardrop-lb/wardrop/admin"
	"github.com/wardrop-lb/wardrop/history"
)

type plansCmd struct {
	adminFlags
	From    string `help:"Only plans from this one on, EPOCH.VERSION." placeholder:"PLAN"`
	Records bool   `help:"Write the plans themselves, a line of JSON each, with the views that they were made of."`
	Output  string `short:"o" help:"Write to this file." placeholder:"FILE" type:"path"`
	JSON    bool   `help:"Print the list as JSON."`
}

// Help says what comes out.
func (*plansCmd) Help() string {
	return `Lists the plans of the last day that are recorded, the oldest first. With --records it writes them whole: demand, distances, engines with their profiles and penalties, the policy's settings, overrides, what was held back, and the plan that came of it.`
}

// Run asks the control plane.
func (c *plansCmd) Run(env *environment) error {
	var from [2]uint64
	if c.From != "" {
		var err error
		if from, err = history.Parse(c.From); err != nil {
			return usageError{fmt.Errorf("--from: %w", err)}
		}
	}
	a, err := c.client(env.ctx)
	if err != nil {
		return err
	}
	list, err := a.PlansFrom(env.ctx, from)
	if err != nil {
		return err
	}
	return writeTo(c.Output, env.stdout, func(out io.Writer) error {
		switch {
		case c.Records:
			return c.records(env, a, list, out)
		case c.JSON:
			return writeJSON(out, admin.Plans{Plans: list})
		}
		for i := range list {
			if _, err := fmt.Fprintf(out, "%s  %s\n", planName(&list[i]), list[i].Time.Local().Format(time.DateTime)); err != nil {
				return err
			}
		}
		return nil
	})
}

func planName(e *history.Entry) string { return fmt.Sprintf("%d.%d", e.Epoch, e.Version) }

// records writes what is kept of each plan. One that is forgotten meanwhile is left out, and said.
func (c *plansCmd) records(env *environment, a admin.Client, list []history.Entry, out io.Writer) error {
	var errs []error
	for i := range list {
		e := &list[i]
		var packed bytes.Buffer
		if err := a.Record(env.ctx, e.Epoch, e.Version, &packed); err != nil {
			errs = append(errs, fmt.Errorf("plan %s: %w", planName(e), err))
			continue
		}
		whole, err := gzip.NewReader(&packed)
		if err == nil {
			_, err = io.Copy(out, whole)
		}
		if err != nil {
			return fmt.Errorf("plan %s: %w", planName(e), err)
		}
	}
	return errors.Join(errs...)
}
