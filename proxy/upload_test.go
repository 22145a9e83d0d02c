package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
)

// uploader sends one request in pieces, in virtual time.
type uploader struct {
	*bubble
	hits atomic.Int64
	conn net.Conn
	sent atomic.Int64 // bytes that were taken of the body
}

func newUploader(t *testing.T, settings config.Proxy, engine http.HandlerFunc) *uploader {
	u := &uploader{}
	u.bubble = newBubble(t, settings, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.hits.Add(1)
		engine(w, r)
	}))
	var err error
	u.conn, err = u.net.dial(t.Context(), "tcp", "front:80")
	require.NoError(t, err)
	t.Cleanup(func() { _ = u.conn.Close() })
	return u
}

// send writes a request's head and then its body, a piece at a time with a pause
// behind each. It gives the answer and how long that took to begin.
func (u *uploader) send(head, body string, piece int, pause time.Duration) (*http.Response, time.Duration) {
	u.t.Helper()
	start := time.Now()
	stop := make(chan struct{})
	u.t.Cleanup(func() { close(stop) })
	go func() {
		fmt.Fprintf(u.conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", head)
		for len(body) > 0 {
			n, err := io.WriteString(u.conn, body[:min(piece, len(body))])
			if u.sent.Add(int64(n)); err != nil {
				return
			}
			body = body[n:]
			select {
			case <-time.After(pause):
			case <-stop:
				return
			}
		}
	}()
	resp, err := http.ReadResponse(bufio.NewReader(u.conn), nil)
	require.NoError(u.t, err)
	return resp, time.Since(start)
}

// bodyOf is a request's body of about that size.
func bodyOf(size int) string { return `{"model":"m","prompt":"` + strings.Repeat("x", size) + `"}` }

func length(body string) string { return fmt.Sprint("Content-Length: ", len(body)) }

var tenSeconds = config.Proxy{UploadTimeout: config.Duration(10 * time.Second)}

// requireAbout: bodies are looked at now and then.
func requireAbout(t *testing.T, want, got time.Duration) {
	t.Helper()
	require.GreaterOrEqual(t, got, want)
	require.LessOrEqual(t, got, want+want/4)
}

// TestTricklingBodyIsRefused: a byte now and then is no progress. The client is
// told, its connection closed, and nothing of it is held.
func TestTricklingBodyIsRefused(t *testing.T) {
	small, large := bodyOf(1000), bodyOf(smallBody)
	for name, c := range map[string]struct {
		head, body string
		piece      int
	}{
		"small":          {length(small), small, 1},
		"large":          {length(large), large, 1},
		"chunked":        {"Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s", len(large), large), 1},
		"silence":        {length(small), small[:10], 10},
		"silence at all": {length(small), "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := newUploader(t, tenSeconds, answers("no"))
				resp, took := u.send(c.head, c.body, c.piece, time.Second)
				(&harness{t: t}).wantError(resp, http.StatusRequestTimeout, "slow_body")
				requireAbout(t, 10*time.Second, took)
				require.True(t, resp.Close)
				_, err := u.conn.Read(make([]byte, 1))
				require.ErrorIs(t, err, io.EOF)
				require.Zero(t, u.hits.Load())
				synctest.Wait()
				require.Zero(t, u.plane.memory.models["m"].demand[1].total.Load())
			})
		})
	}
}

// TestQuickBeginningBuysNoRest: much at once and then nothing.
func TestQuickBeginningBuysNoRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := bodyOf(900_000)
		u := newUploader(t, tenSeconds, answers("no"))
		resp, took := u.send(length(body), body[:800_000], 800_000, time.Hour)
		require.Equal(t, http.StatusRequestTimeout, resp.StatusCode)
		requireAbout(t, 20*time.Second, took)
	})
}

// TestSlowButSteadyBodyPasses: half a megabyte in five minutes; and what follows the
// body has no limit of its own.
func TestSlowButSteadyBodyPasses(t *testing.T) {
	for name, head := range map[string]string{"length": "", "chunked": "Transfer-Encoding: chunked"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := make(chan string, 1)
				u := newUploader(t, tenSeconds, func(w http.ResponseWriter, r *http.Request) {
					b, _ := io.ReadAll(r.Body)
					got <- string(b)
					time.Sleep(time.Hour) // virtual
					_, _ = io.WriteString(w, "at last")
				})
				body := bodyOf(500_000)
				wire := body
				if head == "" {
					head = length(body)
				} else {
					wire = fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
				}
				resp, took := u.send(head, wire, 2000, time.Second)
				require.Equal(t, http.StatusOK, resp.StatusCode)
				require.Equal(t, body, <-got)
				require.Greater(t, took, time.Hour+4*time.Minute) // 250 pieces
				b, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.Equal(t, "at last", string(b))
			})
		})
	}
}

// TestConnectionServesOnAfterASlowBody: no deadline stays behind.
func TestConnectionServesOnAfterASlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUploader(t, tenSeconds, answersBody)
		for range 3 {
			body := bodyOf(30_000)
			resp, _ := u.send(length(body), body, 2000, time.Second)
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, body, string(got))
			time.Sleep(time.Minute) // virtual
		}
	})
}

// TestTooLargeAndSlow: what is read of a body that is refused anyway has the same
// bound.
func TestTooLargeAndSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUploader(t, tenSeconds, answers("no"))
		resp, took := u.send("Content-Length: 4000000", strings.Repeat("x", 100), 1, time.Second)
		(&harness{t: t}).wantError(resp, http.StatusRequestEntityTooLarge, "body_too_large")
		requireAbout(t, 10*time.Second, took)
		_, err := u.conn.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	})
}

// TestPromisesHoldNoMemory: a client that says that it will send much gets memory
// for what it sends.
func TestPromisesHoldNoMemory(t *testing.T) {
	r, err := http.NewRequest(http.MethodPost, "/", io.LimitReader(strings.NewReader("x"), 1))
	require.NoError(t, err)
	r.ContentLength = 1 << 30
	b, err := new(uploads).read(new(upload), r, 1<<31, time.Now())
	require.NoError(t, err)
	require.LessOrEqual(t, cap(b.data), 2*promisedMax)
	b.release()
}
