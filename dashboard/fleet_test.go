package dashboard_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/wardrop-lb/wardrop/admin"
	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/control"
	"github.com/wardrop-lb/wardrop/dashboard"
	"github.com/wardrop-lb/wardrop/enginemodel"
	"github.com/wardrop-lb/wardrop/internal/testaddr"
	"github.com/wardrop-lb/wardrop/internal/testturn"
	"github.com/wardrop-lb/wardrop/loadgen"
	"github.com/wardrop-lb/wardrop/proxy"
	"github.com/wardrop-lb/wardrop/store"
	"github.com/wardrop-lb/wardrop/testengine"
	"github.com/wardrop-lb/wardrop/weights"
)

func TestMain(m *testing.M) {
	code := m.Run()
	closeBrowser()
	if code == 0 {
		http.DefaultClient.CloseIdleConnections()
		if err := goleak.Find(); err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}

// world is four clusters on three continents. The engines have no URL: they are simulated.
const world = `
policy: {tick: 500ms}
regions:
  - {name: frankfurt, coordinates: [50.1, 8.7]}
  - {name: virginia, coordinates: [38.9, -77.5]}
  - {name: oregon, coordinates: [45.6, -121.2]}
  - {name: singapore, coordinates: [1.35, 103.8]}
  - {name: tokyo, coordinates: [35.7, 139.7]}
clusters:
  - {name: europe, region: frankfurt}
  - {name: america-east, region: virginia}
  - {name: america-west, region: oregon}
  - {name: asia, region: singapore}
engines:
  - {name: fra-1, region: frankfurt, models: [chat], profile: {t0: 90ms, u_max: 8, batch: 10}}
  - {name: fra-2, region: frankfurt, models: [chat, code], profile: {t0: 90ms, u_max: 8, batch: 10}}
  - {name: iad-1, region: virginia, models: [chat], profile: {t0: 80ms, u_max: 12, batch: 12}}
  - {name: iad-2, region: virginia, models: [chat, code], profile: {t0: 80ms, u_max: 12, batch: 12}}
  - {name: pdx-1, region: oregon, models: [chat, code], profile: {t0: 80ms, u_max: 10, batch: 10}}
  - {name: sin-1, region: singapore, models: [chat], profile: {t0: 90ms, u_max: 8, batch: 10}}
  - {name: nrt-1, region: tokyo, models: [chat, code], profile: {t0: 70ms, u_max: 14, batch: 12}}
demand:
  - {cluster: europe, model: chat, rate: 12}
  - {cluster: europe, model: code, rate: 2}
  - {cluster: america-east, model: chat, rate: 6}
  - {cluster: america-east, model: chat, priority: batch, rate: 1}
  - {cluster: america-west, model: chat, rate: 2}
  - {cluster: america-west, model: code, rate: 1}
  - {cluster: asia, model: chat, rate: 8}
`

// running is a control plane with its dashboard, data planes, engines and load.
type running struct {
	t       *testing.T
	cfg     *config.Config
	control *control.Control
	options admin.Options
	addr    string            // of the admin API
	planes  map[string]string // URLs by cluster
	ctx     context.Context
	parts   sync.WaitGroup
	server  *http.Server
	token   string
}

// startFleet runs all of a configuration in this process until the test ends.
func startFleet(t *testing.T, text, token string) *running {
	t.Helper()
	testturn.Take(t)
	cfg, err := config.Parse("w.yaml", []byte(text))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	f := &running{t: t, cfg: cfg, ctx: ctx, addr: testaddr.Own(t), planes: map[string]string{}, token: token}
	t.Cleanup(func() {
		cancel()
		_ = f.server.Close()
		f.parts.Wait()
	})
	simulated := f.startEngines()
	wire := f.startControl()
	var addresses []string
	for _, cl := range cfg.Clusters {
		addresses = append(addresses, f.startPlane(cl, wire, simulated))
	}
	f.options.Planes = func() []string { return addresses }
	if token != "" {
		f.options.Token = func() (string, error) { return token, nil }
	}
	f.serve()
	f.startLoad()
	require.Eventually(t, func() bool { return f.control.State() != nil }, 20*time.Second, 10*time.Millisecond)
	return f
}

// part runs until the test ends.
func (f *running) part(run func(context.Context) error) {
	f.parts.Go(func() {
		if err := run(f.ctx); err != nil {
			f.t.Error(err)
		}
	})
}

func (f *running) startEngines() map[string]string {
	simulated := map[string]string{}
	for i := range f.cfg.Engines {
		e := &f.cfg.Engines[i]
		s, err := testengine.New(testengine.Config{
			Name: e.Name, Models: e.Models, PromptTokens: 64, OutputTokens: 16, Seed: uint64(i), Params: enginemodel.FromProfile(e.Fleet().Profile, 64, 16),
		})
		require.NoError(f.t, err)
		f.t.Cleanup(s.Close)
		require.NoError(f.t, s.Start("127.0.0.1:0"))
		e.URL, e.Kind = s.URL(), "vllm"
		simulated[s.Addr()] = e.Region
	}
	return simulated
}

func (f *running) startControl() *grpc.ClientConn {
	f.control = control.New(control.Options{Config: f.cfg, Store: &store.Memory{}, Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	f.options.Board = dashboard.New(f.control)
	server := grpc.NewServer(weights.ServerOptions()...)
	f.control.Register(server)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(f.t, err)
	f.part(func(ctx context.Context) error {
		defer context.AfterFunc(ctx, server.Stop)()
		return server.Serve(l)
	})
	f.part(f.control.Run)
	f.part(f.options.Board.Run)
	conn, err := grpc.NewClient(l.Addr().String(), append(weights.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(f.t, err)
	context.AfterFunc(f.ctx, func() { _ = conn.Close() })
	return conn
}

func (f *running) startPlane(cl config.Cluster, conn *grpc.ClientConn, simulated map[string]string) (adminAddr string) {
	settings := f.cfg.Proxy
	settings.Data = ""
	registry := prometheus.NewRegistry()
	p, err := proxy.New(proxy.Options{
		Cluster: cl.Name, Proxy: settings, Signals: f.cfg.Signals, Control: []grpc.ClientConnInterface{conn}, Registry: registry, Log: slog.New(slog.DiscardHandler),
		Dial: testengine.Dialer(func(addr string) time.Duration { return time.Duration(cl.Distances[simulated[addr]]) }),
	})
	require.NoError(f.t, err)
	f.part(func(ctx context.Context) error { p.Run(ctx); return nil })
	requests := f.http("127.0.0.1:0", p.Handler())
	f.planes[cl.Name] = "http://" + requests
	return f.http("127.0.0.1:0", admin.Proxy(p, registry))
}

// http serves until the test ends.
func (f *running) http(addr string, h http.Handler) string {
	l, err := net.Listen("tcp", addr)
	require.NoError(f.t, err)
	s := &http.Server{Handler: h}
	f.part(func(ctx context.Context) error {
		defer context.AfterFunc(ctx, func() { _ = s.Close() })()
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	return l.Addr().String()
}

// serve begins to serve the admin API; hangUp ends it, and it may be served again.
func (f *running) serve() {
	l, err := net.Listen("tcp", f.addr)
	require.NoError(f.t, err)
	s := &http.Server{Handler: admin.Control(f.control, prometheus.NewRegistry(), f.options)}
	f.server = s
	f.parts.Go(func() { _ = s.Serve(l) })
}

func (f *running) hangUp() { require.NoError(f.t, f.server.Close()) }

func (f *running) startLoad() {
	var flows []loadgen.Flow
	for _, d := range f.cfg.Demand {
		flows = append(flows, loadgen.Flow{URL: f.planes[d.Cluster], Model: d.Model, Priority: d.Priority, Rate: d.Rate, MaxTokens: 16})
	}
	load := loadgen.New(flows, 1)
	f.part(func(ctx context.Context) error { load.Run(ctx, 5*time.Second); return nil })
}

func (f *running) url(page string) string { return "http://" + f.addr + "/ui/" + page }

func (f *running) client() admin.Client { return admin.Client{Base: f.addr, Token: f.token} }
