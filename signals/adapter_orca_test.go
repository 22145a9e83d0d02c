package signals

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	load "github.com/cncf/xds/go/xds/data/orca/v3"
	service "github.com/cncf/xds/go/xds/service/orca/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	grpcorca "google.golang.org/grpc/orca"
	"google.golang.org/protobuf/proto"
)

// orcaServer streams the reports that it is given, to one stream at a time.
type orcaServer struct {
	service.UnimplementedOpenRcaServiceServer
	reports chan *load.OrcaLoadReport
	asked   chan time.Duration // a stream began, with that interval
	gone    chan struct{}      // it ended
}

func newORCAServer() *orcaServer {
	return &orcaServer{reports: make(chan *load.OrcaLoadReport), asked: make(chan time.Duration, 100), gone: make(chan struct{}, 100)}
}

func (s *orcaServer) StreamCoreMetrics(r *service.OrcaLoadReportRequest, stream service.OpenRcaService_StreamCoreMetricsServer) error {
	s.asked <- r.GetReportInterval().AsDuration()
	defer func() { s.gone <- struct{}{} }()
	for {
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case report, open := <-s.reports:
			if !open {
				return nil
			}
			if err := stream.Send(report); err != nil {
				return err
			}
		}
	}
}

// serveGRPC serves on a socket of its own, or at an address that was one before.
func serveGRPC(t *testing.T, at string, register func(*grpc.Server), o ...grpc.ServerOption) (addr string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", at)
	require.NoError(t, err)
	s := grpc.NewServer(o...)
	register(s)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	stop = func() { s.Stop(); <-done }
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

const loopback = "127.0.0.1:0"

func (s *orcaServer) serve(t *testing.T, at string) (addr string, stop func()) {
	return serveGRPC(t, at, func(g *grpc.Server) { service.RegisterOpenRcaServiceServer(g, s) })
}

// orcaPoller reads one engine when it is told to.
func orcaPoller(t *testing.T, target Target) (s *Scraper, p *poller) {
	t.Helper()
	target.Engine, target.Kind = "e", KindORCA
	s = NewScraper(t.Context(), Options{Timeout: 10 * time.Second})
	t.Cleanup(s.Close)
	p, err := newPoller(target)
	require.NoError(t, err)
	p.ctx = t.Context()
	t.Cleanup(p.adapter.(*orca).close)
	return s, p
}

func named(n map[string]float64) *load.OrcaLoadReport { return &load.OrcaLoadReport{NamedMetrics: n} }

// grpcReports is what grpc-go's own server says: at once, and then every 30 s.
func grpcReports(t *testing.T, o ...grpc.ServerOption) string {
	metrics := grpcorca.NewServerMetricsRecorder()
	metrics.SetNamedUtilization("kv_cache_usage_perc", .4)
	metrics.SetCPUUtilization(.9)
	metrics.SetApplicationUtilization(.8)
	addr, _ := serveGRPC(t, loopback, func(g *grpc.Server) {
		require.NoError(t, grpcorca.Register(g, grpcorca.ServiceOptions{ServerMetricsProvider: metrics}))
	}, o...)
	return addr
}

// TestRareReportsKeepTheirTime: what was said once is good as long as the stream lives, and
// as old as it is.
func TestRareReportsKeepTheirTime(t *testing.T) {
	s, p := orcaPoller(t, Target{URL: "http://" + grpcReports(t)})
	before := time.Now()
	s.read(p)
	first := p.state
	require.Empty(t, first.Err)
	require.Equal(t, Values{KVUsage: Some(.4)}, first.Signal.Values)
	require.Equal(t, KindORCA, first.Kind)
	require.False(t, first.Signal.Time.Before(before))
	for range 3 {
		s.read(p)
		require.True(t, p.state.Reachable)
		require.Same(t, first.Signal, p.state.Signal)
		require.Equal(t, first.LastGood, p.state.LastGood)
		require.True(t, p.state.Attempt.After(first.Attempt))
	}
}

func TestReportsAtAnAddressOfTheirOwn(t *testing.T) {
	s, p := orcaPoller(t, Target{URL: "http://engine.invalid", MetricsURL: grpcReports(t)})
	s.read(p)
	require.Empty(t, p.state.Err)
	require.Equal(t, Some(.4), p.state.Signal.KVUsage)
}

// TestReportsOverTLS: by what the scraper trusts, and not by anything else.
func TestReportsOverTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS() // for its certificate
	defer server.Close()
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	addr := grpcReports(t, grpc.Creds(credentials.NewServerTLSFromCert(&server.TLS.Certificates[0])))
	for _, trusted := range []bool{true, false} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
		if !trusted {
			transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		}
		got := make(chan State, 1)
		s := NewScraper(t.Context(), Options{Timeout: 10 * time.Second, Transport: transport, Report: func(st State) {
			select {
			case got <- st:
			default:
			}
		}})
		require.NoError(t, s.Set([]Target{{Engine: "e", URL: "https://" + addr, Kind: KindORCA}}))
		st := <-got
		s.Close()
		if trusted {
			require.Empty(t, st.Err)
			require.Equal(t, Some(.4), st.Signal.KVUsage)
		} else {
			require.Contains(t, st.Err, "certificate")
			require.False(t, st.Reachable)
		}
	}
}

