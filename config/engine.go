package config

import (
	"time"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/signals"
)

// Engine is a model server.
type Engine struct {
	// Name is unique among engines. Required.
	Name string `yaml:"name"`
	// Region is where the engine lies. Required.
	Region string `yaml:"region"`
	// URL is its base URL, http://host:port. Without one, `wardrop up` runs a
	// built-in simulated engine with this profile.
	URL string `yaml:"url"`
	// Kind says how its signals are read: one of signals.Kinds, see
	// docs/configuration.md. Default auto: it is found out.
	Kind string `yaml:"kind"`
	// Metrics is where its metrics page is: a path below its URL, or a URL. Default:
	// where engines of the kind have it.
	Metrics string `yaml:"metrics"`
	// Signals are what its metrics are called, lists of names by one of
	// signals.NameKeys; of kind "generic" alone, and required there.
	Signals map[string][]string `yaml:"signals"`
	// Models are the names of the models it serves. Default: what it says at
	// /v1/models; of one without a URL they are required.
	Models []string `yaml:"models"`
	// Profile is its capacity. Without t0, u_max and batch it is learned.
	Profile Profile `yaml:"profile"`
	// Hardware is what it runs on, by any name: engines of the same hardware and models
	// learn their profiles from each other. Default "".
	Hardware string `yaml:"hardware"`
	// Weight is its weight under the static policy, 0 or more. Default: its capacity.
	Weight float64 `yaml:"weight"`
	// Protocol is "http1", or "h2c" for HTTP/2 without TLS; over https both are
	// offered. Default http1.
	Protocol string `yaml:"protocol"`
	// Drain takes the engine out of all plans: it finishes what it has. Default false.
	Drain bool `yaml:"drain"`
	// Offset is network time beyond the region's distance. Default 0.
	Offset Duration `yaml:"offset"`
}

// The guess that stands until an engine's profile is learned. It is generous: an engine of
// unknown size is never a reason to refuse a request.
const (
	guessT0    = Duration(time.Second)
	guessUMax  = 10_000
	guessBatch = 10_000
)

// Profile is an engine's capacity and latency curve; see docs/configuration.md
// for how to measure it.
type Profile struct {
	// T0 is the latency of a request alone in the engine. Default 1s.
	T0 Duration `yaml:"t0"`
	// UMax is the rate at which compute saturates, requests/s. Default 10000.
	UMax float64 `yaml:"u_max"`
	// Batch is how many requests fit at once. Default 10000.
	Batch float64 `yaml:"batch"`
	// Kappa is the hard cap as a fraction of saturation, above 0, at most 0.95. Default 0.9.
	Kappa float64 `yaml:"kappa"`
	// FirstToken is the part of T0 until the first token. Default 0s, unknown.
	FirstToken Duration `yaml:"first_token"`
	// Spread is how uneven the times that requests stay are, (1+cv^2)/2: it scales the
	// wait near saturation. Above 0, at most 10. Default 1.
	Spread float64 `yaml:"spread"`
	// Tokens is how many KV-cache tokens the engine may hold on average. Default 0, no limit.
	Tokens float64 `yaml:"tokens"`
	// Slots is how many requests the engine may hold on average. Default 0, no limit.
	Slots float64 `yaml:"slots"`
}

// Fleet gives the engine as the fleet's noun.
func (e Engine) Fleet() fleet.Engine {
	return fleet.Engine{
		Name: e.Name, Region: e.Region, URL: e.URL, Kind: e.Kind, Models: e.Models,
		Offset: e.Offset.Seconds(), Weight: e.Weight, Hardware: e.Hardware,
		Learn: e.Profile.T0 == guessT0 && e.Profile.UMax == guessUMax && e.Profile.Batch == guessBatch,
		Profile: fleet.Profile{
			T0: e.Profile.T0.Seconds(), UMax: e.Profile.UMax, Batch: e.Profile.Batch, Kappa: e.Profile.Kappa,
			FirstToken: e.Profile.FirstToken.Seconds(), Spread: e.Profile.Spread, Tokens: e.Profile.Tokens, Slots: e.Profile.Slots,
		},
	}
}

func (e *Engine) setDefaults() {
	set(&e.Kind, signals.KindAuto)
	set(&e.Protocol, "http1")
	set(&e.Profile.T0, guessT0)
	set(&e.Profile.UMax, guessUMax)
	set(&e.Profile.Batch, guessBatch)
	set(&e.Profile.Kappa, 0.9)
}
