package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/wardrop-lb/wardrop/internal/testaddr"
)

// spanCollector is one that takes OTLP.
type spanCollector struct {
	collector.UnimplementedTraceServiceServer
	mu      sync.Mutex
	service string
	spans   []*otlp.Span
}

func (c *spanCollector) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range r.ResourceSpans {
		for _, a := range of.Resource.Attributes {
			if a.Key == "service.name" {
				c.service = a.Value.GetStringValue()
			}
		}
		for _, s := range of.ScopeSpans {
			c.spans = append(c.spans, s.Spans...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// Spans reach a collector, the last of them when the process ends; without one requests go on.
func TestSpansReachACollector(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c, server := &spanCollector{}, grpc.NewServer()
	collector.RegisterTraceServiceServer(server, c)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	config := fmt.Sprintf(`
control: {admin: %q}
proxy: {tracing: {endpoint: "http://%s", sample: 1}}
clusters:
  - {name: a, region: a, distances: {a: 1ms}}
engines:
  - {name: near, region: a, models: [demo], profile: {t0: 100ms, u_max: 125, batch: 200}}
demand:
  - {cluster: a, model: demo, rate: 10}
`, testaddr.Own(t), l.Addr())
	p := start(t, "up", "--quiet", "-c", newFile(t, config))
	base := p.ready().urls["a"]
	req, err := http.NewRequest(http.MethodPost, base+"/v1/chat/completions", strings.NewReader(`{"model":"demo","max_tokens":1,"messages":[{"role":"user","content":"Hi"}]}`))
	require.NoError(t, err)
	req.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
	// One that is not UTF-8 would not be sent, nor what is sent with it.
	resp, err = http.Get(base + "/v1/responses/%ff")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Zero(t, p.stop(syscall.SIGTERM))
	c.mu.Lock()
	names := map[string]string{}
	for _, s := range c.spans {
		if !strings.Contains(s.Name, "response") {
			names[s.Name] = fmt.Sprintf("%x", s.TraceId)
		}
	}
	require.Len(t, c.spans, 4)
	require.Equal(t, "wardrop", c.service)
	c.mu.Unlock()
	require.Equal(t, map[string]string{"POST /v1/chat/completions": "0af7651916cd43dd8448eb211c80319c", "chat demo": "0af7651916cd43dd8448eb211c80319c"}, names)

	server.Stop()
	require.NoError(t, <-served)
	p = start(t, "up", "--quiet", "-c", newFile(t, config))
	requireAnswer(t, p.ready().urls["a"], "demo")
	require.Zero(t, p.stop(syscall.SIGTERM))
	require.Contains(t, p.log.String(), "spans are lost")
}
