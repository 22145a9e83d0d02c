package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/admin"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/internal/testaddr"
	"github.com/wardrop-lb/wardrop/relay"
)

// TestRelay: a data plane behind a relay routes, reports through it, and starts anew from the
// relay alone while the control plane is away, also when the relay was restarted meanwhile.
func TestRelay(t *testing.T) {
	t.Parallel()
	dir, engine := t.TempDir(), testaddr.Own(t)
	controlAddr, controlAdmin, relayAddr, relayAdmin := testaddr.Own(t), testaddr.Own(t), testaddr.Own(t), testaddr.Own(t)
	listen, planeAdmin := testaddr.Own(t), testaddr.Own(t)
	startEngine(t, "e", engine)
	file := filepath.Join(dir, "wardrop.yaml")
	writeFile(t, file, fmt.Sprintf(`
control: {listen: %q, admin: %q, data: %q}
policy: {tick: 200ms}
proxy: {data: %q, control: [%q]}
signals: {interval: 100ms, report: 100ms}
clusters:
  - {name: c, region: r, listen: %q, admin: %q, distances: {r: 1ms}}
engines:
  - {name: e, region: r, url: "http://%s", models: [demo]}
`, controlAddr, controlAdmin, filepath.Join(dir, "control"), filepath.Join(dir, "proxy"), relayAddr, listen, planeAdmin, engine))
	startRelay := func() *process {
		r := start(t, "relay", "-c", file, "--listen", relayAddr, "--admin", relayAdmin, "--cluster", "c", "--data", filepath.Join(dir, "relay"))
		r.says("relay: data planes at " + relayAddr + ", admin at http://" + relayAdmin)
		return r
	}
	startPlane := func() *process {
		p := start(t, "proxy", "-c", file, "--cluster", "c")
		p.says("data plane of c: ")
		return p
	}
	r := startRelay()
	require.Equal(t, http.StatusServiceUnavailable, status("http://"+relayAdmin+"/readyz"))
	control := start(t, "control", "-c", file)
	plane := startPlane()
	control.until("the control plane hears of the data plane and of the snapshot that it has", func() bool {
		var s admin.Status
		return get("http://"+controlAdmin+"/v1/status", &s) && len(s.DataPlanes) == 1 && s.DataPlanes[0].Version > 0 && s.DataPlanes[0].Version == s.Version
	})
	requireAnswer(t, "http://"+listen, "demo")
	var s relay.Status
	require.True(t, get("http://"+relayAdmin+"/v1/status", &s))
	require.Equal(t, []relay.Upstream{{Name: controlAddr, Connected: true}}, s.Upstreams)
	require.Len(t, s.Clusters, 1)
	require.Len(t, s.Clients, 1)
	require.Equal(t, 1, s.Reporting)
	require.Equal(t, http.StatusOK, status("http://"+relayAdmin+"/readyz"))

	require.Zero(t, control.stop(syscall.SIGTERM))
	var before, after fleet.Snapshot
	require.True(t, get("http://"+planeAdmin+"/v1/snapshot", &before))
	require.Zero(t, r.stop(syscall.SIGTERM))
	require.Zero(t, plane.stop(syscall.SIGTERM))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "proxy")))
	startRelay()
	plane = startPlane()
	plane.until("the data plane has a snapshot again", func() bool { return status("http://"+planeAdmin+"/readyz") == http.StatusOK })
	require.True(t, get("http://"+planeAdmin+"/v1/snapshot", &after))
	require.Equal(t, before.Epoch, after.Epoch)
	require.Equal(t, before.Rows[0].Targets[0].Weight, after.Rows[0].Targets[0].Weight)
	requireAnswer(t, "http://"+listen, "demo")

	control = start(t, "control", "-c", file)
	plane.until("the data plane follows the next leader", func() bool {
		return get("http://"+planeAdmin+"/v1/snapshot", &after) && after.Epoch > before.Epoch
	})
	require.Zero(t, control.stop(syscall.SIGTERM))
}

func TestRelayOfNothing(t *testing.T) {
	file := newFile(t, `
clusters:
  - {name: c, region: r, distances: {r: 1ms}}
engines:
  - {name: e, region: r, url: "http://127.0.0.1:1", models: [demo]}
`)
	code, _, text := wardrop(t, "relay", "-c", file, "--listen", "127.0.0.1:7600", "--data", "")
	require.Equal(t, exitInvalid, code)
	require.Contains(t, text, "a relay cannot be its own upstream")
	code, _, text = wardrop(t, "relay", "-c", file, "--listen", "127.0.0.1:0", "--cluster", "nowhere")
	require.Equal(t, exitFailed, code)
	require.Contains(t, text, `has no cluster "nowhere"`)
}
