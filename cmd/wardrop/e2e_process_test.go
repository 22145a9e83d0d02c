package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// asWardrop makes the test binary be wardrop, so that the processes of these
// tests are built as the tests are: with the race detector where they have it.
const asWardrop = "WARDROP_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asWardrop) != "" {
		go func() {
			// The test holds the other end: however it ends, nothing outlives it.
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(3)
		}()
		main()
	}
	os.Exit(m.Run())
}

const (
	patience = 40 * time.Second // for what takes seconds on a quiet machine
	poll     = 20 * time.Millisecond
)

// process is a wardrop that runs until the test ends or stops it.
type process struct {
	t           *testing.T
	args        []string
	cmd         *exec.Cmd
	stdout, log lockedBuffer
	done        chan struct{}
}

func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{t: t, args: args, cmd: exec.Command(os.Args[0], args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), asWardrop+"=1")
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.log
	_, err := p.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("wardrop %s said:\n%s\n%s", strings.Join(args, " "), p.stdout.String(), p.log.String())
		}
	})
	return p
}

// says waits until the process has printed a text and gives all it printed.
func (p *process) says(text string) string {
	p.t.Helper()
	p.until("it says "+text, func() bool { return strings.Contains(p.stdout.String(), text) })
	return p.stdout.String()
}

// logs waits until the process has logged a text.
func (p *process) logs(text string) {
	p.t.Helper()
	p.until("it logs "+text, func() bool { return strings.Contains(p.log.String(), text) })
}

// until polls; it fails the test when the process ends before or takes too long.
func (p *process) until(what string, ok func() bool) {
	p.t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for !ok() {
		select {
		case <-p.done:
			p.t.Fatalf("%s ended before: %s", p.args[0], what)
		case <-deadline:
			p.t.Fatalf("%s: still not: %s", p.args[0], what)
		case <-tick.C:
		}
	}
}

// stop sends a signal, waits for the end and gives the exit code.
func (p *process) stop(s os.Signal) int {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
	return p.wait()
}

func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(2 * patience):
		// The goroutines of a process that does not end tell why.
		_ = p.cmd.Process.Signal(syscall.SIGQUIT)
		<-p.done
		p.t.Fatalf("%s does not end", p.args[0])
	}
	return p.cmd.ProcessState.ExitCode()
}

// kill ends the process as a crash does.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
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

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// requireRefused checks that nobody listens.
func requireRefused(t *testing.T, addr string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err == nil {
		_ = conn.Close()
	}
	require.ErrorIs(t, err, syscall.ECONNREFUSED, addr)
}

// writeFile replaces a file at once, so that no reader sees half of it.
func writeFile(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".new", []byte(text), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

// newFile writes a configuration of its own directory.
func newFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "wardrop.yaml")
	writeFile(t, path, text)
	return path
}

// get decodes a JSON page; false while there is none.
func get(url string, into any) bool {
	resp, err := http.Get(url)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode == http.StatusOK && json.NewDecoder(resp.Body).Decode(into) == nil
}

// status gives a page's status; 0 while nobody answers.
func status(url string) int {
	resp, err := http.Get(url)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// answer is what a client got.
type answer struct {
	status int
	engine string // that answered
	took   time.Duration
	body   string
	id     string // of the decision
}

// asked numbers the questions: each is another conversation, with an affinity of
// its own.
var asked atomic.Int64

// ask sends one chat request and reads the whole answer.
func ask(base, model string, maxTokens int, stream bool) (answer, error) {
	body := fmt.Sprintf(`{"model":%q,"max_tokens":%d,"stream":%t,"messages":[{"role":"user","content":"Question %d"}]}`,
		model, maxTokens, stream, asked.Add(1))
	begin := time.Now()
	resp, err := http.Post(base+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header.Get("x-engine"), time.Since(begin), string(b), resp.Header.Get("x-wardrop-decision")}, err
}

// requireAnswer asks and wants an answer of the model.
func requireAnswer(t *testing.T, base, model string) answer {
	t.Helper()
	a, err := ask(base, model, 1, false)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, a.status, a.body)
	return a
}
