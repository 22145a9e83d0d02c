package main

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/admin"
	"github.com/wardrop-lb/wardrop/control"
	"github.com/wardrop-lb/wardrop/internal/testaddr"
)

// TestCollectorsReadARegion: where collectors run they read the region's engines, each by one
// or two; when they are gone the nearest cluster's data planes do.
func TestCollectorsReadARegion(t *testing.T) {
	t.Parallel()
	engine, controlAdmin, dir := testaddr.Own(t), testaddr.Own(t), t.TempDir()
	startEngine(t, "far", engine)
	file := filepath.Join(dir, "wardrop.yaml")
	writeFile(t, file, fmt.Sprintf(`
control: {store: memory, listen: %q, admin: %q, data: %q}
proxy: {data: %q}
policy: {tick: 200ms}
signals: {interval: 100ms, report: 100ms}
clusters:
  - {name: c, region: r, distances: {s: 150ms}}
engines:
  - {name: far, region: s, url: "http://%s", models: [demo]}
`, testaddr.Own(t), controlAdmin, filepath.Join(dir, "control"), filepath.Join(dir, "proxy"), engine))
	plane := start(t, "control", "-c", file)
	start(t, "proxy", "-c", file, "--cluster", "c").says("data plane of c: ")
	readBy := func(member string) func() bool {
		return func() bool {
			var e admin.Engines
			return get("http://"+controlAdmin+"/v1/engines", &e) && len(e.Engines) == 1 && e.Engines[0].Reading != nil &&
				e.Engines[0].Reading.Cluster == member && e.Engines[0].Kind == "vllm"
		}
	}
	plane.until("the data plane reads it", readBy("c"))
	one, two := start(t, "collect", "-c", file, "--region", "s"), start(t, "collect", "-c", file, "--region", "s")
	one.says("collector of s: admin at http://127.0.0.1:")
	two.says("collector of s: admin at http://127.0.0.1:")
	plane.until("the collectors read it", func() bool {
		var s admin.Status
		return readBy("@s")() && get("http://"+controlAdmin+"/v1/status", &s) && members(s.DataPlanes)["@s"] == 2
	})
	require.Zero(t, one.stop(syscall.SIGTERM))
	require.Zero(t, two.stop(syscall.SIGTERM))
	plane.until("the data plane reads it again", readBy("c"))
	code, _, errors := wardrop(t, "collect", "-c", file, "--region", "nowhere")
	require.NotZero(t, code)
	require.Contains(t, errors, `has no engine in region "nowhere"`)
}

func members(planes []control.DataPlane) map[string]int {
	out := map[string]int{}
	for _, p := range planes {
		out[p.Cluster]++
	}
	return out
}
