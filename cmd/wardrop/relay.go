package main

import (
	"context"
	"errors"
	"fmt"
	"google.golang.org/grpc"
	"slices"
	"strings"
	"time"

	"github.com/wardrop-lb/wardrop/admin"
	"github.com/wardrop-lb/wardrop/collect"
	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/relay"
	"github.com/wardrop-lb/wardrop/weights"
)

type relayCmd struct {
	Config   string   `short:"c" required:"" help:"Configuration file: where the control plane is." type:"path"`
	Listen   string   `required:"" help:"gRPC address that data planes, collectors and other relays have for the control plane's." placeholder:"ADDRESS"`
	Admin    string   `help:"HTTP address of /metrics, health and /v1/status." default:"127.0.0.1:0" placeholder:"ADDRESS"`
	Upstream []string `help:"Where it gets its snapshots and reports to, in place of all members of the control plane: another relay. May be given several times." placeholder:"ADDRESS"`
	Cluster  []string `help:"Relay this cluster's snapshots only, or those of a region's collectors (@REGION); may be given several times. Default: all." placeholder:"NAME"`
	Data     string   `help:"Directory of the saved snapshots; empty for none." default:"wardrop-data/relay" placeholder:"DIRECTORY"`
}

// Run relays until it is told to stop.
func (c *relayCmd) Run(env *environment) error {
	cfg, err := config.Load(c.Config)
	if err != nil {
		return err
	}
	for _, name := range c.Cluster {
		if cfg.ClusterByName(name) == nil && !strings.HasPrefix(name, fleet.Collectors("")) {
			return fmt.Errorf("%s has no cluster %q", c.Config, name)
		}
	}
	upstreams := c.Upstream
	if len(upstreams) == 0 { // not proxy.control, which may be this relay
		for _, m := range cfg.Control.Members {
			upstreams = append(upstreams, m.Listen)
		}
	}
	if slices.Contains(upstreams, c.Listen) {
		return usageError{errors.New("a relay cannot be its own upstream: --listen is the control plane's address")}
	}
	conns, hangUp, err := dialAll(upstreams)
	if err != nil {
		return err
	}
	defer hangUp()
	registry := newRegistry()
	r, err := relay.New(relay.Options{
		Upstreams: conns, Clusters: c.Cluster, Instance: collect.NewInstance(), Path: c.Data,
		Reports: true, Registry: registry, Log: env.log,
	})
	if err != nil {
		return err
	}
	wire, err := listen("listen", c.Listen)
	if err != nil {
		return err
	}
	adminListener, err := listen("admin", c.Admin)
	if err != nil {
		return err
	}
	server := grpc.NewServer(weights.ServerOptions()...)
	r.Register(server)
	s := newServers(env.ctx)
	s.grpc("signal and weight paths", wire, server)
	s.http("admin", adminListener, admin.Relay(r, registry), time.Second)
	s.run("relay", func(ctx context.Context) error { r.Run(ctx); return nil })
	fmt.Fprintf(env.stdout, "relay: data planes at %s, admin at http://%s\n", wire.Addr(), adminListener.Addr())
	return s.wait()
}