// TestReportsAsTheyCome: each is read once, a lost stream is opened anew, and the stream of
// an engine that left is closed.
func TestReportsAsTheyCome(t *testing.T) {
	server := newORCAServer()
	addr, stop := server.serve(t, loopback)
	states := make(chan State)
	s := NewScraper(t.Context(), Options{Interval: time.Millisecond, Timeout: 10 * time.Second, Report: func(st State) { states <- st }})
	defer s.Close()
	until := func(what string, good func(State) bool) (st State) {
		t.Helper()
		for deadline := time.After(20 * time.Second); ; {
			select {
			case st = <-states:
				if good(st) {
					return st
				}
			case <-deadline:
				t.Fatalf("not in time: %s; %+v", what, st)
			}
		}
	}
	require.NoError(t, s.Set([]Target{{Engine: "e", URL: "http://" + addr, Kind: KindORCA}}))
	require.Equal(t, time.Second, <-server.asked)
	sequence := uint64(0)
	for i := range 5 {
		server.reports <- named(map[string]float64{"num_requests_running": float64(i)})
		st := until("the report", func(st State) bool { return st.Signal != nil && st.Signal.Running == Some(float64(i)) })
		require.Equal(t, sequence+1, st.Signal.Sequence)
		sequence++
	}
	stop()
	until("the server is away", func(st State) bool { return st.Failures > 1 && !st.Reachable })
	server.serve(t, addr)
	go func() { server.reports <- named(map[string]float64{"num_requests_waiting": 7}) }()
	back := until("the server is back", func(st State) bool { return st.Err == "" && st.Signal.Waiting == Some(7) })
	require.False(t, back.Signal.Running.Known)

	for len(server.gone) > 0 {
		<-server.gone
	}
	go func() {
		for range states { //nolint:revive // a reading that is under way may still report
		}
	}()
	require.NoError(t, s.Set(nil))
	<-server.gone
	s.Close()
	close(states)
}

// TestReportsThatSayNothing: of any kind, and nothing of it counts as zero.
func TestReportsThatSayNothing(t *testing.T) {
	thousands := map[string]float64{"num_requests_running": 3}
	for i := range 5000 {
		thousands[fmt.Sprint("metric_", i)] = float64(i)
	}
	for name, c := range map[string]struct {
		report *load.OrcaLoadReport
		want   Reading
	}{
		"thousands":      {named(thousands), Reading{Values: Values{Running: Some(3)}}},
		"huge":           {named(map[string]float64{"num_requests_waiting": 1e308, "kv_cache_usage_perc": 1e308}), Reading{Values: Values{Waiting: Some(1e308)}, Spoilt: 1}},
		"both":           {&load.OrcaLoadReport{NamedMetrics: map[string]float64{"kv_cache_usage_perc": .2}, Utilization: map[string]float64{"kv_cache_usage_perc": .3}}, Reading{Values: Values{KVUsage: Some(.3)}}},
		"NaN":            {named(map[string]float64{"num_requests_running": math.NaN(), "num_requests_waiting": math.Inf(1)}), Reading{Spoilt: 2}},
		"negative":       {named(map[string]float64{"num_requests_running": -1}), Reading{Spoilt: 1}},
		"others' fields": {&load.OrcaLoadReport{CpuUtilization: 1, RpsFractional: 9, ApplicationUtilization: .5, Eps: 3}, Reading{}},
		"empty":          {&load.OrcaLoadReport{}, Reading{}},
		"no report":      {nil, Reading{}},
	} {
		got, err := orcaReading(c.report)
		require.Equal(t, c.want, got, name)
		if c.want.Values == (Values{}) {
			require.ErrorIs(t, err, errORCANothing, name)
		} else {
			require.NoError(t, err, name)
		}
	}
}

