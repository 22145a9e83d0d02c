package config

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/signals"
)

const good = `
clusters:
  - name: a
    region: eu
    distances: {eu: 2ms, us: 90ms}
engines:
  - {name: near, region: eu, url: "http://127.0.0.1:9001", models: [demo], profile: {t0: 200ms, u_max: 125, batch: 200}}
  - {name: far, region: us, models: [demo]}
demand:
  - {cluster: a, model: demo, rate: 12}
`

func TestParseFillsDefaults(t *testing.T) {
	c, err := Parse("w.yaml", []byte(good))
	require.NoError(t, err)
	require.Equal(t, "optimal", c.Policy.Name)
	require.Equal(t, Duration(2*time.Second), c.Policy.Tick)
	require.Equal(t, []string{c.Control.Listen}, c.Proxy.Control)
	require.Equal(t, 0.2, c.Proxy.RetryBudget)
	require.Equal(t, Size(16<<20), c.Proxy.MaxBody)
	require.Equal(t, "auto", c.Engines[0].Kind)
	v := c.View()
	require.NoError(t, v.Validate())
	require.Equal(t, 0.2, v.Engines[0].Profile.T0)
	require.Equal(t, 0.9, v.Engines[0].Profile.Kappa)
	require.Equal(t, "standard", v.Demands[0].Priority.String())
}

func TestWhatRequestsAsk(t *testing.T) {
	text := strings.Replace(good, "us: 90ms}", "us: 90ms}\n    engine_distances: {far: 95ms}", 1)
	text = strings.Replace(text, "batch: 200", "batch: 200, first_token: 50ms, spread: 0.7, tokens: 80000, slots: 64", 1)
	text += "models:\n  - {name: demo, work: 2, token_seconds: 900, slot_seconds: 1.5, worth: {first_token: 1, decode: 0.1}}\n"
	c, err := Parse("w.yaml", []byte(text))
	require.NoError(t, err)
	v := c.View()
	require.NoError(t, v.Validate())
	require.Equal(t, []fleet.Model{{Name: "demo", Work: 2, TokenSeconds: 900, SlotSeconds: 1.5, FirstToken: 1, Decode: 0.1}}, v.Models)
	p := v.Engines[0].Profile
	require.Equal(t, []float64{0.05, 0.7, 80000, 64}, []float64{p.FirstToken, p.Spread, p.Tokens, p.Slots})
	require.Contains(t, v.Distances, fleet.Distance{Cluster: "a", Region: "us", Engine: "far", Seconds: 0.095})
}

// TestEveryKindIsAKind: what can be read can be written down, and nothing else.
func TestEveryKindIsAKind(t *testing.T) {
	for _, kind := range signals.Kinds() {
		more := "kind: " + kind
		if kind == "generic" {
			more += `, metrics: /stats, signals: {running: ["jobs{state=\"on\"}", old_jobs], waiting: [queue]}`
		}
		c, err := Parse("w.yaml", []byte(strings.Replace(good, "name: far", more+", name: far", 1)))
		require.NoError(t, err)
		e := c.Engines[1]
		_, err = signals.NewAdapter(signals.Target{URL: "http://x", Kind: e.Kind, MetricsURL: e.Metrics, Names: signals.NewNames(e.Signals)})
		require.NoError(t, err, kind)
	}
}

func TestZeroRetryBudgetIsKept(t *testing.T) {
	c, err := Parse("w.yaml", []byte(good+"proxy: {retry_budget: 0}\n"))
	require.NoError(t, err)
	require.Zero(t, c.Proxy.RetryBudget)
}

