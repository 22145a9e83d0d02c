package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/wardrop-lb/wardrop/admin"
	"github.com/wardrop-lb/wardrop/collect"
	"github.com/wardrop-lb/wardrop/config"
)

type collectCmd struct {
	Config string `short:"c" required:"" help:"Configuration file: where the control plane is, how engines are read." type:"path"`
	Region string `required:"" help:"The region whose engines to read. While a collector of it runs, no data plane reads them; of several each engine is read by two."`
	Admin  string `help:"HTTP address of /metrics and health." default:"127.0.0.1:0" placeholder:"ADDRESS"`
}

// Run reads and reports until it is told to stop.
func (c *collectCmd) Run(env *environment) error {
	cfg, err := config.Load(c.Config)
	if err != nil {
		return err
	}
	known := slices.ContainsFunc(cfg.Engines, func(e config.Engine) bool { return e.Region == c.Region })
	if !known && len(cfg.Discover) == 0 {
		return fmt.Errorf("%s has no engine in region %q", c.Config, c.Region)
	}
	secure, err := cfg.Proxy.EngineTLS.Client()
	if err != nil {
		return err
	}
	control, hangUp, err := dialAll(cfg.Proxy.Control)
	if err != nil {
		return err
	}
	defer hangUp()
	pages := &http.Transport{MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute, TLSClientConfig: secure}
	defer pages.CloseIdleConnections()
	registry := newRegistry()
	collector := collect.NewCollector(collect.CollectorOptions{
		Region: c.Region, Control: control, Report: time.Duration(cfg.Signals.Report), Interval: time.Duration(cfg.Signals.Interval),
		Timeout: time.Duration(cfg.Signals.Timeout), Transport: pages, Registry: registry, Log: env.log,
	})
	listener, err := listen("admin", c.Admin)
	if err != nil {
		return err
	}
	s := newServers(env.ctx)
	s.http("admin", listener, admin.Collector(collector, registry), time.Second)
	s.run("collector", func(ctx context.Context) error { collector.Run(ctx); return nil })
	fmt.Fprintf(env.stdout, "collector of %s: admin at http://%s\n", c.Region, listener.Addr())
	return s.wait()
}
