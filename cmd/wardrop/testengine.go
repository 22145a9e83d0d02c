package main

import (
	"fmt"
	"time"

	"github.com/wardrop-lb/wardrop/enginemodel"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/testengine"
)

type testengineCmd struct {
	Listen string        `help:"Address to serve on." default:"127.0.0.1:9000"`
	Name   string        `help:"Name in the x-engine header." default:"testengine"`
	Model  []string      `help:"Model to serve; may be given several times." default:"demo"`
	T0     time.Duration `name:"t0" help:"Latency of a request alone." default:"200ms"`
	UMax   float64       `help:"Requests per second at which compute saturates." default:"125"`
	Batch  float64       `help:"Requests that fit at once." default:"200"`
	Prompt int           `help:"Prompt tokens of the request that T0 and UMax describe." default:"64"`
	Output int           `help:"Output tokens of that request, and of requests that set no maximum." default:"16"`
	Seed   uint64        `help:"Decides the words of the answers."`
}

// Help lists the faults.
func (*testengineCmd) Help() string { return testengine.Help }

// Run serves the engine until it is told to stop.
func (c *testengineCmd) Run(env *environment) error {
	profile := fleet.Profile{T0: c.T0.Seconds(), UMax: c.UMax, Batch: c.Batch, Kappa: 0.9}
	if err := profile.Validate(); err != nil {
		return err
	}
	e, err := testengine.New(testengine.Config{
		Name: c.Name, Models: c.Model, Seed: c.Seed, OutputTokens: c.Output,
		Params: enginemodel.FromProfile(profile, c.Prompt, c.Output),
	})
	if err != nil {
		return err
	}
	defer e.Close()
	if err := e.Start(c.Listen); err != nil {
		return err
	}
	fmt.Fprintf(env.stdout, "test engine %s: OpenAI requests at %s/v1, metrics at %s/metrics, faults at %s/faults\n", c.Name, e.URL(), e.URL(), e.URL())
	<-env.ctx.Done()
	return nil
}