// TestMistakes holds each kind of mistake to its position and its words.
func TestMistakes(t *testing.T) {
	edit := func(old, replacement string) string {
		require.Contains(t, good, old)
		return strings.Replace(good, old, replacement, 1)
	}
	for name, c := range map[string]struct{ yaml, want string }{
		"unknown key":        {edit("region: eu\n", "regoin: eu\n"), `w.yaml:4:5: unknown key "regoin" in clusters[0]: did you mean "region"?`},
		"unknown top key":    {good + "polices: {}\n", `w.yaml:11:1: unknown key "polices": did you mean "policy"?`},
		"empty key":          {good + "\"\": x\n", `w.yaml:11:1: unknown key ""`},
		"wrong type":         {edit("rate: 12", "rate: many"), `w.yaml:10:37: demand[0].rate: want a number, got "many"`},
		"list for text":      {edit("name: a\n", "name: [a]\n"), `w.yaml:3:11: clusters[0].name: want text, got a list`},
		"text for list":      {edit("models: [demo]}", "models: demo}"), `w.yaml:8:37: engines[1].models: want a list, got "demo"`},
		"bad duration":       {edit("us: 90ms", "us: 90"), `w.yaml:5:30: clusters[0].distances.us: "90" is not a duration: write it like 250ms, 2s or 1m30s`},
		"bad size":           {good + "proxy: {max_body: 12XB}\n", `w.yaml:11:19: proxy.max_body: "12XB" is not a size: write it like 4096, 64KiB or 16MiB`},
		"missing distance":   {edit(", us: 90ms", ""), "w.yaml:5:16: clusters[0].distances: none to region \"us\", where engines are: add `us: 20ms` (the network round trip from \"a\")"},
		"distance nowhere":   {edit("us: 90ms", "us: 90ms, su: 1ms"), `w.yaml:5:40: clusters[0].distances.su: no engine lies in region "su": did you mean "eu"?`},
		"unknown cluster":    {edit("cluster: a", "cluster: b"), `w.yaml:10:15: demand[0].cluster: unknown cluster "b": known are a`},
		"unknown model":      {edit("model: demo", "model: dem"), `w.yaml:10:25: demand[0].model: unknown model "dem": did you mean "demo"?`},
		"unknown priority":   {edit("rate: 12", "rate: 12, priority: high"), `w.yaml:10:51: demand[0].priority: unknown priority "high": want critical, standard or batch`},
		"missing rate":       {edit(", rate: 12", ""), `w.yaml:10:5: demand[0].rate: missing: want requests per second`},
		"collectors' name":   {edit("name: a\n", "name: '@a'\n"), `w.yaml:3:11: clusters[0].name: "@a" begins with @, which is for collectors`},
		"duplicate name":     {edit("name: far", "name: near"), `w.yaml:8:12: engines[1].name: "near" is there twice: names must be unique`},
		"missing name":       {edit("name: far, ", ""), `w.yaml:8:5: engines[1].name: missing`},
		"no models":          {edit(", models: [demo]}", "}"), `w.yaml:8:5: engines[1].models: none: an engine must serve at least one model`},
		"bad URL":            {edit("http://127.0.0.1:9001", "127.0.0.1:9001/v1"), `engines[0].url: "127.0.0.1:9001/v1" is not a base URL: write http://host:port, without a path`},
		"unknown kind":       {edit("name: far", "kind: vlm, name: far"), `w.yaml:8:12: engines[1].kind: unknown value "vlm": did you mean "vllm"?`},
		"metrics nowhere":    {edit("name: far", "metrics: here, name: far"), `w.yaml:8:15: engines[1].metrics: metrics at "here": want an http URL or a path below the engine's`},
		"metrics of none":    {edit("name: far", "metrics: /m, kind: none, name: far"), `w.yaml:8:15: engines[1].metrics: engines of kind "none" have none that are read`},
		"reports by HTTP":    {edit("name: far", "metrics: /m, kind: orca, name: far"), `w.yaml:8:15: engines[1].metrics: metrics at "/m": want host:port, where load reports are streamed`},
		"generic, no names":  {edit("name: far", "kind: generic, name: far"), `w.yaml:8:5: engines[1].signals: missing: kind "generic" wants the names of metrics, like {running: [requests_running]}`},
		"names of no kind":   {edit("name: far", "signals: {running: [a]}, name: far"), `w.yaml:8:15: engines[1].signals: names of metrics are for the kind "generic"`},
		"no such signal":     {edit("name: far", "kind: generic, signals: {waitin: [a]}, name: far"), `engines[1].signals.waitin: unknown key "waitin": did you mean "waiting"?`},
		"no name of metrics": {edit("name: far", "kind: generic, signals: {running: [a, b-c]}, name: far"), `w.yaml:8:44: engines[1].signals.running[1]: "b-c" is not the name of a metric: want name or name{label="value"}`},
		"kappa too high":     {edit("batch: 200", "batch: 200, kappa: 1"), `engines[0].profile.kappa: 1 is not above 0 and at most 0.95`},
		"zero u_max":         {edit("u_max: 125", "u_max: 0"), `engines[0].profile.u_max: 0 is not a number above 0`},
		"infinite rate":      {edit("rate: 12", "rate: .inf"), `demand[0].rate: +Inf is not a number of at least 0`},
		"bad address":        {edit("region: eu\n", "region: eu\n    listen: here\n"), `w.yaml:5:13: clusters[0].listen: "here" is not an address: write host:port, like 127.0.0.1:8080`},
		"bound out of range": {good + "proxy: {bound: 0.01}\n", `w.yaml:11:16: proxy.bound: 0.01 is not between 0.05 and 10`},
		"cert without key":   {good + "proxy: {engine_tls: {cert_file: c.pem}}\n", `w.yaml:11:21: proxy.engine_tls: cert_file and key_file go together: set both or none`},
		"model of nobody":    {good + "models: [{name: dem}]\n", `w.yaml:11:17: models[0].name: unknown model "dem": did you mean "demo"?`},
		"no work":            {good + "models: [{name: demo, work: 0}]\n", `w.yaml:11:29: models[0].work: 0 is not between 1e-06 and 1e+06`},
		"holds the world":    {good + "models: [{name: demo, slot_seconds: 1e99}]\n", `w.yaml:11:37: models[0].slot_seconds: 1e+99 is not between 0 and 1e+15`},
		"worth nothing":      {good + "models: [{name: demo, worth: {decode: 0}}]\n", `w.yaml:11:30: models[0].worth: its time is worth nothing: want a first_token or a decode above 0`},
		"late first token":   {edit("u_max: 125", "u_max: 125, first_token: 300ms"), `engines[0].profile.first_token: 300ms is more than t0, 200ms`},
		"spread too wide":    {edit("u_max: 125", "u_max: 125, spread: 11"), `engines[0].profile.spread: 11 is not above 0 and at most 10`},
		"engine nowhere":     {edit("us: 90ms}", "us: 90ms}\n    engine_distances: {nar: 3ms}"), `w.yaml:6:29: clusters[0].engine_distances.nar: unknown engine "nar": did you mean "near"?`},
		"key twice":          {good + "demand: []\n", `w.yaml:11:1: demand: already set on line 9`},
		"zero tick":          {good + "policy: {tick: 0s}\n", `w.yaml:11:16: policy.tick: want more than 0s`},
		"empty":              {"", `w.yaml:1:1: the file is empty: it needs at least clusters and engines`},
		"a list":             {"- a\n", `w.yaml:1:1: the file: want keys and values, got a list`},
		"not YAML":           {"clusters: [", `w.yaml:`},
		"nothing configured": {"policy: {}\n", `w.yaml:1:1: clusters: none: at least one cluster must receive requests`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("w.yaml", []byte(c.yaml))
			require.ErrorContains(t, err, c.want)
			var problems Problems
			require.ErrorAs(t, err, &problems)
			for _, p := range problems {
				require.Positive(t, p.Line)
				require.Positive(t, p.Column)
			}
		})
	}
}

