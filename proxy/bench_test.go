//go:build unix

package proxy

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/fleet"
)

// The proxies under test are processes of their own, so that what they use is
// not mixed up with clients and engines. These variables make the test binary be
// one; with the last, a directory, it writes a CPU profile there.
const (
	benchProxy    = "WARDROP_BENCH_PROXY"
	benchEngines  = "WARDROP_BENCH_ENGINES"
	benchProfiles = "WARDROP_BENCH_PROFILES"
)

const (
	benchClients  = 64
	benchSessions = 64      // of each client
	benchBody     = 2 << 10 // bytes of a request
	benchSlice    = 250 * time.Millisecond
	benchTurns    = 8 // of each proxy in a round
)

func init() {
	if kind := os.Getenv(benchProxy); kind != "" {
		if err := beProxy(kind, strings.Split(os.Getenv(benchEngines), ",")); err != nil {
			log.Fatal(err)
		}
		os.Exit(0)
	}
}

// beProxy serves until its input ends. It prints its address and then, for each
// line of input, the CPU time that it has used, in microseconds, or for the line
// "memory" what of it is resident, in KiB.
func beProxy(kind string, engines []string) error {
	if dir := os.Getenv(benchProfiles); dir != "" {
		f, err := os.Create(filepath.Join(dir, kind+".pprof"))
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if kind == "relay" {
		go relayBytes(l, strings.TrimPrefix(engines[0], "http://"))
	} else {
		handler, err := benchHandler(kind, engines)
		if err != nil {
			return err
		}
		server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
		if kind == "hold" {
			server.HTTP2, server.Protocols = &http.HTTP2Config{MaxConcurrentStreams: 1 << 20}, new(http.Protocols)
			server.Protocols.SetHTTP1(true)
			server.Protocols.SetUnencryptedHTTP2(true)
		}
		go func() { _ = server.Serve(l) }()
	}
	fmt.Println(l.Addr())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if in.Text() == "memory" {
			fmt.Println(resident())
			continue
		}
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			return err
		}
		fmt.Println((u.Utime.Nano() + u.Stime.Nano()) / 1000)
	}
	return nil
}

func benchHandler(kind string, engines []string) (http.Handler, error) {
	switch kind {
	case "reverseproxy":
		return tunedReverseProxy(engines)
	case "constant":
		return constantRefusal(), nil
	case "hold":
		return http.HandlerFunc(hold), nil
	}
	p, err := New(Options{
		Cluster: "c", Proxy: config.Proxy{MaxBody: 16 << 20, Bound: 0.5, RetryBudget: 0.2, RecordRate: 100, UploadTimeout: config.Duration(10 * time.Second)},
		Control: noControl, Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	s := evenSnapshot(engines...)
	switch kind {
	case "shedding":
		s.Rows[0].Shed[fleet.Standard] = 1
	case "h2c":
		for i := range s.Engines {
			s.Engines[i].Protocol = "h2c"
		}
	}
	return p.Handler(), p.apply(s)
}

// relayBytes is the least that anything between a client and an engine can do: it
// knows no HTTP.
func relayBytes(l net.Listener, engine string) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = client.Close() }()
			upstream, err := net.Dial("tcp", engine)
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(client, upstream)
				_ = client.Close()
			}()
			_, _ = io.Copy(upstream, client)
			_ = upstream.Close()
		}()
	}
}

// constantRefusal is the least that a server of net/http can do to refuse a request.
func constantRefusal() http.Handler {
	body := []byte(`{"error":{"message":"no"}}`)
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write(body)
	})
}

// tunedReverseProxy is the standard library's proxy at its best: connections are
// kept, buffers pooled, nothing is decompressed. Upstreams are drawn at random.
func tunedReverseProxy(engines []string) (http.Handler, error) {
	var bases []*url.URL
	for _, e := range engines {
		u, err := url.Parse(e)
		if err != nil {
			return nil, err
		}
		bases = append(bases, u)
	}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(bases[rand.IntN(len(bases))])
			r.SetXForwarded()
		},
		Transport:  &http.Transport{MaxIdleConnsPerHost: 1024, IdleConnTimeout: 4 * time.Second, DisableCompression: true},
		BufferPool: &bufferPool{sync.Pool{New: func() any { b := make([]byte, 16<<10); return &b }}},
		ErrorLog:   log.New(io.Discard, "", 0),
	}, nil
}

