package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
)

func TestField_57_CancelReachesANonStreamingEngine(t *testing.T) {
	g := &gate{}
	h := newHarness(t, g.ServeHTTP)
	c := h.start(`{"model":"m","stream":false,"x":"` + strings.Repeat("x", smallBody) + `"}`)
	until(t, "it arrived", func() bool { n, _ := g.count(); return n == 1 })
	c.cancel()
	until(t, "the engine was told", func() bool { _, gone := g.count(); return gone == 1 })
	h.requireIdle()
}

// TestField_58_GoneIsSeenAtOnce: before the first byte and in the stream; the place
// at the engine is free again, for one that has room for a single request.
func TestField_58_GoneIsSeenAtOnce(t *testing.T) {
	var streaming atomic.Bool
	h := limited(t, config.Proxy{MaxConnections: 1}, 1, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if string(body) == chat {
			_, _ = io.WriteString(w, "served")
			return
		}
		for streaming.Load() && r.Context().Err() == nil {
			_, _ = io.WriteString(w, ": keep-alive\n\n")
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
	})
	for i := range 10 {
		streaming.Store(i%2 == 0)
		conn, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
		require.NoError(t, err)
		body := `{"model":"m","stream":true}`
		fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		until(t, "it arrived", func() bool { return h.inFlight() == 1 })
		if streaming.Load() {
			_, err = bufio.NewReader(conn).ReadString('\n')
			require.NoError(t, err)
		}
		require.NoError(t, conn.Close())
		h.requireIdle()
		require.Equal(t, "served", h.read(h.post(chat)))
	}
	require.Zero(t, h.plane.Stats()[0].Failed)
}

// TestField_60_StreamsInAnyPieces: events cut anywhere, CRLF, no space after the
// colon, several in one write. The bytes pass as they are; what they say is seen.
func TestField_60_StreamsInAnyPieces(t *testing.T) {
	streams := map[string]bool{ // and whether the engine failed
		"data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\ndata: {\"usage\":{\"total_tokens\":7}}\n\ndata: [DONE]\n\n": false,
		"data:{\"choices\":[]}\r\n\r\ndata:{\"usage\":{}}\r\n\r\ndata:[DONE]\r\n\r\n":                                      false,
		": keep-alive\n\ndata: {\"error\":{\"message\":\"out of memory\"}}\n\ndata: [DONE]\n\n":                            true,
		"data:{\"choices\":[{\"finish_reason\": \"abort\"}]}\r\n\r\n":                                                      true,
		"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n":                           true,
		"event:response.failed\r\ndata: {\"type\":\"response.failed\"}\r\n\r\n":                                            true,
	}
	for stream, failed := range streams {
		for _, piece := range []int{1, 2, 5, 1000} {
			h := newHarness(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
				for part := range slices.Chunk([]byte(stream), piece) {
					_, _ = w.Write(part)
					w.(http.Flusher).Flush()
				}
			})
			resp := h.post(`{"model":"m","stream":true}`)
			require.Equal(t, stream, h.read(resp), "not a byte differs")
			h.requireIdle()
			want := uint64(0)
			if failed {
				want = 1
				require.Contains(t, h.decision(resp.Header).Attempts[0].Error, "in the stream")
			}
			require.Equal(t, want, h.plane.Stats()[0].Failed, "%q in pieces of %d", stream, piece)
		}
	}
}

// raw sends bytes over a connection of its own and reads the answer to its end.
func (h *harness) raw(request string) string {
	h.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
	require.NoError(h.t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(h.t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = io.WriteString(conn, request) // all of it, before anything is read
	require.NoError(h.t, err)
	got, err := io.ReadAll(conn)
	require.NoError(h.t, err)
	return string(got)
}

// TestField_62_FramingIsOurOwn: what frames a message on one connection is made
// anew for the next, and our own answers carry nothing of an engine's.
func TestField_62_FramingIsOurOwn(t *testing.T) {
	type framing struct {
		length   int64
		encoding []string
		header   http.Header
		body     string
	}
	got := make(chan framing, 1)
	h := newHarness(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got <- framing{r.ContentLength, r.TransferEncoding, r.Header, string(b)}
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = io.WriteString(w, "not really gzip")
	})
	h.plane.aliasList = []config.Alias{{Name: "a-much-longer-name", To: map[string]float64{"m": 1}}}
	h.plane.aliases = newAliases(h.plane.aliasList)
	for _, body := range []string{chat, `{"model":"a-much-longer-name"}`} {
		chunked := h.raw(fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTE: trailers\r\nConnection: close, X-Mine\r\nX-Mine: 1\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body))
		require.Contains(t, chunked, "200 OK")
		require.Equal(t, 1, strings.Count(chunked, "Content-Length:"))
		require.Contains(t, chunked, "Content-Encoding: gzip")
		f := <-got
		want := strings.Replace(body, "a-much-longer-name", "m", 1)
		require.Equal(t, want, f.body)
		require.Equal(t, int64(len(want)), f.length)
		require.Empty(t, f.encoding)
		require.Empty(t, f.header["Te"])
		require.Empty(t, f.header["X-Mine"])
		require.Equal(t, []string{fmt.Sprint(len(want))}, f.header["Content-Length"])
	}
	// An engine that begins an answer and breaks off has sent headers too.
	broken := newHarness(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Length", "10")
		w.Header().Set("X-From", "engine")
		w.(http.Flusher).Flush()
		cut(w)
	})
	resp := broken.post(chat)
	require.Empty(t, resp.Header.Get("Content-Encoding"))
	require.Empty(t, resp.Header.Get("X-From"))
	broken.wantError(resp, http.StatusBadGateway, "engine_failed")
}