func FuzzORCABin(f *testing.F) {
	b, err := proto.Marshal(named(map[string]float64{"num_requests_running": 3, "kv_cache_usage_perc": math.NaN()}))
	require.NoError(f, err)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var report load.OrcaLoadReport
		if proto.Unmarshal(b, &report) != nil {
			return
		}
		r, err := orcaReading(&report)
		if (err == nil) != (r.Values != Values{}) {
			t.Fatalf("%+v and %v", r, err)
		}
		for _, o := range []Opt{r.Running, r.Waiting, r.KVUsage, r.KVTokens} {
			if math.IsNaN(o.Value) || math.IsInf(o.Value, 0) || o.Value < 0 || !o.Known && o.Value != 0 {
				t.Fatalf("%+v", r)
			}
		}
	})
}

// TestServersWithoutReports: who answers is there, whatever it says.
func TestServersWithoutReports(t *testing.T) {
	silent, large, ends := newORCAServer(), newORCAServer(), newORCAServer()
	close(ends.reports)
	go func() {
		large.reports <- named(map[string]float64{strings.Repeat("x", maxORCABin): 1})
	}()
	at := func(s *orcaServer) string { addr, _ := s.serve(t, loopback); return addr }
	bare, _ := serveGRPC(t, loopback, func(*grpc.Server) {})
	page := httptest.NewServer(http.NotFoundHandler())
	defer page.Close()
	gone, stop := serveGRPC(t, loopback, func(*grpc.Server) {})
	stop()
	for name, c := range map[string]struct {
		addr      string
		reachable bool
		says      string
	}{
		"another service": {bare, true, "Unimplemented"},
		"too large":       {at(large), true, "ResourceExhausted"},
		"ends at once":    {at(ends), true, "EOF"},
		"silent":          {at(silent), true, "none has come yet"},
		"no gRPC":         {page.Listener.Addr().String(), true, "Unavailable"},
		"nobody":          {gone, false, "refused"},
	} {
		s, p := orcaPoller(t, Target{URL: "http://" + c.addr})
		if name == "silent" {
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-silent.asked; cancel() }()
			_, err := p.adapter.Read(ctx, nil)
			require.ErrorContains(t, err, c.says)
			var reached *reachedError
			require.ErrorAs(t, err, &reached)
			go func() { silent.reports <- named(map[string]float64{"num_requests_running": 2}) }()
			s.read(p)
			require.Equal(t, Some(2), p.state.Signal.Running, "the same stream, later")
			require.Empty(t, silent.asked)
			continue
		}
		s.read(p)
		require.Nil(t, p.state.Signal, name)
		require.Contains(t, p.state.Err, c.says, name)
		require.Equal(t, c.reachable, p.state.Reachable, name)
	}
}

// TestASilentStreamIsOpenedAnew: its server may be gone without a word.
func TestASilentStreamIsOpenedAnew(t *testing.T) {
	server := newORCAServer()
	addr, _ := server.serve(t, loopback)
	s, p := orcaPoller(t, Target{URL: "http://" + addr})
	p.adapter.(*orca).silence = 50 * time.Millisecond
	s.read(p)
	require.Contains(t, p.state.Err, errORCASilent.Error())
	require.False(t, p.state.Reachable)
	<-server.gone
	p.adapter.(*orca).silence = time.Minute
	go func() { server.reports <- named(map[string]float64{"num_requests_running": 1}) }()
	s.read(p)
	require.Empty(t, p.state.Err)
	require.Equal(t, Some(1), p.state.Signal.Running)
}

func TestWhereReportsAre(t *testing.T) {
	for _, c := range [][3]string{
		{"http://a:8000", "", "a:8000"}, {"http://a", "", "a:80"}, {"https://a/", "", "a:443"}, {"https://[::1]:9", "", "[::1]:9"},
		{"unix:///run/x.sock", "", "unix:/run/x.sock"}, {"http://a:8000", "b:1", "b:1"}, {"https://a:1", "[::1]:2", "[::1]:2"},
	} {
		o, err := newORCA(Target{URL: c[0], MetricsURL: c[1]})
		require.NoError(t, err)
		require.Equal(t, c[2], o.address)
	}
	for _, wrong := range []string{"http://b:1", "/metrics", "b", "b:", ":1", "b:x", "b:0", "b:65536", "b c:1"} {
		_, err := NewAdapter(Target{URL: "http://a", Kind: KindORCA, MetricsURL: wrong})
		require.ErrorContains(t, err, "host:port", wrong)
	}
}
