package main

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"time"

	"github.com/wardrop-lb/wardrop/admin"
	"github.com/wardrop-lb/wardrop/proxy"
)

type decisionsCmd struct {
	planeFlags
	Model  string        `help:"Only requests for this model, or alias."`
	Engine string        `help:"Only those that tried this engine, or passed it over."`
	Kept   string        `help:"Only those recorded for this reason: ${enum}." enum:"error,retry,slow,sample,all" default:"all"`
	Since  time.Duration `help:"Only those that came in this time until now." placeholder:"DURATION"`
	Replay bool          `help:"Write the weights before them that they were made by, for wardrop replay."`
	Output string        `short:"o" help:"Write to this file." placeholder:"FILE" type:"path"`
}

// Help says what comes out.
func (*decisionsCmd) Help() string {
	return `Writes the decisions that data planes remember, as lines of JSON: {"decision": {...}}, the oldest of each data plane first. Errors, retries and slow requests are always remembered, others as a sample of proxy.record_rate a second.

  wardrop decisions -c fleet.yaml --kept error --since 10m
  wardrop decisions -c fleet.yaml --replay -o decisions.jsonl && wardrop replay decisions.jsonl`
}

// Run asks all data planes that are named; it is an error if one does not answer.
func (c *decisionsCmd) Run(env *environment) error {
	addresses, err := c.addresses()
	if err != nil {
		return err
	}
	wanted := url.Values{"model": {c.Model}, "engine": {c.Engine}}
	if c.Kept != "all" {
		wanted.Set("kept", c.Kept)
	}
	if c.Since > 0 {
		wanted.Set("since", c.Since.String())
	}
	if c.Replay {
		wanted.Set("replay", "true")
	}
	return writeTo(c.Output, env.stdout, func(out io.Writer) error {
		var errs []error
		for _, a := range addresses {
			if err := (admin.Client{Base: a}).Decisions(env.ctx, wanted, out); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", a, err))
			}
		}
		return errors.Join(errs...)
	})
}

type replayCmd struct {
	File string `arg:"" help:"What wardrop decisions --replay wrote; - reads the standard input."`
	All  bool   `help:"Show every decision, not only those that do not come out the same."`
}

// Help says what it proves.
func (*replayCmd) Help() string {
	return `Makes recorded decisions again, offline: by the code that made them, the weights that were in force, and what they saw of the engines. Each must come out the same. The exit code is 1 if one does not, or if the file holds no weights.`
}

// Run replays the file and counts.
func (c *replayCmd) Run(env *environment) error {
	if c.File == "-" {
		return c.replay(os.Stdin, env.stdout)
	}
	file, err := os.Open(c.File)
	if err != nil {
		return err
	}
	return errors.Join(c.replay(file, env.stdout), file.Close())
}

func (c *replayCmd) replay(in io.Reader, out io.Writer) error {
	counts := map[error]int{}
	same, different := 0, 0
	err := proxy.Replay(in, func(r proxy.Replayed) {
		why := r.Why()
		switch {
		case r.Err == nil:
			same++
			if c.All {
				fmt.Fprintf(out, "%s: %s again\n", r.Decision.ID, r.Picked)
			}
		case why != nil:
			counts[why]++
			if c.All {
				fmt.Fprintf(out, "%s: %v\n", r.Decision.ID, why)
			}
		default:
			different++
			fmt.Fprintf(out, "%s: %v\n", r.Decision.ID, r.Err)
		}
	})
	if err != nil {
		return fmt.Errorf("%s: %w", c.File, err)
	}
	fmt.Fprintf(out, "%d decisions made again: %d came out the same, %d did not\n", same+different, same, different)
	for _, why := range proxy.NotReplayed {
		if counts[why] > 0 {
			fmt.Fprintf(out, "%d cannot be made again: %v\n", counts[why], why)
		}
	}
	if same+different == 0 && counts[proxy.ErrNoTable] > 0 {
		return errors.New("none could be made again: wardrop decisions --replay writes the weights too")
	}
	if different > 0 {
		return fmt.Errorf("%d of %d decisions came out otherwise", different, same+different)
	}
	return nil
}
