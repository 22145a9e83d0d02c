package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/wardrop-lb/wardrop/admin"
	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/proxy"
)

type proxyCmd struct {
	Config  string `short:"c" required:"" help:"Configuration file." type:"path"`
	Cluster string `required:"" help:"The cluster that this data plane serves."`
}

// Run serves a data plane until it is told to stop, then lets requests in flight
// finish.
func (c *proxyCmd) Run(env *environment) error {
	cfg, err := config.Load(c.Config)
	if err != nil {
		return err
	}
	cluster := cfg.ClusterByName(c.Cluster)
	if cluster == nil {
		return fmt.Errorf("%s has no cluster %q", c.Config, c.Cluster)
	}
	control, hangUp, err := dialAll(cfg.Proxy.Control)
	if err != nil {
		return err
	}
	defer hangUp()
	accessLog, closeLog, err := openAccessLog(env, cfg.Proxy.AccessLog)
	if err != nil {
		return err
	}
	defer closeLog()
	tracer, closeTracing, err := openTracing(env, cfg.Proxy.Tracing)
	if err != nil {
		return err
	}
	defer closeTracing()
	registry := newRegistry()
	plane, err := proxy.New(proxy.Options{
		Cluster: c.Cluster, Proxy: cfg.Proxy, Signals: cfg.Signals, Aliases: cfg.Aliases, Control: control, Registry: registry, Log: env.log, AccessLog: accessLog, Tracer: tracer,
	})
	if err != nil {
		return err
	}
	defer plane.Close()
	requests, err := listen("listen", cluster.Listen)
	if err != nil {
		return err
	}
	adminListener, err := listen("admin", cluster.Admin)
	if err != nil {
		return err
	}
	s := newServers(env.ctx)
	s.http("requests", requests, plane.Handler(), time.Duration(cfg.Proxy.Drain))
	s.http("admin", adminListener, admin.Proxy(plane, registry), time.Second)
	s.run("data plane", func(ctx context.Context) error {
		forgetPages()
		plane.Run(ctx)
		return nil
	})
	fmt.Fprintf(env.stdout, "data plane of %s: OpenAI requests at http://%s/v1, admin at http://%s\n",
		c.Cluster, requests.Addr(), adminListener.Addr())
	return s.wait()
}

// openAccessLog opens what the configuration names, "" for none. What it returns beside must be
// called when requests have ended.
func openAccessLog(env *environment, path string) (*proxy.AccessLog, func(), error) {
	var file *os.File
	out := env.stdout
	switch path {
	case "":
		return nil, func() {}, nil
	case "-":
	default:
		var err error
		if file, err = os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640); err != nil {
			return nil, nil, fmt.Errorf("proxy.access_log: %w", err)
		}
		out = file
	}
	l := proxy.NewAccessLog(out, func(err error) { env.log.Error("the access log cannot be written; lines are lost", "error", err) })
	return l, func() {
		err := l.Close()
		if file != nil {
			err = errors.Join(err, file.Close())
		}
		if err != nil {
			env.log.Error("the access log ends", "error", err, "dropped", l.Dropped())
		}
	}, nil
}

func newGoCollectors() []prometheus.Collector {
	return []prometheus.Collector{collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})}
}