// TestField_63_TooLargeIsSaid: to clients that write everything before they read,
// chunked or not; and it is never kept.
func TestField_63_TooLargeIsSaid(t *testing.T) {
	f := &flaky{}
	h := newHarnessWith(t, config.Proxy{MaxBody: 1 << 20}, f.ServeHTTP)
	body := strings.Repeat("x", 7<<20)
	for name, framing := range map[string]string{
		"length":  fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body),
		"chunked": fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body),
	} {
		answer := h.raw("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + framing)
		require.True(t, strings.HasPrefix(answer, "HTTP/1.1 413 "), name)
		require.Contains(t, answer, "body_too_large", name)
	}
	// Who asks first is told first.
	conn, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", len(body))
	line, err := textproto.NewReader(bufio.NewReader(conn)).ReadLine()
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1 413 Request Entity Too Large", line)
	require.Zero(t, f.hits.Load())
}

// closesKept is an engine that answers one request on each connection and closes
// it when a second arrives, as if that had crossed with the end of its keep-alive.
func closesKept(t *testing.T) (address string, requests *atomic.Int64) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	requests = &atomic.Int64{}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				r := bufio.NewReader(conn)
				for i := range 2 {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, req.Body)
					requests.Add(1)
					if i == 0 {
						_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
					}
				}
			}()
		}
	}()
	return "http://" + l.Addr().String(), requests
}

// TestField_64_DeadIdleConnectionsCostNoError: also where there is no other engine.
func TestField_64_DeadIdleConnectionsCostNoError(t *testing.T) {
	require.Less(t, idleTimeout, 5*time.Second, "the usual keep-alive of engines")
	h := newHarness(t)
	url, requests := closesKept(t)
	require.NoError(t, h.plane.apply(evenSnapshot(url)))
	for range 20 {
		resp := h.post(chat)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Equal(t, "ok", h.read(resp))
	}
	require.Greater(t, requests.Load(), int64(20), "some were sent over a connection that was just being closed")
	require.False(t, h.plane.table.Load().rows["m"].Targets()[0].Flight.PassedOver())
	h.requireIdle()
}

// TestGracefulDrain: the server stops accepting, and what streams comes to its end.
func TestGracefulDrain(t *testing.T) {
	step := make(chan struct{})
	h := newHarness(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
			<-step
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	})
	front := httptest.NewServer(h.plane.Handler())
	defer front.Close()
	h.url = front.URL
	resp := h.post(chat)
	stopped := make(chan error, 1)
	go func() { stopped <- front.Config.Shutdown(context.WithoutCancel(t.Context())) }()
	until(t, "it accepts no more", func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(front.URL, "http://"))
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	for range 3 {
		step <- struct{}{}
	}
	require.Equal(t, "data: 0\n\ndata: 1\n\ndata: 2\n\ndata: [DONE]\n\n", h.read(resp))
	require.NoError(t, <-stopped)
	h.requireIdle()
}

// FuzzHeaders: headers of a connection never pass, whatever the client names so;
// all others do, value by value, and nothing is added but what proxies add.
func FuzzHeaders(f *testing.F) {
	f.Add("X-A: 1\nConnection: x-b, Keep-Alive\nX-B: 2\nTe: trailers\nX-Forwarded-For: 1.2.3.4", "192.0.2.1:5")
	f.Add("Connection: X-Forwarded-For\nX-Forwarded-For: 6.6.6.6\nX-Forwarded-Proto: https", "[::1]:5")
	f.Add("Connection: close\nConnection: , x-c ,,\nX-C: 1\nX-C: 2\nUpgrade: websocket", "@")
	f.Fuzz(func(t *testing.T, text, remote string) {
		in := http.Header{}
		for line := range strings.SplitSeq(text, "\n") {
			if name, value, ok := strings.Cut(line, ":"); ok && name != "" {
				in.Add(name, strings.TrimSpace(value))
			}
		}
		hop := map[string]bool{
			"Connection": true, "Proxy-Connection": true, "Keep-Alive": true, "Proxy-Authenticate": true, "Proxy-Authorization": true,
			"Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
		}
		for _, line := range in["Connection"] {
			for name := range strings.SplitSeq(line, ",") {
				hop[textproto.CanonicalMIMEHeaderKey(textproto.TrimString(name))] = true
			}
		}
		before := in.Clone()
		r := &http.Request{Header: in, RemoteAddr: remote, Host: "h"}
		out := http.Header{}
		copyHeader(out, in)
		for name, values := range in {
			if hop[name] {
				require.NotContains(t, out, name)
			} else {
				require.Equal(t, values, out[name])
			}
		}
		require.Subset(t, keys(in), keys(out))
		forwarded(out, r)
		require.Equal(t, before, in, "the client's own headers are left alone")
		if host, _, err := net.SplitHostPort(remote); err == nil {
			require.Len(t, out["X-Forwarded-For"], 1)
			require.True(t, strings.HasSuffix(out["X-Forwarded-For"][0], host), "who came to us is the last")
			if hop["X-Forwarded-For"] {
				require.Equal(t, host, out["X-Forwarded-For"][0])
			}
		}
		for name := range out {
			switch name {
			case "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto":
			default:
				require.False(t, hop[name])
				require.Equal(t, in[name], out[name])
			}
		}
	})
}

func keys(h http.Header) (out []string) {
	for name := range h {
		out = append(out, name)
	}
	return out
}
