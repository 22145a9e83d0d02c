//go:build unix

package proxy

import (
	"bufio"
	"bytes"
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
	"slices"
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
	handler, err := benchHandler(kind, engines)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	go func() { _ = server.Serve(l) }()
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
	}
	p, err := New(Options{
		Cluster: "c", Proxy: config.Proxy{MaxBody: 16 << 20, Bound: 0.5, RetryBudget: 0.2, UploadTimeout: config.Duration(10 * time.Second)},
		Control: noControl{}, Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	s := evenSnapshot(engines...)
	if kind == "shedding" {
		s.Rows[0].Shed[fleet.Standard] = 1
	}
	return p.Handler(), p.apply(s)
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

// readMessage reads one HTTP message, whole: its headers, and its body by length
// or in chunks.
func readMessage(r *bufio.Reader) error {
	length, chunked := 0, false
	for first := true; ; first = false {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		if first && bytes.HasPrefix(line, []byte("HTTP/")) && !bytes.Contains(line, []byte(" 200 ")) && !bytes.Contains(line, []byte(" 429 ")) {
			return fmt.Errorf("answered %q", line)
		}
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(value)); err != nil {
				return err
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			chunked = true
		}
	}
	if !chunked {
		_, err := r.Discard(length)
		return err
	}
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(string(bytes.TrimRight(line, "\r\n")), 16, 32)
		if err != nil {
			return err
		}
		if _, err := r.Discard(int(n) + 2); err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
	}
}

// slice is what clients saw for a while, and what the proxy used.
type slice struct {
	requests, broken int // broken: the connection ended before the answer
	took, cpu        time.Duration
	latencies        []time.Duration
}

func (s *slice) add(o slice) {
	s.requests, s.broken = s.requests+o.requests, s.broken+o.broken
	s.took, s.cpu = s.took+o.took, s.cpu+o.cpu
	s.latencies = append(s.latencies, o.latencies...)
}

func (s *slice) perSecond() float64 { return float64(s.requests) / s.took.Seconds() }
func (s *slice) cpuMicros() float64 { return s.cpu.Seconds() * 1e6 / float64(s.requests) }
func (s *slice) percentile(q float64) time.Duration {
	slices.Sort(s.latencies)
	return s.latencies[int(q*float64(len(s.latencies)-1))]
}

// client asks one question after the other over a connection that it keeps.
type client struct {
	addr     string
	requests [][]byte
	next     int
	conn     net.Conn
	r        *bufio.Reader
}

// ask makes one exchange; after a broken one the connection is made anew.
func (c *client) ask() error {
	if c.conn == nil {
		conn, err := net.Dial("tcp", c.addr)
		if err != nil {
			return err
		}
		c.conn, c.r = conn, bufio.NewReaderSize(conn, 4<<10)
	}
	c.next++
	_, err := c.conn.Write(c.requests[c.next%len(c.requests)])
	if err == nil {
		err = readMessage(c.r)
	}
	if err != nil {
		c.close()
	}
	return err
}

func (c *client) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// load has clients ask as fast as they are answered.
func load(clients []*client) slice {
	var mu sync.Mutex
	var sum slice
	var wg sync.WaitGroup
	begin := time.Now()
	for _, c := range clients {
		wg.Go(func() {
			var s slice
			for now := time.Now(); now.Sub(begin) < benchSlice; {
				err := c.ask()
				end := time.Now()
				if err == nil {
					s.requests++
					s.latencies = append(s.latencies, end.Sub(now))
				} else {
					s.broken++
				}
				now = end
			}
			mu.Lock()
			defer mu.Unlock()
			sum.add(s)
		})
	}
	wg.Wait()
	sum.took = time.Since(begin)
	return sum
}

// newClients makes the clients of a proxy, each with sessions of its own, so that
// they spread over the engines.
func newClients(b *testing.B, addr string) []*client {
	filler := strings.Repeat("All work and no play. ", benchBody/22+1)
	out := make([]*client, benchClients)
	for c := range out {
		out[c] = &client{addr: addr}
		b.Cleanup(out[c].close)
		for s := range benchSessions {
			body := fmt.Sprintf(`{"model":"m","max_tokens":64,"messages":[{"role":"system","content":"Session %d of %d. `, s, c)
			body += filler[:benchBody-len(body)-len(`"}]}`)] + `"}]}`
			out[c].requests = append(out[c].requests, fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"+
				"User-Agent: bench\r\nAuthorization: Bearer 0123456789abcdef\r\nX-Session-Id: %d-%d\r\nContent-Length: %d\r\n\r\n%s",
				addr, c, s, len(body), body))
		}
	}
	return out
}

// startChildren starts a proxy of each kind with its clients, and warms them up.
func startChildren(b *testing.B, engines []string, kinds ...string) (children []*child, clients [][]*client) {
	for i, kind := range kinds {
		children = append(children, startChild(b, kind, engines))
		clients = append(clients, newClients(b, children[i].addr))
		for range 4 {
			load(clients[i])
		}
	}
	return children, clients
}

// inTurns loads proxies in short turns, so that whatever else the machine does
// falls on all.
func inTurns(b *testing.B, children []*child, clients [][]*client) []slice {
	sums := make([]slice, len(children))
	b.ResetTimer()
	defer b.StopTimer()
	for range b.N {
		for turn := range len(children) * benchTurns {
			i := turn % len(children)
			before := children[i].cpu()
			s := load(clients[i])
			s.cpu = children[i].cpu() - before
			sums[i].add(s)
		}
	}
	return sums
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
