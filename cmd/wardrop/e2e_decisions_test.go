package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/internal/testaddr"
	"github.com/wardrop-lb/wardrop/proxy"
)

// What a request met is told by its id, why another engine did not get it, and all of it can be
// decided again from a file.
func TestDecisionsAreToldAndMadeAgain(t *testing.T) {
	t.Parallel()
	dir, control, plane := t.TempDir(), testaddr.Own(t), testaddr.Own(t)
	access := filepath.Join(dir, "access.jsonl")
	file := newFile(t, fmt.Sprintf(`
control: {admin: %q}
proxy: {access_log: %q}
clusters:
  - {name: a, region: a, admin: %q, distances: {a: 1ms, c: 400ms}}
engines:
  - {name: near, region: a, models: [demo], profile: {t0: 100ms, u_max: 125, batch: 200}}
  - {name: far, region: c, models: [demo], profile: {t0: 100ms, u_max: 125, batch: 200}}
demand:
  - {cluster: a, model: demo, rate: 10}
`, control, access, plane))
	p := start(t, "up", "--quiet", "-c", file)
	base := p.ready().urls["a"]
	const asked = 30
	var last answer
	for range asked {
		last = requireAnswer(t, base, "demo")
	}
	require.Equal(t, "near", last.engine)

	code, out, errors := wardrop(t, "why", "not", last.id, "--engine", "far", "-c", file)
	require.Zero(t, code, errors)
	require.Contains(t, out, "near was picked.")
	code, out, errors = wardrop(t, "why", "not", "--engine", "far", "--cluster", "a", "--model", "demo", "-c", file)
	require.Zero(t, code, errors)
	require.Contains(t, out, "far")
	require.Contains(t, out, "It would get some at a demand of ", "what would have to be different")
	code, _, errors = wardrop(t, "why", "not", "--engine", "far")
	require.Equal(t, exitInvalid, code)
	require.Contains(t, errors, "Give the ID of a decision, or --cluster and --model")

	saved := filepath.Join(dir, "decisions.jsonl")
	code, _, errors = wardrop(t, "decisions", "-c", file, "--replay", "-o", saved)
	require.Zero(t, code, errors)
	code, out, errors = wardrop(t, "replay", saved)
	require.Zero(t, code, out+errors)
	require.Equal(t, fmt.Sprintf("%d decisions made again: %d came out the same, 0 did not\n", asked, asked), out)
	text, err := os.ReadFile(saved)
	require.NoError(t, err)
	spoilt := filepath.Join(dir, "spoilt.jsonl")
	writeFile(t, spoilt, strings.Replace(string(text), `"picked":"near"`, `"picked":"far"`, 1))
	code, out, errors = wardrop(t, "replay", spoilt)
	require.Equal(t, exitFailed, code)
	require.Contains(t, out, `"near" comes out, and was "far"`)
	require.Contains(t, errors, fmt.Sprintf("1 of %d decisions came out otherwise", asked))
	_, bare, _ := strings.Cut(string(text), "\n")
	writeFile(t, spoilt, bare)
	code, _, errors = wardrop(t, "replay", spoilt)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errors, "none could be made again")
	code, out, errors = wardrop(t, "decisions", "--admin", plane, "--kept", "error")
	require.Zero(t, code, errors)
	require.Empty(t, out)

	require.Zero(t, p.stop(syscall.SIGTERM))
	lines := strings.Split(strings.TrimSpace(readAll(t, access)), "\n")
	require.Len(t, lines, asked)
	var d proxy.Decision
	require.NoError(t, json.Unmarshal([]byte(lines[asked-1]), &d))
	require.Equal(t, last.id, d.ID)
	require.Equal(t, "near", d.Attempts[0].Engine)
}

func readAll(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(b)
}

// endless is an engine that begins an answer and does not end it.
func endless(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Method != http.MethodPost {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	return s.URL
}

const endlessFleet = `
control: {admin: %q}
proxy: {access_log: %q, drain: 100ms}
clusters:
  - {name: a, region: a, distances: {a: 1ms}}
engines:
  - {name: near, region: a, url: %q, models: [demo], profile: {t0: 100ms, u_max: 125, batch: 200}}
demand:
  - {cluster: a, model: demo, rate: 10}
`

// What is cut off when the process ends is in the access log all the same.
func TestTheLastLinesAreWritten(t *testing.T) {
	t.Parallel()
	access := filepath.Join(t.TempDir(), "access.jsonl")
	p := start(t, "up", "--quiet", "-c", newFile(t, fmt.Sprintf(endlessFleet, testaddr.Own(t), access, endless(t))))
	base := p.ready().urls["a"]
	const streams = 20
	for range streams {
		resp, err := http.Post(base+"/v1/chat/completions", "application/json", strings.NewReader(`{"model":"demo","stream":true,"messages":[]}`))
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		require.Equal(t, http.StatusOK, resp.StatusCode)
	}
	require.Zero(t, p.stop(syscall.SIGTERM))
	lines := strings.Split(strings.TrimSpace(readAll(t, access)), "\n")
	require.Len(t, lines, streams)
	for _, line := range lines {
		var d proxy.Decision
		require.NoError(t, json.Unmarshal([]byte(line), &d))
		require.NotEmpty(t, d.Aborted)
	}
}

// A disk without room for the access log costs no request, and is told.
func TestFullDiskUnderTheAccessLog(t *testing.T) {
	t.Parallel()
	const full = "/dev/full"
	if _, err := os.Stat(full); err != nil {
		t.Skip("this system has no disk that is full")
	}
	p := start(t, "up", "--quiet", "-c", newFile(t, strings.Replace(fmt.Sprintf(endlessFleet, testaddr.Own(t), full, "http://127.0.0.1:1"), "url: \"http://127.0.0.1:1\", ", "", 1)))
	requireAnswer(t, p.ready().urls["a"], "demo")
	p.logs("the access log cannot be written; lines are lost")
	requireAnswer(t, p.ready().urls["a"], "demo")
	require.Zero(t, p.stop(syscall.SIGTERM))
	require.Contains(t, p.log.String(), "the access log ends")
	require.Contains(t, p.log.String(), "dropped=2")
}
