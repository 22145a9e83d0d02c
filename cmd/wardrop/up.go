package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"github.com/wardrop-lb/wardrop/admin"
	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/control"
	"github.com/wardrop-lb/wardrop/enginemodel"
	"github.com/wardrop-lb/wardrop/examples"
	"github.com/wardrop-lb/wardrop/loadgen"
	"github.com/wardrop-lb/wardrop/proxy"
	"github.com/wardrop-lb/wardrop/sim"
	"github.com/wardrop-lb/wardrop/store"
	"github.com/wardrop-lb/wardrop/testengine"
	"github.com/wardrop-lb/wardrop/weights"
)

type upCmd struct {
	Config   string        `short:"c" help:"Configuration file. Engines with a url are real, those without are simulated. Default: a built-in demo." type:"path" xor:"what"`
	Scenario string        `help:"Run a scenario and its load: talk or demo, which are built in, or a file as sim takes it." xor:"what" placeholder:"NAME|FILE"`
	For      time.Duration `help:"Stop after this time; of a scenario's file, play that much." placeholder:"DURATION"`
	Load     bool          `help:"Send the configured demand through the real sockets."`
	Report   string        `help:"Write the final state as JSON to this file." type:"path" placeholder:"FILE"`
	Quiet    bool          `short:"q" help:"Print no live table."`
}

// The request that simulated engines' profiles describe, and that --load sends.
const (
	upPromptTokens = 64
	upOutputTokens = 16
)

// loadGrace is how long answers under way may take once the load stops.
const loadGrace = 10 * time.Second

// fleetUp is everything that `up` runs.
type fleetUp struct {
	cfg       *config.Config
	log       *slog.Logger
	simulated map[string]string // address -> region of the simulated engines
	engines   []*testengine.Server
	control   *control.Control
	mu        sync.Mutex // of planes while they start
	planes    []*plane
	accessLog *proxy.AccessLog
	tracer    trace.TracerProvider
	scenario  *sim.Scenario         // of a file; nil without one
	load      func() loadgen.Counts // nil without any
	result    *sim.Result           // of the scenario, when it has been played
	loadDone  chan struct{}
	loadSince time.Time
	started   time.Time
	ended     time.Time // when the load stopped, or everything if there was none
}

type plane struct {
	cluster string
	url     string
	admin   string
	*proxy.DataPlane
}

// Run starts everything, shows it, and stops when told to or when its time is up.
func (c *upCmd) Run(env *environment) (err error) {
	cfg, scenario, err := c.configuration()
	if err != nil {
		return err
	}
	builtIn := c.Config == ""
	ctx, cancel := context.WithCancel(env.ctx)
	defer cancel()
	if c.For > 0 && scenario == nil {
		ctx, cancel = context.WithTimeout(ctx, c.For)
		defer cancel()
	}
	up := &fleetUp{cfg: cfg, log: env.log, scenario: scenario, simulated: map[string]string{}, started: time.Now()}
	defer up.closeEngines()
	var closeLog func()
	if up.accessLog, closeLog, err = openAccessLog(env, cfg.Proxy.AccessLog); err != nil {
		return err
	}
	defer closeLog()
	var closeTracing func()
	if up.tracer, closeTracing, err = openTracing(env, cfg.Proxy.Tracing); err != nil {
		return err
	}
	defer closeTracing()
	defer up.closePlanes()
	if err := up.startEngines(); err != nil {
		return err
	}
	// The parts outlive ctx for as long as the load's last answers take.
	parts, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	s := newServers(parts)
	adminURL, err := up.start(s, env, builtIn)
	if err != nil {
		s.cancel(err)
		return errors.Join(err, s.wait())
	}
	if err := up.ready(ctx, s); err != nil {
		s.cancel(err)
		return errors.Join(tooShort(err), s.wait())
	}
	up.announce(env.stdout, adminURL)
	switch {
	case scenario != nil:
		err = up.startPlay(ctx, cancel, s)
	case c.Load || c.Scenario != "":
		up.startLoad(ctx, s)
	}
	if err != nil {
		s.cancel(err)
		return s.wait()
	}
	up.show(ctx, s, env.stdout, c.Quiet)
	cancel()
	if up.loadDone != nil {
		<-up.loadDone
	}
	if up.result != nil {
		if err := up.showResult(env.stdout); err != nil {
			s.cancel(err)
		}
	}
	if c.Report != "" {
		if err := up.report(c.Report); err != nil {
			s.cancel(err)
		}
	}
	stop()
	return s.wait()
}

