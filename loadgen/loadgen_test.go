package loadgen

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestCountsWhatBecameOfTheRequests answers in turn with every outcome there is.
func TestCountsWhatBecameOfTheRequests(t *testing.T) {
	var n atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	sessions := make(chan string, 1000)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		sessions <- r.Header.Get("X-Session-Id")
		i := n.Add(1)
		if i == 200 {
			cancel()
		}
		switch i % 4 {
		case 0:
			w.WriteHeader(http.StatusTooManyRequests)
		case 1:
			w.WriteHeader(http.StatusBadGateway)
		default:
			fmt.Fprint(w, "ok")
			if strings.Contains(string(body), `"stream":true`) {
				fmt.Fprint(w, "\ndata: [DONE]\n\n")
			}
		}
	}))
	defer s.Close()
	g := New([]Flow{{URL: s.URL, Model: "m", Priority: "batch", Rate: 2000}, {URL: s.URL, Rate: 0}}, 1)
	g.Run(ctx, 5*time.Second)
	c := g.Counts()
	require.Equal(t, uint64(n.Load()), c.Sent)
	require.Equal(t, c.Sent, c.Succeeded+c.Shed+c.Failed, "every answer is waited for and counted once")
	require.Equal(t, c.Sent/4, c.Shed)
	require.InDelta(t, c.Sent/4, c.Failed, 1)
	require.Contains(t, c.LastError, "502")
	require.True(t, strings.HasPrefix(<-sessions, "m-batch-"))
}

func TestAStreamWithoutItsEndFailed(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, "data: {}\n\n")
		cancel()
	}))
	defer s.Close()
	g := New([]Flow{{URL: s.URL, Model: "m", Rate: 1000}}, 1)
	g.Run(ctx, 5*time.Second)
	require.Contains(t, g.Counts().LastError, "[DONE]")
}

// TestGraceEnds: an answer that never comes does not hold the generator.
func TestGraceEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		cancel()
		<-r.Context().Done()
	}))
	defer s.Close()
	g := New([]Flow{{URL: s.URL, Model: "m", Rate: 1000}}, 1)
	g.Run(ctx, time.Millisecond)
	require.Positive(t, g.Counts().Failed)
}
