package wardrop

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/wardrop-lb/wardrop"

// floors says which rooms each room may import. Arrows point down only.
var floors = map[string][]string{
	"fleet":                 {},
	"api":                   {"api/wardropv1", "fleet"},
	"api/wardropv1":         {},
	"config":                {"fleet", "signals"},
	"enginemodel":           {"fleet"},
	"latency":               {"fleet"},
	"protect":               {},
	"route":                 {"fleet"},
	"policy":                {"fleet", "latency", "policy/internal/table"},
	"policy/internal/table": {"fleet", "latency"},
	"policy/certify":        {"fleet", "latency", "policy"},
	"policy/optimal":        {"fleet", "latency", "policy", "policy/certify", "policy/internal/table"},
	"policy/static":         {"fleet", "policy", "policy/internal/table"},
	"policy/proportional":   {"fleet", "policy", "policy/internal/table"},
	"explain":               {"fleet"},
	"suppose":               {"fleet", "latency"},
	"history":               {"fleet", "suppose"},
	"guard":                 {"fleet", "policy", "policy/certify"},
	"testengine":            {"enginemodel", "fleet"},
	"signals":               {"api", "api/wardropv1"},
	"weights":               {"api", "api/wardropv1", "fleet"},
	"store":                 {},
	"loadgen":               {},
	"fleetgen":              {"fleet", "latency"},
	"examples":              {},
	"collect":               {"api/wardropv1", "fleet", "signals", "weights"},
	"proxy":                 {"api/wardropv1", "collect", "config", "fleet", "protect", "route", "signals", "weights"},
	"tick":                  {"api/wardropv1", "config", "fleet", "guard", "latency", "policy", "policy/optimal", "policy/proportional", "policy/static", "protect"},
	"control":               {"api/wardropv1", "config", "explain", "fleet", "guard", "history", "latency", "policy", "policy/optimal", "policy/proportional", "protect", "relay", "signals", "store", "suppose", "tick", "weights"},
	"relay":                 {"api/wardropv1", "fleet", "signals", "weights"},
	"sim":                   {"api/wardropv1", "config", "enginemodel", "fleet", "fleetgen", "guard", "latency", "policy", "policy/optimal", "protect", "route", "tick"},
	"sim/baseline":          {"enginemodel", "fleet", "route", "sim"},
	"discover":              {"config"},
	"discover/kube":         {"config", "discover"},
	"dashboard":             {"config", "control", "fleet", "guard", "latency", "store"},
	"admin":                 {"collect", "control", "dashboard", "explain", "guard", "history", "proxy", "relay", "store", "suppose"},
	"integration":           {},
	"internal/testaddr":     {},
	"internal/testturn":     {},
	"monitoring":            {},
	"cmd/wardrop": {"admin", "collect", "config", "control", "dashboard", "discover", "discover/kube", "enginemodel", "examples", "explain", "fleet", "fleetgen", "history", "loadgen",
		"policy/optimal", "proxy", "relay", "sim", "sim/baseline",
		"store", "suppose", "testengine", "tick", "weights"},
	"": {},
}

// pure lists the rooms below the line: no I/O, no clock, no goroutine, no global
// randomness.
var pure = []string{"fleet", "fleetgen", "api", "route", "protect", "latency", "enginemodel", "explain", "suppose", "guard",
	"policy", "policy/internal/table", "policy/optimal", "policy/certify", "policy/proportional", "policy/static"}

type pkg struct {
	ImportPath string
	Dir        string
	Imports    []string
	Deps       []string
	GoFiles    []string
}

