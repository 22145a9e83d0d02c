package integration

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/internal/testaddr"
)

// real gives what scripts/real-engines.sh has installed.
func real(t testing.TB, name string) string {
	t.Helper()
	require.Regexp(t, "^Test(Llama|VLLM|Envoy)", t.Name(), "these are the names of tests with real engines")
	v := os.Getenv(name)
	if v == "" {
		t.Skipf("%s is not set: run `env $(scripts/real-engines.sh) go test ./integration`", name)
	}
	return v
}

// scratch is where the binary lies, for as long as the tests run.
var scratch string

func TestMain(m *testing.M) {
	// The tests wait for processes most of the time: twice as many as there are cores for.
	flag.Parse()
	if parallel := flag.Lookup("test.parallel").Value; parallel.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		if err := parallel.Set(strconv.Itoa(2 * runtime.GOMAXPROCS(0))); err != nil {
			panic(err)
		}
	}
	var err error
	if scratch, err = os.MkdirTemp("", "wardrop-integration"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(scratch)
	os.Exit(code)
}

// binary builds wardrop once; WARDROP_BINARY names one that is there already.
var binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("WARDROP_BINARY"); path != "" {
		return path, nil
	}
	path := filepath.Join(scratch, "wardrop")
	out, err := exec.Command("go", "build", "-o", path, "../cmd/wardrop").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// process is a program that runs until the test ends or stops it.
type process struct {
	t    testing.TB
	cmd  *exec.Cmd
	log  lockedBuffer
	done chan struct{}
}

func run(t testing.TB, name string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(name, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	require.NoError(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.stop(syscall.SIGTERM)
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(name), p.log.tail())
		}
	})
	return p
}

// stop sends the signal and waits until the process has ended.
func (p *process) stop(s syscall.Signal) {
	select {
	case <-p.done:
		return
	default:
	}
	_ = p.cmd.Process.Signal(s)
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// until polls until ok, and fails the test if the process ends or a minute passes.
func (p *process) until(what string, ok func() bool) {
	p.t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-p.done:
			p.t.Fatalf("it ended before: %s\n%s", what, p.log.tail())
		case <-deadline:
			p.t.Fatalf("still not: %s\n%s", what, p.log.tail())
		case <-tick.C:
		}
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.b.Bytes()
	return string(b[max(0, len(b)-4000):])
}

func (l *lockedBuffer) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func status(url string) int {
	resp, err := http.Get(url)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// get gives the body of a page, "" while there is none.
func get(url string) string {
	resp, err := http.Get(url)
	if err != nil {
		return ""
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return ""
	}
	return string(b)
}

// llama is one llama-server with two slots.
type llama struct {
	*process
	addr string
}

const model = "smollm2"

func startLlama(t *testing.T, addr string) *llama {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	// One thread: with more, the two engines spin for each other's core.
	l := &llama{addr: addr, process: run(t, real(t, "WARDROP_LLAMA_SERVER"),
		"--model", real(t, "WARDROP_GGUF"), "--alias", model, "--host", host, "--port", port,
		"--metrics", "--threads", "1", "--threads-batch", "1", "--ctx-size", "4096", "--parallel", "2")}
	l.until("the engine is healthy", func() bool { return status(l.url()+"/health") == 200 })
	return l
}

func (l *llama) url() string { return "http://" + l.addr }

// metric reads one series of the engine.
func (l *llama) metric(name string) float64 {
	l.t.Helper()
	for line := range strings.Lines(get(l.url() + "/metrics")) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			require.NoError(l.t, err)
			return v
		}
	}
	l.t.Fatalf("no %s on the page of %s", name, l.addr)
	return 0
}

func (l *llama) working() bool { return l.metric("llamacpp:requests_processing") > 0 }

// startWardrop runs control plane and data plane in front of the engines and
// gives the base URL of the OpenAI API.
func startWardrop(t *testing.T, engines ...*llama) string {
	t.Helper()
	path, err := binary()
	require.NoError(t, err)
	dir, listen := t.TempDir(), testaddr.Own(t)
	var c strings.Builder
	fmt.Fprintf(&c, "control: {listen: %q, admin: %q, store: memory, data: %q}\n", testaddr.Own(t), testaddr.Own(t), dir)
	fmt.Fprintf(&c, "policy: {tick: 500ms}\nproxy: {data: %q}\n", dir)
	fmt.Fprintf(&c, "clusters:\n  - {name: here, region: local, listen: %q, distances: {local: 1ms}}\nengines:\n", listen)
	for i, e := range engines {
		fmt.Fprintf(&c, "  - {name: llama-%d, region: local, url: %q, kind: llamacpp, models: [%s], "+
			"profile: {t0: 100ms, u_max: 50, batch: 2}}\n", i, e.url(), model)
	}
	fmt.Fprintf(&c, "demand:\n  - {cluster: here, model: %s, rate: 2}\n", model)
	file := filepath.Join(dir, "wardrop.yaml")
	require.NoError(t, os.WriteFile(file, []byte(c.String()), 0o600))

	p := run(t, path, "up", "-c", file)
	base := "http://" + listen + "/v1"
	p.until("the data plane lists the model", func() bool { return strings.Contains(get(base+"/models"), model) })
	return base
}
