//go:build unix

package proxy

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	streams     = 512
	tokens      = 64
	tokenPeriod = 20 * time.Millisecond
)

// streamEngine streams tokens at a fixed pace, all streams from one clock, as an
// engine's steps do.
func streamEngine(b *testing.B) string {
	event := []byte("data: {\"id\":\"cmpl-1\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},\"finish_reason\":null}]}\n\n")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		tick := time.NewTicker(tokenPeriod)
		defer tick.Stop()
		for range tokens {
			<-tick.C
			_, _ = w.Write(event)
			w.(http.Flusher).Flush()
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}))
	b.Cleanup(s.Close)
	return s.URL
}

func post(addr, body string) *http.Request {
	req, _ := http.NewRequest(http.MethodPost, "http://"+addr+"/v1/chat/completions", strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	return req
}

// readStreams runs all streams at once and returns how long their first bytes
// took.
func readStreams(b *testing.B, client *http.Client, addr string) []time.Duration {
	first := make([]time.Duration, streams)
	var wg sync.WaitGroup
	for i := range streams {
		wg.Go(func() {
			start := time.Now()
			resp, err := client.Do(post(addr, fmt.Sprintf(`{"model":"m","stream":true,"prompt_cache_key":"%d"}`, i)))
			if err != nil {
				b.Error(err)
				return
			}
			r := bufio.NewReader(resp.Body)
			_, _ = r.ReadByte()
			first[i] = time.Since(start)
			n, err := io.Copy(io.Discard, r)
			_ = resp.Body.Close()
			if err != nil || n < tokens*100 {
				b.Errorf("a stream ended after %d bytes: %v", n, err)
			}
		})
	}
	wg.Wait()
	slices.Sort(first)
	return first
}

// BenchmarkStream compares the CPU time that a streamed token costs with the
// standard library's proxy, 512 streams at once, in turns.
func BenchmarkStream(b *testing.B) {
	engines := []string{streamEngine(b), streamEngine(b)}
	kinds := [...]string{"wardrop", "reverseproxy"}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: streams}}
	defer client.CloseIdleConnections()
	var children [2]*child
	for i, kind := range kinds {
		children[i] = startChild(b, kind, engines)
		readStreams(b, client, children[i].addr)
	}
	var used [2]time.Duration
	var first [2][]time.Duration
	b.ResetTimer()
	for n := range 2 * b.N {
		for _, i := range [][]int{{0, 1}, {1, 0}}[n%2] { // neither is always the first
			before := children[i].cpu()
			first[i] = append(first[i], readStreams(b, client, children[i].addr)...)
			used[i] += children[i].cpu() - before
		}
	}
	b.StopTimer()
	perToken := func(i int) float64 { return used[i].Seconds() * 1e6 / float64(2*b.N*streams*tokens) }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(perToken(0), "cpu-us/token")
	b.ReportMetric(perToken(0)/perToken(1), "cpu-ratio")
	for i, kind := range kinds {
		slices.Sort(first[i])
		b.Logf("%-12s  %5.1f us of CPU a token  first byte p50 %5.1f ms  p99 %5.1f ms", kind, perToken(i),
			1e3*first[i][len(first[i])/2].Seconds(), 1e3*first[i][len(first[i])*99/100].Seconds())
	}
}

// BenchmarkBodies measures what the proxy adds to the median time of one request
// at a time, by size of the body, over going to the engine directly.
func BenchmarkBodies(b *testing.B) {
	engine := stubEngine(b)
	proxied := startChild(b, "wardrop", []string{engine})
	direct := strings.TrimPrefix(engine, "http://")
	for _, size := range []int{2 << 10, 40 << 10, 400 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			body := `{"model":"m","messages":[{"role":"user","content":"`
			body += strings.Repeat("All work and no play. ", size/22+1)[:size-len(body)-4] + `"}]}`
			var took [2][]time.Duration
			for i, addr := range []string{direct, proxied.addr} {
				c := &client{addr: addr, requests: [][]byte{fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)}}
				defer c.close()
				for range 20 {
					require.NoError(b, c.ask())
				}
				for range max(b.N, 200) {
					start := time.Now()
					require.NoError(b, c.ask())
					took[i] = append(took[i], time.Since(start))
				}
				slices.Sort(took[i])
			}
			median := func(i int) float64 { return 1e3 * took[i][len(took[i])/2].Seconds() }
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(0), "direct-ms")
			b.ReportMetric(median(1)-median(0), "added-ms")
		})
	}
}