func TestAllMistakesAreReportedAtOnceInOrder(t *testing.T) {
	bad := strings.NewReplacer("90ms", "x", "rate: 12", "rate: y", "models: [demo]", "modles: [demo]").Replace(good)
	_, err := Parse("w.yaml", []byte(bad))
	var problems Problems
	require.ErrorAs(t, err, &problems)
	require.Len(t, problems, 4)
	for i := 1; i < len(problems); i++ {
		require.LessOrEqual(t, problems[i-1].Line, problems[i].Line)
	}
}

// TestEveryKeyIsDocumented holds docs/configuration.md against the structs.
func TestEveryKeyIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../docs/configuration.md")
	require.NoError(t, err)
	var visit func(reflect.Type)
	visit = func(typ reflect.Type) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			if key := f.Tag.Get("yaml"); key != "" {
				require.Contains(t, string(doc), "`"+key+"`", "%s.%s", typ.Name(), f.Name)
			}
			for f.Type.Kind() == reflect.Slice || f.Type.Kind() == reflect.Map {
				f.Type = f.Type.Elem()
			}
			if f.Type.Kind() == reflect.Struct && f.Type.PkgPath() == typ.PkgPath() {
				visit(f.Type)
			}
		}
	}
	visit(reflect.TypeFor[Config]())
	for _, key := range slices.Concat(signals.NameKeys(), signals.Kinds()) {
		require.Contains(t, string(doc), "`"+key+"`")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("clusters: [{distances: &a {x: *a}}]"))
	f.Add([]byte("&0:"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("f.yaml", data)
		if (c == nil) == (err == nil) {
			t.Fatal("a configuration or an error, never both or neither")
		}
		if c != nil {
			if err := c.View().Validate(); err != nil {
				t.Fatalf("a checked file gives an invalid view: %v", err)
			}
		}
	})
}