type bufferPool struct{ sync.Pool }

func (p *bufferPool) Get() []byte  { return *p.Pool.Get().(*[]byte) }
func (p *bufferPool) Put(b []byte) { p.Pool.Put(&b) }

// child is a proxy under test.
type child struct {
	b    *testing.B
	addr string
	pid  int
	in   io.WriteCloser
	out  *bufio.Scanner
}

func startChild(b *testing.B, kind string, engines []string) *child {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), benchProxy+"="+kind, benchEngines+"="+strings.Join(engines, ","))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(b, err)
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	c := &child{b: b, pid: cmd.Process.Pid, in: in, out: bufio.NewScanner(out)}
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	c.addr = c.line()
	return c
}

// memory is what of the proxy is resident, in bytes.
func (c *child) memory() int {
	c.b.Helper()
	_, err := io.WriteString(c.in, "memory\n")
	require.NoError(c.b, err)
	n, err := strconv.Atoi(c.line())
	require.NoError(c.b, err)
	return n << 10
}

// resident reads this process's resident memory, in KiB.
func resident() (kib int) {
	runtime.GC()
	debug.FreeOSMemory()
	b, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	_, _ = fmt.Sscan(rest, &kib)
	return kib
}

func (c *child) line() string {
	c.b.Helper()
	require.True(c.b, c.out.Scan(), "the proxy has ended")
	return c.out.Text()
}

// cpu is the CPU time that the proxy has used.
func (c *child) cpu() time.Duration {
	c.b.Helper()
	_, err := io.WriteString(c.in, "cpu\n")
	require.NoError(c.b, err)
	n, err := strconv.ParseInt(c.line(), 10, 64)
	require.NoError(c.b, err)
	return time.Duration(n) * time.Microsecond
}

// stubEngine answers every request in one chunk. It speaks just as much HTTP as
// the proxies need, so that it costs little beside them.
func stubEngine(b *testing.B) (base string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	answer := `{"id":"cmpl-1","object":"chat.completion","model":"m","choices":[{"index":0,"message":` +
		`{"role":"assistant","content":"` + strings.Repeat("word ", 40) + `"},"finish_reason":"stop"}]}`
	reply := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(answer), answer)
	var mu sync.Mutex
	var wg sync.WaitGroup
	var conns []net.Conn
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				r := bufio.NewReaderSize(c, 4<<10)
				for readMessage(r) == nil {
					if _, err := c.Write(reply); err != nil {
						return
					}
				}
			})
		}
	})
	b.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return "http://" + l.Addr().String()
}

// BenchmarkProxy compares this proxy with the standard library's in front of the
// same two engines.
func BenchmarkProxy(b *testing.B) {
	engines := []string{stubEngine(b), stubEngine(b)}
	const own, std = 0, 1
	kinds := [...]string{own: "wardrop", std: "reverseproxy"}
	children, clients := startChildren(b, engines, kinds[:]...)
	sums := inTurns(b, children, clients)
	require.Zero(b, sums[own].broken)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(sums[own].cpuMicros(), "cpu-us/req")
	b.ReportMetric(sums[own].perSecond(), "req/s")
	b.ReportMetric(sums[own].cpuMicros()/sums[std].cpuMicros(), "cpu-ratio")
	b.ReportMetric(sums[own].perSecond()/sums[std].perSecond(), "req/s-ratio")
	for i, kind := range kinds {
		s := &sums[i]
		b.Logf("%-12s  %6.0f req/s  %5.1f us of CPU a request  p50 %5.2f ms  p99 %5.2f ms  %d of %d broken", kind, s.perSecond(), s.cpuMicros(),
			1e3*s.percentile(0.5).Seconds(), 1e3*s.percentile(0.99).Seconds(), s.broken, s.requests+s.broken)
	}
}