// configuration reads what was asked for. Only a file of a configuration means its
// addresses.
func (c *upCmd) configuration() (*config.Config, *sim.Scenario, error) {
	if c.Config != "" {
		cfg, err := config.Load(c.Config)
		return cfg, nil, err
	}
	if ext := filepath.Ext(c.Scenario); ext == ".yaml" || ext == ".yml" {
		s, err := loadScenario(c.Scenario)
		if err != nil {
			return nil, nil, err
		}
		if c.For > 0 {
			s.Shorten(c.For)
		}
		return s.Config, s, s.Playable()
	}
	name := cmp.Or(c.Scenario, "demo")
	data, err := examples.Files.ReadFile(name + ".yaml")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("unknown scenario %q: known are %s, or a file's name that ends in .yaml", name, strings.Join(scenarios(), ", "))
	}
	if err != nil {
		return nil, nil, err
	}
	cfg, err := config.Parse(name+".yaml", data)
	return cfg, nil, err
}

func scenarios() []string {
	entries, _ := examples.Files.ReadDir(".")
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}

// startEngines simulates the engines without a URL.
func (up *fleetUp) startEngines() error {
	up.engines = make([]*testengine.Server, len(up.cfg.Engines))
	for i := range up.cfg.Engines {
		e := &up.cfg.Engines[i]
		if e.URL != "" {
			if up.scenario != nil {
				return fmt.Errorf("engine %q: a scenario's engines are simulated and have no url", e.Name)
			}
			continue
		}
		if err := up.startEngine(i, "127.0.0.1:0"); err != nil {
			return err
		}
		e.URL, e.Kind, e.Metrics, e.Signals = up.engines[i].URL(), "vllm", "", nil
		up.simulated[up.engines[i].Addr()] = e.Region
	}
	return nil
}

func (up *fleetUp) startEngine(i int, addr string) (err error) {
	e := &up.cfg.Engines[i]
	c := testengine.Config{
		Name: e.Name, Models: e.Models, PromptTokens: upPromptTokens, OutputTokens: upOutputTokens, Seed: uint64(i),
		Params: enginemodel.FromProfile(e.Fleet().Profile, upPromptTokens, upOutputTokens),
	}
	if up.scenario != nil {
		c.PromptTokens, c.Params = 0, up.scenario.Params(i)
	}
	if up.engines[i], err = testengine.New(c); err != nil {
		return err
	}
	return up.engines[i].Start(addr)
}

func (up *fleetUp) closeEngines() {
	for _, e := range up.engines {
		if e != nil {
			e.Close()
		}
	}
}

// closePlanes waits for what runs beside requests that have ended.
func (up *fleetUp) closePlanes() {
	for _, p := range up.planes {
		p.Close()
	}
}

// start brings up the control plane and one data plane per cluster. Nothing is
// kept on disk: the next run begins anew.
func (up *fleetUp) start(s *servers, env *environment, builtIn bool) (adminURL string, err error) {
	wire, err := listen("signal and weight paths", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	registry := newRegistry()
	up.control = control.New(control.Options{Config: up.cfg, Store: &store.Memory{}, Registry: registry, Log: env.log})
	server := grpc.NewServer(weights.ServerOptions()...)
	up.control.Register(server)
	s.grpc("signal and weight paths", wire, server)
	found := newDiscovery(env, up.cfg, registry, up.control, "")
	if up.scenario == nil { // else all is known, and its events change the configuration themselves
		s.run("discovery", found.Run)
	}
	s.run("control plane", func(ctx context.Context) error {
		if up.scenario == nil {
			settle(ctx, found)
		}
		return up.control.Run(ctx)
	})
	l, err := listenWish("admin", up.cfg.Control.Members[0].Admin, builtIn)
	if err != nil {
		return "", err
	}
	options, err := adminOptions(up.cfg, up.control)
	if err != nil {
		return "", err
	}
	options.Planes = up.adminAddresses
	s.http("admin", l, admin.Control(up.control, registry, options), time.Second)
	s.run("dashboard", options.Board.Run)

	conn, err := dialControl(wire.Addr().String())
	if err != nil {
		return "", err
	}
	context.AfterFunc(s.ctx, func() { _ = conn.Close() })
	for _, cl := range up.cfg.Clusters {
		if err := up.startPlane(s, env, cl, conn, builtIn); err != nil {
			return "", err
		}
	}
	return "http://" + l.Addr().String(), nil
}

func (up *fleetUp) startPlane(s *servers, env *environment, cl config.Cluster, conn *grpc.ClientConn, builtIn bool) error {
	settings := up.cfg.Proxy
	settings.Data = ""
	registry := prometheus.NewRegistry()
	options := proxy.Options{
		Cluster: cl.Name, Proxy: settings, Signals: up.cfg.Signals, Aliases: up.cfg.Aliases, Control: []grpc.ClientConnInterface{conn}, Registry: registry, Log: env.log, AccessLog: up.accessLog, Tracer: up.tracer,
	}
	if len(up.simulated) > 0 {
		options.Dial = testengine.Dialer(up.distance(cl))
	}
	p, err := proxy.New(options)
	if err != nil {
		return err
	}
	requests, err := listenWish(cl.Name, cl.Listen, builtIn)
	if err != nil {
		return err
	}
	adminListener, err := listenWish(cl.Name+" admin", cl.Admin, builtIn)
	if err != nil {
		return err
	}
	s.http(cl.Name, requests, p.Handler(), time.Duration(settings.Drain))
	s.http(cl.Name+" admin", adminListener, admin.Proxy(p, registry), time.Second)
	s.run(cl.Name, func(ctx context.Context) error { p.Run(ctx); return nil })
	up.mu.Lock()
	defer up.mu.Unlock()
	up.planes = append(up.planes, &plane{cl.Name, "http://" + requests.Addr().String(), adminListener.Addr().String(), p})
	return nil
}

// adminAddresses are those of the data planes, which may be other ones than are configured.
func (up *fleetUp) adminAddresses() []string {
	up.mu.Lock()
	defer up.mu.Unlock()
	out := make([]string, len(up.planes))
	for i, p := range up.planes {
		out[i] = p.admin
	}
	return out
}

// distance is what a cluster's connections to simulated engines take; real ones
// have a distance of their own.
func (up *fleetUp) distance(cl config.Cluster) func(string) time.Duration {
	return func(addr string) time.Duration {
		region, ok := up.simulated[addr]
		if !ok {
			return 0
		}
		return time.Duration(cl.Distances[region])
	}
}

// listenWish takes another port when the one of a built-in configuration is
// taken.
func listenWish(what, addr string, wish bool) (net.Listener, error) {
	l, err := listen(what, addr)
	if err != nil && wish {
		return listen(what, "127.0.0.1:0")
	}
	return l, err
}

// readyPoll is how often `up` looks whether everything routes.
const readyPoll = 20 * time.Millisecond

// tooShort says that --for ended before there was anything to show or report.
func tooShort(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("--for: the time was up before every data plane could route")
	}
	return nil
}

