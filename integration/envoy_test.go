package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/internal/testaddr"
)

// envoyFile is a stock Envoy that listens at one address and takes what it routes to from the
// control plane at another.
const envoyFile = `
node: {id: test, cluster: here}
dynamic_resources:
  ads_config: {api_type: %s, transport_api_version: V3, grpc_services: [{envoy_grpc: {cluster_name: wardrop}}]}
  cds_config: {ads: {}, resource_api_version: V3}
static_resources:
  clusters:
    - name: wardrop
      type: STATIC
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: {http2_protocol_options: {}}
      load_assignment: {cluster_name: wardrop, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: %s, port_value: %s}}}}]}]}
  listeners:
    - name: requests
      address: {socket_address: {address: %s, port_value: %s}}
      filter_chains:
        - filters:
            - name: http
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: requests
                route_config: {validate_clusters: false, virtual_hosts: [{name: all, domains: ["*"], routes: [{match: {prefix: "/"}, route: {cluster: here/tiny}}]}]}
                http_filters: [{name: router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]
`

// TestEnvoy has a stock Envoy, by either form of the protocol, follow the plan: it spreads requests
// by the weights, leaves out what is drained, and goes on when the control plane is gone.
func TestEnvoy(t *testing.T) {
	envoy := os.Getenv("WARDROP_ENVOY")
	if envoy == "" {
		t.Skip("WARDROP_ENVOY is not set: run `env $(scripts/real-envoy.sh) go test ./integration -run Envoy`")
	}
	for _, form := range []string{"GRPC", "DELTA_GRPC"} {
		t.Run(form, func(t *testing.T) { testEnvoy(t, envoy, form) })
	}
}

func testEnvoy(t *testing.T, envoy, form string) {
	path, err := binary()
	require.NoError(t, err)
	engines, urls := "", map[string]string{}
	for name, umax := range map[string]int{"big": 100, "small": 50} {
		addr := testaddr.Own(t)
		urls[name] = "http://" + addr
		run(t, path, "testengine", "--name", name, "--listen", addr, "--model", "tiny", "--t0", "20ms", "--u-max", fmt.Sprint(umax)).
			until("it is healthy", func() bool { return status(urls[name]+"/health") == 200 })
		engines += fmt.Sprintf("  - {name: %s, region: local, url: %q, models: [tiny], kind: none, profile: {t0: 100ms, u_max: %d, batch: 50}}\n", name, urls[name], umax)
	}
	control, admin, listen, dir := testaddr.Own(t), testaddr.Own(t), testaddr.Own(t), t.TempDir()
	file := filepath.Join(dir, "wardrop.yaml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
control: {listen: %q, admin: %q, store: memory, data: %q}
policy: {tick: 200ms}
clusters:
  - {name: here, region: local, distances: {local: 1ms}}
engines:
%sdemand:
  - {cluster: here, model: tiny, rate: 30}
`, control, admin, dir, engines), 0o600))
	plane := run(t, path, "control", "-c", file)
	weights := func() map[string]float64 {
		var plan struct {
			Rows []struct{ Weights map[string]float64 }
		}
		if json.Unmarshal([]byte(get("http://"+admin+"/v1/plan")), &plan) != nil || len(plan.Rows) == 0 {
			return nil
		}
		return plan.Rows[0].Weights
	}
	plane.until("there is a plan", func() bool { return weights()["small"] > 0 })

	bootstrap := filepath.Join(dir, "envoy.yaml")
	controlHost, controlPort, _ := strings.Cut(control, ":")
	listenHost, listenPort, _ := strings.Cut(listen, ":")
	require.NoError(t, os.WriteFile(bootstrap, fmt.Appendf(nil, envoyFile, form, controlHost, controlPort, listenHost, listenPort), 0o600))
	front := run(t, envoy, "-c", bootstrap, "--base-id", fmt.Sprint(os.Getpid()%1000+len(form)), "--concurrency", "1", "-l", "warning")
	front.until("it serves", func() bool { return status("http://"+listen+"/health") == 200 })

	shares := func() map[string]float64 {
		const n = 400
		before := map[string]float64{}
		for name, u := range urls {
			before[name] = generated(t, u)
		}
		for range n {
			resp, err := http.Post("http://"+listen+"/v1/chat/completions", "application/json",
				strings.NewReader(`{"model":"tiny","max_tokens":1,"messages":[{"role":"user","content":"x"}]}`))
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, 200, resp.StatusCode, "%s", body)
		}
		out := map[string]float64{}
		for name, u := range urls {
			out[name] = (generated(t, u) - before[name]) / n
		}
		return out
	}
	w := weights()
	require.InDelta(t, w["big"], shares()["big"], 0.08)
	require.Greater(t, w["big"], w["small"]+0.1)

	out, err := exec.Command(path, "drain", "big", "-c", file).CombinedOutput()
	require.NoError(t, err, string(out))
	plane.until("Envoy leaves out what is drained", func() bool { return shares()["small"] == 1 })
	plane.stop(syscall.SIGKILL)
	require.Equal(t, 1.0, shares()["small"], "the control plane is gone")
}

// generated is how many tokens an engine has generated: one for each of the test's requests.
func generated(t *testing.T, engine string) float64 {
	t.Helper()
	for line := range strings.Lines(get(engine + "/metrics")) {
		if strings.HasPrefix(line, "vllm:generation_tokens_total{") {
			n, err := strconv.ParseFloat(strings.Fields(line)[1], 64)
			require.NoError(t, err)
			return n
		}
	}
	t.Fatal("the engine does not say how many tokens it has generated")
	return 0
}