// hold is an engine that begins a stream and says no more.
func hold(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, "data: {}\n\n")
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// BenchmarkIdleStreams measures the memory of a stream that is open and silent.
// Clients, proxy and engines are processes of their own, each with its own limit of
// descriptors. Over HTTP/1.1 a stream takes two of the proxy's, over HTTP/2 one.
func BenchmarkIdleStreams(b *testing.B) {
	for _, c := range []struct {
		kind    string
		streams int
	}{{"wardrop", 4000}, {"wardrop", 9900}, {"h2c", 10_000}} {
		b.Run(fmt.Sprintf("upstream=%s/streams=%d", strings.Replace(c.kind, "wardrop", "http1", 1), c.streams), func(b *testing.B) {
			engines := []string{"http://" + startChild(b, "hold", nil).addr, "http://" + startChild(b, "hold", nil).addr}
			proxied := startChild(b, c.kind, engines)
			before := proxied.memory()
			conns := openStreams(b, proxied.addr, c.streams)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(len(conns)), "streams")
			b.ReportMetric(float64(proxied.memory()-before)/float64(len(conns))/1024, "KiB/stream")
			for _, conn := range conns { // none has ended meanwhile
				require.NoError(b, conn.SetReadDeadline(time.Now().Add(time.Microsecond)))
				_, err := conn.Read(make([]byte, 1))
				require.ErrorIs(b, err, os.ErrDeadlineExceeded)
			}
		})
	}
}

// openStreams opens that many streams and waits until each has begun.
func openStreams(b *testing.B, addr string, n int) []net.Conn {
	conns := make([]net.Conn, n)
	for i := range conns {
		c, err := net.Dial("tcp", addr)
		require.NoError(b, err)
		b.Cleanup(func() { _ = c.Close() })
		body := fmt.Sprintf(`{"model":"m","stream":true,"prompt_cache_key":"%d"}`, i)
		fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		conns[i] = c
	}
	buf := make([]byte, 4<<10)
	for _, c := range conns {
		k, err := c.Read(buf)
		require.NoError(b, err)
		require.True(b, bytes.HasPrefix(buf[:k], []byte("HTTP/1.1 200")))
	}
	return conns
}

// BenchmarkClientGone measures from a client's leaving, while the engine is
// silent, to the engine's notice; beside it, in turns, what the standard library's
// proxy and a relay of bytes take for the same, for much of it is the scheduler's.
func BenchmarkClientGone(b *testing.B) {
	arrived, gone := make(chan struct{}), make(chan time.Time)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- struct{}{}
		<-r.Context().Done()
		gone <- time.Now()
	}))
	defer s.Close()
	kinds := []string{"wardrop", "reverseproxy", "relay"}
	var children []*child
	for _, kind := range kinds {
		children = append(children, startChild(b, kind, []string{s.URL}))
	}
	took := make([][]time.Duration, len(kinds))
	for n := range max(b.N, 100) * len(kinds) {
		ctx, cancel := context.WithCancel(b.Context())
		var wg sync.WaitGroup
		i := n % len(kinds)
		wg.Go(func() {
			if resp, err := http.DefaultClient.Do(post(children[i].addr, chat).WithContext(ctx)); err == nil {
				_ = resp.Body.Close()
			}
		})
		<-arrived
		left := time.Now()
		cancel()
		took[i] = append(took[i], (<-gone).Sub(left))
		wg.Wait()
	}
	at := func(i int, q float64) float64 {
		slices.Sort(took[i])
		return 1e3 * took[i][int(q*float64(len(took[i])-1))].Seconds()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(at(0, 0.5), "p50-ms")
	b.ReportMetric(at(0, 0.99), "p99-ms")
	b.ReportMetric(at(0, 0.99)/at(1, 0.99), "p99-of-reverseproxy")
	b.ReportMetric(at(0, 0.99)/at(2, 0.99), "p99-of-relay")
	for i, kind := range kinds {
		b.Logf("%-12s  p50 %5.2f  p90 %5.2f  p99 %5.2f  p99.9 %5.2f ms", kind, at(i, 0.5), at(i, 0.9), at(i, 0.99), at(i, 0.999))
	}
}

// BenchmarkRefuse compares the CPU time of a request that is shed with one that is
// served, and with the least that net/http takes to refuse one.
func BenchmarkRefuse(b *testing.B) {
	children, clients := startChildren(b, []string{stubEngine(b), stubEngine(b)}, "wardrop", "shedding", "constant")
	sums := inTurns(b, children, clients)
	served, refused, least := sums[0].cpuMicros(), sums[1].cpuMicros(), sums[2].cpuMicros()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(served, "served-us")
	b.ReportMetric(refused, "refused-us")
	b.ReportMetric(least, "least-us")
	b.ReportMetric(refused/served, "cpu-ratio")
	b.ReportMetric(least/served, "least-ratio")
	b.ReportMetric(refused/least, "of-least")
}

// discardWriter is a client that takes everything.
type discardWriter struct{ header http.Header }

func (w discardWriter) Header() http.Header         { return w.header }
func (w discardWriter) WriteHeader(int)             {}
func (w discardWriter) Write(b []byte) (int, error) { return len(b), nil }

// BenchmarkRefuseAlone measures what of a refusal is our own: from the handler on,
// without net/http's reading and writing.
func BenchmarkRefuseAlone(b *testing.B) {
	h, err := benchHandler("shedding", []string{stubEngine(b)})
	require.NoError(b, err)
	for _, size := range []int{2 << 10, 40 << 10, 400 << 10} {
		body := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("All work and no play. ", size/22) + `"}]}`
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := &http.Request{
					Method: http.MethodPost, URL: &url.URL{Path: "/v1/chat/completions"}, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)),
					ContentLength: int64(len(body)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
				}
				h.ServeHTTP(discardWriter{http.Header{}}, r)
			}
		})
	}
}
