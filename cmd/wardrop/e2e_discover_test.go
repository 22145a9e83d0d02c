package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/explain"
	"github.com/wardrop-lb/wardrop/internal/testaddr"
)

// Nobody writes down but addresses: engines come from a file, their models from
// themselves, requests get there; a file that is wrong changes nothing, and neither does
// a control plane that comes back while the file is away.
func TestEnginesAreFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	list, file := filepath.Join(dir, "engines.yaml"), filepath.Join(dir, "wardrop.yaml")
	first, second := testaddr.Own(t), testaddr.Own(t)
	start(t, "testengine", "--listen", first, "--model", "base", "--model", "adapter")
	start(t, "testengine", "--listen", second, "--model", "other")
	writeFile(t, list, fmt.Sprintf("engines: [{url: 'http://%s'}]", first))

	wire, adminAt, requests := testaddr.Own(t), testaddr.Own(t), testaddr.Own(t)
	writeFile(t, file, fmt.Sprintf(`control: {store: memory, listen: %q, admin: %q, data: %q}
policy: {tick: 200ms}
proxy: {data: %q}
clusters: [{name: a, region: a, listen: %q, distances: {a: 5ms}}]
discover: [{file: %q, region: a}]
`, wire, adminAt, filepath.Join(dir, "control"), filepath.Join(dir, "proxy"), requests, list))
	control := start(t, "control", "-c", file)
	start(t, "proxy", "-c", file, "--cluster", "a")
	engines := func() map[string]explain.Engine {
		var p explain.Plan
		get("http://"+adminAt+"/v1/plan", &p)
		return p.Engines
	}
	control.until("the engine is in the plan", func() bool { return len(engines()) == 1 })
	require.Contains(t, engines(), first)
	answers := func(model string) bool {
		a, err := ask("http://"+requests, model, 4, false)
		return err == nil && a.status == http.StatusOK
	}
	control.until("its adapter answers", func() bool { return answers("adapter") })

	writeFile(t, list, fmt.Sprintf("engines: [{url: 'http://%s'}, {url: 'http://%s', name: second}]", first, second))
	control.until("what the second serves answers", func() bool { return answers("other") })
	writeFile(t, list, "engines: [{ulr: x}]")
	control.logs(list + ":1:12: unknown key")
	require.Len(t, engines(), 2)

	require.NoError(t, os.Remove(list))
	control.kill()
	control = start(t, "control", "-c", file)
	control.until("it plans again", func() bool { return len(engines()) > 0 })
	require.Len(t, engines(), 2, "what was found before counts")
	require.True(t, answers("other"))
}

// `wardrop up` finds engines too.
func TestUpFindsEngines(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	list, file := filepath.Join(dir, "engines.yaml"), filepath.Join(dir, "wardrop.yaml")
	writeFile(t, list, "engines: []")
	requests := testaddr.Own(t)
	writeFile(t, file, fmt.Sprintf(`control: {admin: "127.0.0.1:0"}
policy: {tick: 200ms}
clusters: [{name: a, region: a, listen: %q, distances: {a: 5ms}}]
discover: [{file: %q, region: a}]
`, requests, list))
	up := start(t, "up", "-c", file, "--quiet", "--for", (5 * time.Minute).String())
	up.says("No engine serves a model yet")
	engine := testaddr.Own(t)
	start(t, "testengine", "--listen", engine)
	writeFile(t, list, fmt.Sprintf("engines: [{url: 'http://%s'}]", engine))
	up.until("it answers", func() bool {
		a, err := ask("http://"+requests, "demo", 4, false)
		return err == nil && a.status == http.StatusOK
	})
}