func list(t *testing.T, args ...string) []pkg {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list", "-json"}, args...)...).Output()
	require.NoError(t, err)
	var all []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func room(path string) (string, bool) {
	rest, ok := strings.CutPrefix(path, module)
	return strings.TrimPrefix(rest, "/"), ok
}

func TestImportsPointDown(t *testing.T) {
	for _, p := range list(t, "./...") {
		name, _ := room(p.ImportPath)
		allowed, known := floors[name]
		if !known {
			t.Errorf("package %q has no floor: give it one in this test and in docs/architecture.md", name)
		}
		for _, i := range p.Imports {
			if r, ours := room(i); ours && !slices.Contains(allowed, r) {
				t.Errorf("%s imports %s, which its floor does not allow", name, r)
			}
		}
	}
}

// TestDataPlaneLinksNoStore: a data plane must not carry what only the control
// plane needs.
func TestDataPlaneLinksNoStore(t *testing.T) {
	for _, p := range list(t, "-deps", "./proxy", "./route") {
		for _, banned := range []string{"go.etcd.io/etcd/", "k8s.io/client-go", module + "/store", module + "/control", module + "/policy"} {
			if strings.HasPrefix(p.ImportPath, banned) {
				t.Errorf("the data plane links %s", p.ImportPath)
			}
		}
	}
}

// TestKubernetesIsLinkedInOnePlace: its client is large, and whoever finds engines in
// another way, or routes to them, must not carry it.
func TestKubernetesIsLinkedInOnePlace(t *testing.T) {
	allowed := []string{"discover/kube", "cmd/wardrop"}
	for _, p := range list(t, "./...") {
		name, _ := room(p.ImportPath)
		if slices.Contains(allowed, name) {
			continue
		}
		for _, d := range p.Deps {
			if strings.HasPrefix(d, "k8s.io/") && !strings.HasPrefix(d, "k8s.io/utils") {
				t.Errorf("%s links %s", name, d)
			}
		}
	}
}

// TestCertificateSharesNoCodeWithTheSolver: a mistake of the solver must not
// repeat itself in what checks it.
func TestCertificateSharesNoCodeWithTheSolver(t *testing.T) {
	for _, p := range list(t, "-deps", "./policy/certify") {
		if r, ours := room(p.ImportPath); ours && strings.HasPrefix(r, "policy/optimal") {
			t.Errorf("policy/certify links %s", r)
		}
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	for _, p := range list(t, "./...") {
		if p.ImportPath == module+"/cmd/wardrop" || p.ImportPath == module+"/examples" {
			continue // main.go and embed.go say it
		}
		b, err := os.ReadFile(filepath.Join(p.Dir, "doc.go"))
		require.NoError(t, err)
		require.Contains(t, string(b), "// Package ", p.ImportPath)
	}
}

// TestPureRoomsArePure reads the sources of the rooms below the line.
func TestPureRoomsArePure(t *testing.T) {
	imports := []string{"net", "net/http", "os", "os/exec", "io/fs", "log", "log/slog", "syscall", "context"}
	calls := map[string][]string{
		"time": {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"},
		"rand": {"Int", "IntN", "Float64", "Uint64", "Perm", "Shuffle", "ExpFloat64", "NormFloat64", "N"},
	}
	for _, p := range list(t, "./...") {
		name, _ := room(p.ImportPath)
		if !slices.Contains(pure, name) {
			continue
		}
		for _, i := range p.Imports {
			if slices.Contains(imports, i) {
				t.Errorf("%s is pure, yet imports %s", name, i)
			}
		}
		for _, f := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil, 0)
			require.NoError(t, err)
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GoStmt:
					t.Errorf("%s/%s starts a goroutine", name, f)
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok && x.Obj == nil && slices.Contains(calls[x.Name], n.Sel.Name) {
						t.Errorf("%s/%s uses %s.%s", name, f, x.Name, n.Sel.Name)
					}
				}
				return true
			})
		}
	}
}

// TestFilesAreShort keeps files readable.
func TestFilesAreShort(t *testing.T) {
	for _, p := range list(t, "./...") {
		for _, f := range p.GoFiles {
			b, err := os.ReadFile(filepath.Join(p.Dir, f))
			require.NoError(t, err)
			if n := bytes.Count(b, []byte("\n")); n > 520 && !strings.HasSuffix(f, ".pb.go") {
				t.Errorf("%s/%s has %d lines: would two files be clearer?", p.ImportPath, f, n)
			}
		}
	}
}

// TestDocsNameEveryMetric holds the metric names of the code against the docs.
func TestDocsNameEveryMetric(t *testing.T) {
	doc, err := os.ReadFile("docs/metrics.md")
	require.NoError(t, err)
	for _, p := range list(t, "./proxy", "./control", "./discover", "./relay") {
		for _, f := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil, 0)
			require.NoError(t, err)
			ast.Inspect(file, func(n ast.Node) bool {
				if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING && strings.HasPrefix(s.Value, `"wardrop_`) {
					require.Contains(t, string(doc), "`"+strings.Trim(s.Value, `"`)+"`")
				}
				return true
			})
		}
	}
}
