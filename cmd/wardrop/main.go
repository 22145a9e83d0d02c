// Command wardrop is a load balancer for LLM inference across clusters and
// regions: all roles in one binary.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/wardrop-lb/wardrop/config"
)

// Exit codes beyond 0.
const (
	exitFailed  = 1
	exitInvalid = 2 // wrong usage, or a configuration that does not validate
)

const description = `Wardrop balances LLM inference across clusters and regions.

An optimizer turns demand, distances and engine capacity into routing weights; a data plane in each cluster routes by them.
Try it with nothing installed:  wardrop up --load`

type cli struct {
	LogLevel slog.Level `help:"Least level to log: debug, info, warn or error." default:"info" env:"WARDROP_LOG_LEVEL"`

	Up         upCmd         `cmd:"" help:"Run everything in one process: a control plane, every cluster's data plane, simulated engines."`
	Control    controlCmd    `cmd:"" help:"Run the control plane."`
	Proxy      proxyCmd      `cmd:"" help:"Run a data plane of one cluster."`
	Relay      relayCmd      `cmd:"" help:"Serve a region what the control plane serves, also while that is away."`
	Collect    collectCmd    `cmd:"" help:"Read the engines of a region where no data plane is near, and report them."`
	Testengine testengineCmd `cmd:"" help:"Run a simulated engine with an OpenAI API and vLLM's metrics."`
	Solve      solveCmd      `cmd:"" help:"Make one plan offline, of a file's expected demand."`
	Sim        simCmd        `cmd:"" help:"Simulate a scenario under several policies and compare them."`
	Why        whyCmd        `cmd:"" help:"Ask a running control plane why."`
	WhatIf     whatIfCmd     `cmd:"" name:"what-if" help:"Ask what plan would follow if engines, demand or distances were different."`
	Advise     adviseCmd     `cmd:"" help:"Ask where another engine would save time, which one idles, which distance hurts."`
	Plans      plansCmd      `cmd:"" help:"List the plans of the last day, or write them whole as lines of JSON."`
	Decisions  decisionsCmd  `cmd:"" help:"Write the decisions that data planes remember, as lines of JSON."`
	Replay     replayCmd     `cmd:"" help:"Make recorded decisions again, offline: each must come out the same."`
	Status     statusCmd     `cmd:"" help:"Show how a running control plane and its data planes are; exit 1 if something is wrong."`
	Engines    enginesCmd    `cmd:"" help:"Show the engines of a running control plane: their state, signals, load."`
	Override   overrideCmd   `cmd:"" help:"Pin what plans must keep to: drain, cap, freeze, policy; let through what is held back; list what is pinned."`
	Drain      drainCmd      `cmd:"" help:"Take an engine out of all plans, or back in: it finishes what it has. The same as override drain."`
	Demand     demandCmd     `cmd:"" help:"Show what arrives where, as a running control plane knows it."`
	Distances  distancesCmd  `cmd:"" help:"Show how far regions are from clusters, measured or configured."`
	Check      checkCmd      `cmd:"" help:"Validate a configuration file; exit 2 if it is wrong."`
}

// environment is what commands need of the process, so that tests can be in its
// place.
type environment struct {
	ctx    context.Context
	stdout io.Writer
	stderr io.Writer
	log    *slog.Logger
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends what the first asked to finish
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run executes a command line and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (code int) {
	var c cli
	exited := false
	parser, err := kong.New(&c, kong.Name("wardrop"), kong.Description(description), kong.UsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 120}),
		kong.Writers(stdout, stderr), kong.Exit(func(status int) { exited, code = true, status }))
	if err != nil {
		panic(err) // the grammar above is wrong
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parser.Parse(args)
	if exited {
		return code
	}
	if err != nil {
		fmt.Fprintf(stderr, "wardrop: %v (see wardrop --help)\n", err)
		return exitInvalid
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: c.LogLevel}))
	err = parsed.Run(&environment{ctx: ctx, stdout: stdout, stderr: stderr, log: log})
	return exitCode(err, stderr)
}

// usageError is a wrong argument that only a file could tell.
type usageError struct{ error }

// exitCode reports an error and says how the process ends.
func exitCode(err error, stderr io.Writer) int {
	if err == nil {
		return 0
	}
	var usage usageError
	if errors.As(err, &usage) {
		fmt.Fprintln(stderr, "wardrop:", usage)
		return exitInvalid
	}
	var problems config.Problems
	if errors.As(err, &problems) {
		fmt.Fprintln(stderr, problems.Error())
		return exitInvalid
	}
	fmt.Fprintln(stderr, "wardrop:", err)
	return exitFailed
}
