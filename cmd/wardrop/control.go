package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/wardrop-lb/wardrop/admin"
	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/control"
	"github.com/wardrop-lb/wardrop/dashboard"
	"github.com/wardrop-lb/wardrop/discover"
	"github.com/wardrop-lb/wardrop/discover/kube"
	"github.com/wardrop-lb/wardrop/history"
	"github.com/wardrop-lb/wardrop/weights"
)

type controlCmd struct {
	Config string `short:"c" required:"" help:"Configuration file; it is reloaded when it changes." type:"path"`
	Member string `help:"Which of control.members this process is; needed where there are several." placeholder:"NAME"`
	Join   bool   `help:"Be taken in by the members that run: for one that is new, or has lost its data. A member with data starts as it would without."`
}

// Run serves the control plane until it is told to stop.
func (c *controlCmd) Run(env *environment) error {
	cfg, err := config.Load(c.Config)
	if err != nil {
		return err
	}
	self, err := cfg.Control.Member(c.Member)
	if err != nil {
		return usageError{err}
	}
	wire, err := listen("control.listen", self.Listen)
	if err != nil {
		return err
	}
	adminListener, err := listen("control.admin", self.Admin)
	if err != nil {
		return err
	}
	st, err := openStore(env, &cfg.Control, self, c.Join)
	if err != nil {
		return err
	}
	defer func() {
		if err := st.Close(); err != nil {
			env.log.Warn("store not closed", "error", err)
		}
	}()
	var others []string
	var histories []history.Source
	for _, m := range cfg.Control.Members {
		if m.Name != self.Name {
			others = append(others, m.Listen)
			histories = append(histories, admin.Client{Base: m.Admin})
		}
	}
	peers, hangUp, err := dialAll(others)
	if err != nil {
		return err
	}
	defer hangUp()
	kept, err := history.Open(filepath.Join(self.Data, "history"), int64(cfg.Control.History))
	if err != nil {
		return err
	}
	registry := newRegistry()
	plane := control.New(control.Options{
		Config: cfg, Store: st, PlanPath: filepath.Join(self.Data, "plan.json"), Peers: peers, Name: self.Name,
		SnapshotPath: filepath.Join(self.Data, "snapshots"), History: kept, Histories: histories, Registry: registry, Log: env.log,
	})
	options, err := adminOptions(cfg, plane)
	if err != nil {
		return err
	}
	server := grpc.NewServer(weights.ServerOptions()...)
	plane.Register(server)
	found := newDiscovery(env, cfg, registry, plane, filepath.Join(self.Data, "found.json"))

	s := newServers(env.ctx)
	s.grpc("signal and weight paths", wire, server)
	s.http("admin", adminListener, admin.Control(plane, registry, options), time.Second)
	s.run("dashboard", options.Board.Run)
	s.run("discovery", found.Run)
	s.run("control plane", func(ctx context.Context) error {
		settle(ctx, found)
		return plane.Run(ctx)
	})
	s.run("configuration", func(ctx context.Context) error {
		return config.Watch(cfg, func(c *config.Config) { found.Reload(ctx, c) }, env.log)(ctx)
	})
	fmt.Fprintf(env.stdout, "control plane: data planes at %s, admin at http://%s\n", wire.Addr(), adminListener.Addr())
	return s.wait()
}

// adminOptions are those of a control plane. A token that cannot be read at the start is an
// error.
func adminOptions(cfg *config.Config, plane *control.Control) (admin.Options, error) {
	o := admin.Options{Board: dashboard.New(plane)}
	if cfg.Control.AdminTokenFile == "" {
		return o, nil
	}
	o.Token = cfg.Control.AdminToken
	_, err := o.Token()
	return o, err
}

// settleFor is how long a control plane waits for its sources and engines to say what
// there is, before it plans with what it has. A source that does not answer takes longer
// than that, and what it found the last time counts.
const settleFor = 3 * time.Second

// newDiscovery finds the engines of a control plane; path is where it keeps them, empty
// for nowhere.
func newDiscovery(env *environment, cfg *config.Config, registry prometheus.Registerer, plane *control.Control, path string) *discover.Discovery {
	secure, err := cfg.Proxy.EngineTLS.Client()
	if err != nil { // the files are the data planes' first of all: they may not be here
		env.log.Warn("engines over https may not say their models", "error", err)
	}
	return discover.New(discover.Options{
		Config: cfg, Apply: plane.Reload, Open: kube.Open, Path: path, Registry: registry, Log: env.log,
		Transport: &http.Transport{MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute, TLSClientConfig: secure},
	})
}

// settle waits until a discovery has looked everywhere, for a while.
func settle(ctx context.Context, found *discover.Discovery) {
	select {
	case <-found.Settled():
	case <-time.After(settleFor):
	case <-ctx.Done():
	}
}

// newRegistry holds a role's metrics, with the process's own.
func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(newGoCollectors()...)
	return r
}
