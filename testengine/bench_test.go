package testengine_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/testengine"
)

// BenchmarkStreams runs 300 streams at once as fast as they go, client included.
func BenchmarkStreams(b *testing.B) {
	const streams, tokens = 300, 64
	p := testengine.DefaultParams()
	p.MaxBatch, p.Base, p.PerRequest = streams, 1e-4, 1e-7
	s, err := testengine.New(testengine.Config{Models: []string{"m"}, Params: p})
	require.NoError(b, err)
	require.NoError(b, s.Start("127.0.0.1:0"))
	defer s.Close()
	transport := &http.Transport{MaxIdleConnsPerHost: streams}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	body := chat("p", tokens, `,"stream":true`)
	for b.Loop() {
		var clients sync.WaitGroup
		for range streams {
			clients.Go(func() {
				resp, err := client.Post(s.URL()+"/v1/chat/completions", "application/json", strings.NewReader(body))
				if err != nil {
					b.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			})
		}
		clients.Wait()
	}
	b.ReportMetric(float64(b.N*streams*tokens)/b.Elapsed().Seconds(), "tokens/s")
}
