package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/wardrop-lb/wardrop/suppose"
)

type whatIfCmd struct {
	adminFlags
	Drain    []string `help:"An engine gets nothing." placeholder:"ENGINE"`
	Lose     []string `help:"A region's engines are gone." placeholder:"REGION"`
	Demand   []string `help:"The demand of a cluster for a model is so many times what it is. Either name may be * for all." placeholder:"CLUSTER/MODEL=FACTOR"`
	Add      []string `help:"A region has so many more engines for a model, like those that it has." placeholder:"REGION/MODEL=NUMBER"`
	Distance []string `help:"The round trip from a cluster to a region is so long." placeholder:"CLUSTER/REGION=TIME"`
	Most     int      `help:"Show so many weights." default:"20"`
	JSON     bool     `help:"Print JSON."`
}

// Help shows what can be asked.
func (*whatIfCmd) Help() string {
	return `All changes are supposed at once; nothing is changed. For example:
  wardrop what-if --lose us
  wardrop what-if --demand 'europe/*=2' --add eu/llama-3.1-8b=4
  wardrop what-if --drain us-1 --distance europe/us=60ms`
}

// Run asks for the plan that would follow.
func (c *whatIfCmd) Run(env *environment) error {
	changes, err := c.changes()
	if err != nil {
		return usageError{err}
	}
	a, err := c.client(env.ctx)
	if err != nil {
		return err
	}
	o, err := a.WhatIf(env.ctx, *changes)
	if err != nil {
		return err
	}
	if c.JSON {
		return writeJSON(env.stdout, o)
	}
	return writeOutcome(env.stdout, o, c.Most)
}

func (c *whatIfCmd) changes() (*suppose.Changes, error) {
	out := &suppose.Changes{Drain: c.Drain, Lose: c.Lose}
	var errs []error
	for _, s := range c.Demand {
		cluster, model, value, err := split(s, "CLUSTER/MODEL=FACTOR")
		factor, err2 := strconv.ParseFloat(strings.TrimPrefix(value, "x"), 64)
		errs = append(errs, of("--demand", s, err, err2))
		out.Demand = append(out.Demand, suppose.DemandChange{Cluster: all(cluster), Model: all(model), Factor: factor})
	}
	for _, s := range c.Add {
		region, model, value, err := split(s, "REGION/MODEL=NUMBER")
		n, err2 := strconv.Atoi(value)
		errs = append(errs, of("--add", s, err, err2))
		out.Add = append(out.Add, suppose.AddChange{Region: region, Model: model, Engines: n})
	}
	for _, s := range c.Distance {
		cluster, region, value, err := split(s, "CLUSTER/REGION=TIME")
		d, err2 := time.ParseDuration(value)
		errs = append(errs, of("--distance", s, err, err2))
		out.Distance = append(out.Distance, suppose.DistanceChange{Cluster: cluster, Region: region, Seconds: d.Seconds()})
	}
	if out.Empty() {
		errs = append(errs, errors.New("nothing is supposed to be different: see --help"))
	}
	return out, errors.Join(errs...)
}

func of(flag, value string, errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s %s: %w", flag, value, err)
	}
	return nil
}

// split takes A/B=VALUE apart. Models' names may hold slashes.
func split(s, want string) (a, b, value string, err error) {
	names, value, ok := strings.Cut(s, "=")
	a, b, ok2 := strings.Cut(names, "/")
	if !ok || !ok2 || a == "" || b == "" || value == "" {
		return "", "", "0", fmt.Errorf("write it %s", want)
	}
	return a, b, value, nil
}

func all(name string) string {
	if name == "*" {
		return ""
	}
	return name
}

func writeOutcome(w io.Writer, o *suppose.Outcome, most int) error {
	for _, s := range o.Words {
		fmt.Fprintln(w, s)
	}
	fmt.Fprintln(w)
	type line struct{ what, before, after string }
	lines := []line{
		{"requests/s admitted", fmt.Sprintf("%.4g", o.Before.Admitted), fmt.Sprintf("%.4g", o.After.Admitted)},
		{"mean time", took(o.Before.Seconds), took(o.After.Seconds)},
		{"of it network", took(o.Before.Network), took(o.After.Network)},
		{"fullest engine", fullest(o.Before), fullest(o.After)},
	}
	for _, priority := range []string{"critical", "standard", "batch"} {
		if o.Before.Shed[priority] > 0 || o.After.Shed[priority] > 0 {
			lines = append(lines, line{"refused, " + priority, fmt.Sprintf("%.4g/s", o.Before.Shed[priority]), fmt.Sprintf("%.4g/s", o.After.Shed[priority])})
		}
	}
	if err := writeTable(w, lines, []column[line]{
		{"", func(l line) string { return l.what }}, {"NOW", func(l line) string { return l.before }}, {"THEN", func(l line) string { return l.after }},
	}); err != nil {
		return err
	}
	if len(o.Moves) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	list := o.Moves[:min(most, len(o.Moves))]
	if err := writeTable(w, list, []column[suppose.Move]{
		{"CLUSTER", func(m suppose.Move) string { return m.Cluster }},
		{"MODEL", func(m suppose.Move) string { return m.Model }},
		{"ENGINE", func(m suppose.Move) string { return m.Engine }},
		{"NOW", func(m suppose.Move) string { return fmt.Sprintf("%.4f", m.Before) }},
		{"THEN", func(m suppose.Move) string { return fmt.Sprintf("%.4f", m.After) }},
		{"REQ/S", func(m suppose.Move) string { return fmt.Sprintf("%+.4g", m.Rate) }},
	}); err != nil {
		return err
	}
	if n := len(o.Moves) - len(list); n > 0 {
		fmt.Fprintf(w, "and %d more (--most)\n", n)
	}
	return nil
}

func took(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(100 * time.Microsecond).String()
}

func fullest(t suppose.Totals) string {
	if t.Fullest == "" {
		return ""
	}
	return fmt.Sprintf("%s, %.0f %%", t.Fullest, 100*t.Utilisation)
}

type adviseCmd struct {
	adminFlags
	JSON bool `help:"Print JSON."`
}

// Run asks what would help.
func (c *adviseCmd) Run(env *environment) error {
	a, err := c.client(env.ctx)
	if err != nil {
		return err
	}
	advice, err := a.Advice(env.ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return writeJSON(env.stdout, advice)
	}
	return writeAdvice(env.stdout, advice)
}

func writeAdvice(w io.Writer, a *suppose.Advice) error {
	for _, x := range a.Add {
		fmt.Fprintln(w, x.Words)
	}
	if len(a.Add) == 0 {
		fmt.Fprintln(w, "Nowhere would another engine save time worth a word.")
	}
	for _, x := range a.Idle {
		fmt.Fprintln(w, x.Words)
	}
	for _, x := range a.Distances {
		fmt.Fprintln(w, x.Words)
	}
	fmt.Fprintln(w)
	return writeTable(w, a.Replicas, []column[suppose.Replicas]{
		{"MODEL", func(r suppose.Replicas) string { return r.Model }},
		{"REGION", func(r suppose.Replicas) string { return r.Region }},
		{"ENGINES", func(r suppose.Replicas) string { return strconv.Itoa(r.Engines) }},
		{"DESIRED", func(r suppose.Replicas) string { return strconv.Itoa(r.Desired) }},
		{"REQ/S", func(r suppose.Replicas) string { return fmt.Sprintf("%.4g", r.Load) }},
	})
}
