package monitoring

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the files")

var (
	metricName = regexp.MustCompile(`\bwardrop_[a-z_]+`)
	suffix     = regexp.MustCompile(`_(bucket|sum|count)$`)
	documented = regexp.MustCompile("(?m)^\\| `(wardrop_[a-z_]+)` \\| (\\w+) \\|")
)

// metrics are those that there are, with their types: the code is held against that page.
func metrics(t *testing.T) map[string]string {
	t.Helper()
	doc, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	out := map[string]string{}
	for _, m := range documented.FindAllStringSubmatch(string(doc), -1) {
		out[m[1]] = m[2]
	}
	require.NotEmpty(t, out)
	return out
}

// TestMetricsExist: no panel and no alert asks for a metric that nobody serves, and every metric
// has its panel.
func TestMetricsExist(t *testing.T) {
	known, shown := metrics(t), map[string]bool{}
	check := func(where, expr string) {
		for _, name := range metricName.FindAllString(expr, -1) {
			if known[name] == "" && known[suffix.ReplaceAllString(name, "")] == "histogram" {
				name = suffix.ReplaceAllString(name, "")
			}
			require.NotEmpty(t, known[name], "%s asks for %s", where, name)
			shown[name] = true
		}
	}
	for _, d := range Dashboards() {
		for _, r := range d.Rows {
			require.LessOrEqual(t, len(r.Panels)*panelWidth, 24, r.Title)
			for _, p := range r.Panels {
				require.NotEmpty(t, p.Lines, p.Title)
				for _, l := range p.Lines {
					check(p.Title, l.Expr)
				}
			}
		}
	}
	for name := range known {
		require.True(t, shown[name], "%s has no panel", name)
	}
	names := map[string]bool{}
	for _, a := range Alerts() {
		check(a.Name, a.Expr)
		require.False(t, names[a.Name], a.Name)
		names[a.Name] = true
		require.Contains(t, []string{"page", "ticket"}, a.Severity)
		require.NotEmpty(t, a.Summary)
		require.Greater(t, len(a.Runbook), 40, "%s needs a line in the runbook", a.Name)
	}
}

// TestFilesAreCurrent holds the files that are shipped against the lists.
func TestFilesAreCurrent(t *testing.T) {
	files := map[string]func(io.Writer) error{"alerts.yaml": WriteAlerts, "../docs/runbook.md": WriteRunbook}
	for _, d := range Dashboards() {
		files["grafana/"+d.ID+".json"] = func(w io.Writer) error { return WriteGrafana(w, d) }
	}
	for name, write := range files {
		var b bytes.Buffer
		require.NoError(t, write(&b))
		if *update {
			require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
			require.NoError(t, os.WriteFile(name, b.Bytes(), 0o644))
		}
		got, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, b.String(), string(got), "%s: run go test ./monitoring -update", name)
		if filepath.Ext(name) == ".json" {
			require.True(t, json.Valid(got))
		}
	}
}

// TestPromtool has Prometheus itself check the rules, and every panel's expression as one.
func TestPromtool(t *testing.T) {
	promtool := os.Getenv("WARDROP_PROMTOOL")
	if promtool == "" {
		t.Skip("WARDROP_PROMTOOL is not set: run `env $(scripts/promtool.sh) go test ./monitoring`")
	}
	panels := filepath.Join(t.TempDir(), "panels.yaml")
	var b bytes.Buffer
	fmt.Fprintln(&b, "groups:\n- name: panels\n  rules:")
	for _, d := range Dashboards() {
		for _, r := range d.Rows {
			for _, p := range r.Panels {
				for i, l := range p.Lines {
					expr, err := json.Marshal(l.Expr)
					require.NoError(t, err)
					fmt.Fprintf(&b, "  - {record: \"panel:%d\", expr: %s, labels: {title: %q}}\n", i, expr, p.Title+l.Legend)
				}
			}
		}
	}
	require.NoError(t, os.WriteFile(panels, b.Bytes(), 0o600))
	for _, file := range []string{"alerts.yaml", panels} {
		out, err := exec.Command(promtool, "check", "rules", file).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}