// ready waits until every data plane has a snapshot, and the control plane
// recorded the plan that it came from.
func (up *fleetUp) ready(ctx context.Context, s *servers) error {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		if up.control.State() != nil && !slices.ContainsFunc(up.planes, func(p *plane) bool { return !p.Ready() }) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		case <-tick.C:
		}
	}
}

func (up *fleetUp) announce(w io.Writer, adminURL string) {
	fmt.Fprintf(w, "Ready after %.1f s. OpenAI requests go to:\n", time.Since(up.started).Seconds())
	for _, p := range up.planes {
		models := []string{}
		for _, r := range p.Snapshot().Rows {
			models = append(models, r.Model)
		}
		fmt.Fprintf(w, "  %-12s %s/v1   models: %s\n", p.cluster, p.url, strings.Join(models, ", "))
	}
	up.announceCommands(w, adminURL)
}

// announceCommands shows what can be tried, with the first model there is.
func (up *fleetUp) announceCommands(w io.Writer, adminURL string) {
	p := up.planes[0]
	if len(p.Snapshot().Rows) == 0 {
		fmt.Fprintf(w, "No engine serves a model yet.\nAdmin: control plane %s\n", adminURL)
		return
	}
	fmt.Fprintf(w, "Try:\n  curl %s/v1/chat/completions -d '{\"model\":\"%s\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}'\n",
		p.url, p.Snapshot().Rows[0].Model)
	fmt.Fprintf(w, "  wardrop why weight --cluster %s --model %s --admin %s\n", p.cluster, p.Snapshot().Rows[0].Model, strings.TrimPrefix(adminURL, "http://"))
	fmt.Fprintf(w, "  or look: %s in a browser shows the dashboard\n", adminURL)
	fmt.Fprintf(w, "Admin: control plane %s", adminURL)
	for _, p := range up.planes {
		fmt.Fprintf(w, ", %s http://%s", p.cluster, p.admin)
	}
	fmt.Fprintln(w)
}

// startLoad sends the configured demand until ctx is done.
func (up *fleetUp) startLoad(ctx context.Context, s *servers) {
	var flows []loadgen.Flow
	for _, d := range up.cfg.Demand {
		i := slices.IndexFunc(up.planes, func(p *plane) bool { return p.cluster == d.Cluster })
		flows = append(flows, loadgen.Flow{
			URL: up.planes[i].url, Model: d.Model, Priority: d.Priority, Rate: d.Rate, MaxTokens: upOutputTokens,
		})
	}
	load := loadgen.New(flows, 1)
	up.load, up.loadSince, up.loadDone = load.Counts, time.Now(), make(chan struct{})
	s.run("load", func(context.Context) error {
		defer close(up.loadDone)
		load.Run(ctx, loadGrace)
		return nil
	})
}
