package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wardrop-lb/wardrop/admin"
	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/control"
	"github.com/wardrop-lb/wardrop/store"
)

type controlCmd struct {
	Config string `short:"c" required:"" help:"Configuration file; it is reloaded when it changes." type:"path"`
}

// Run serves the control plane until it is told to stop.
func (c *controlCmd) Run(env *environment) error {
	cfg, err := config.Load(c.Config)
	if err != nil {
		return err
	}
	st, err := openStore(env, cfg.Control)
	if err != nil {
		return err
	}
	defer func() {
		if err := st.Close(); err != nil {
			env.log.Warn("store not closed", "error", err)
		}
	}()
	wire, err := listen("control.listen", cfg.Control.Listen)
	if err != nil {
		return err
	}
	adminListener, err := listen("control.admin", cfg.Control.Admin)
	if err != nil {
		return err
	}
	registry := newRegistry()
	plane := control.New(control.Options{
		Config: cfg, Store: st, PlanPath: filepath.Join(cfg.Control.Data, "plan.json"), Registry: registry, Log: env.log,
	})
	server := newGRPCServer()
	plane.Register(server)

	s := newServers(env.ctx)
	s.grpc("signal and weight paths", wire, server)
	s.http("admin", adminListener, admin.Control(plane, registry), time.Second)
	s.run("control plane", plane.Run)
	s.run("configuration", config.Watch(cfg, plane.Reload, env.log))
	fmt.Fprintf(env.stdout, "control plane: data planes at %s, admin at http://%s\n", wire.Addr(), adminListener.Addr())
	return s.wait()
}

func openStore(env *environment, c config.Control) (store.Store, error) {
	if c.Store == "memory" {
		// Time makes the epoch grow over restarts without keeping anything.
		return &store.Memory{Last: uint64(time.Now().Unix())}, nil
	}
	return store.OpenEmbedded(env.ctx, filepath.Join(c.Data, "etcd"))
}

// newRegistry holds a role's metrics, with the process's own.
func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(newGoCollectors()...)
	return r
}
