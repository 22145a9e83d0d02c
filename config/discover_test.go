package config

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const finding = `clusters:
  - {name: a, region: eu, distances: {eu: 2ms, us: 90ms}}
aliases: [{name: x, to: {found: 1}}]
demand: [{cluster: a, model: found, rate: 1}]
models: [{name: found, work: 2}]
discover:
`

func TestSourcesHaveDefaults(t *testing.T) {
	c, err := Parse("w.yaml", []byte(finding+`  - {file: engines.yaml, region: eu}
  - {dns: {name: vllm.example.com, port: 8000}, interval: 5s}
  - {http: {url: "https://registry/engines"}, scheme: https}
  - {name: k, kubernetes: {selector: "a=b"}}
`))
	require.NoError(t, err)
	require.NoError(t, c.View().Validate())
	s := c.Discover
	require.Equal(t, []string{"file", "dns", "http", "k"}, []string{s[0].Name, s[1].Name, s[2].Name, s[3].Name})
	require.Equal(t, []Duration{Duration(time.Second), Duration(5 * time.Second), Duration(10 * time.Second)}, []Duration{s[0].Interval, s[1].Interval, s[2].Interval})
	require.Equal(t, "a", s[1].DNS.Records)
	require.Equal(t, []string{"http", "https"}, []string{s[0].Scheme, s[2].Scheme})
	require.Equal(t, "kubernetes", s[3].Of())
}

func TestMistakesOfSources(t *testing.T) {
	for name, c := range map[string]struct{ source, want string }{
		"unknown key":         {"{file: x, regoin: eu}", `w.yaml:7:15: unknown key "regoin" in discover[0]: did you mean "region"?`},
		"unknown inner key":   {"{dns: {nme: x}}", `w.yaml:7:12: unknown key "nme" in discover[0].dns: did you mean "name"?`},
		"no source":           {"{region: eu}", `w.yaml:7:5: discover[0]: no source: want one of file, dns, http and kubernetes`},
		"two sources":         {"{file: x, http: {url: y}}", `w.yaml:7:21: discover[0].http: a source is one of`},
		"empty file":          {`{file: ""}`, `w.yaml:7:12: discover[0].file: missing`},
		"too often":           {"{file: x, interval: 500ms}", `w.yaml:7:25: discover[0].interval: want at least 1s`},
		"never":               {"{file: x, interval: 0s}", `w.yaml:7:25: discover[0].interval: want at least 1s`},
		"bad scheme":          {"{file: x, scheme: htps}", `discover[0].scheme: unknown value "htps": did you mean "https"?`},
		"bad kind":            {"{file: x, kind: vlm}", `discover[0].kind: unknown value "vlm": did you mean "vllm"?`},
		"bad model":           {`{file: x, models: ["a b"]}`, `discover[0].models[0]: "a b" holds white space`},
		"bad profile":         {"{file: x, profile: {kappa: 2}}", `w.yaml:7:32: discover[0].profile.kappa: 2 is not above 0`},
		"region far away":     {"{file: x, region: mars}", "clusters[0].distances: none to region \"mars\""},
		"zone far away":       {"{kubernetes: {selector: a=b, zones: {z: mars}}}", "clusters[0].distances: none to region \"mars\""},
		"no DNS name":         {"{dns: {port: 1}}", `discover[0].dns.name: missing`},
		"an address":          {"{dns: {name: 10.0.0.1, port: 1}}", `discover[0].dns.name: "10.0.0.1" is an address`},
		"no port":             {"{dns: {name: x}}", `discover[0].dns.port: want the engines' port, 1 to 65535`},
		"port of srv":         {"{dns: {name: x, records: srv, port: 1}}", `discover[0].dns.port: SRV records say the port themselves`},
		"bad records":         {"{dns: {name: x, records: mx, port: 1}}", `discover[0].dns.records: unknown value "mx"`},
		"bad resolver":        {"{dns: {name: x, port: 1, resolver: here}}", `discover[0].dns.resolver: "here" is not an address`},
		"bad URL":             {"{http: {url: registry/engines}}", `w.yaml:7:18: discover[0].http.url: "registry/engines" is not a URL`},
		"no selector":         {"{kubernetes: {namespace: a}}", `discover[0].kubernetes.selector: missing`},
		"bad selector":        {`{kubernetes: {selector: "a=b=c"}}`, `w.yaml:7:29: discover[0].kubernetes.selector: "a=b=c" is not a label selector`},
		"bad namespace":       {"{kubernetes: {selector: a, namespace: A_B}}", `discover[0].kubernetes.namespace: "A_B" is not the name of a namespace`},
		"name twice":          {"{name: n, file: x}\n  - {name: n, file: y}", `w.yaml:8:12: discover[1].name: "n" is there twice`},
		"name twice, unnamed": {"{file: x}\n  - {file: y}", `w.yaml:8:5: discover[1]: another source is called "file": give this one a name`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("w.yaml", []byte(finding+"  - "+c.source+"\n"))
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err := Parse("w.yaml", []byte(good+"signals: {models_interval: 10ms}\n"))
	require.ErrorContains(t, err, "w.yaml:11:28: signals.models_interval: want at least 1s")
}

// A static engine may leave its models out, if it can be asked; it is in no view then.
func TestModelsMayBeLeftOut(t *testing.T) {
	c, err := Parse("w.yaml", []byte(strings.Replace(good, `9001", models: [demo]`, `9001"`, 1)))
	require.NoError(t, err)
	require.Len(t, c.Engines, 2)
	v := c.View()
	require.NoError(t, v.Validate())
	require.Len(t, v.Engines, 1)

	_, _, err = Within("s.yaml", []byte("fleet: {clusters: [{name: a, region: a, distances: {a: 1ms}}], engines: [{name: e, region: a, url: 'http://x'}], discover: [{file: x}]}\n"), "fleet", &outer{})
	require.ErrorContains(t, err, "discover: nothing is found here")
	require.ErrorContains(t, err, "engines[0].models: none: nothing is read from engines here")
}

func TestParseEngines(t *testing.T) {
	s := Source{File: "e.yaml", Region: "eu", Profile: Profile{T0: Duration(5 * time.Second)}}
	engines, err := s.ParseEngines("e.yaml", []byte(`engines:
  - {url: "http://10.0.0.1:8000", profile: {first_token: 2s}}
  - {name: b, url: "http://10.0.0.2:8000", region: us, drain: true, models: [m]}
`))
	require.NoError(t, err)
	require.Equal(t, []string{"eu", "us"}, []string{engines[0].Region, engines[1].Region})
	require.Equal(t, s.Profile.T0, engines[0].Profile.T0)
	require.True(t, engines[1].Drain)

	engines, err = s.ParseEngines("e.json", []byte("{\n\t\"engines\": []\n}"))
	require.NoError(t, err)
	require.Empty(t, engines)

	for text, want := range map[string]string{
		"":                        "e.yaml:1:1: the file is empty",
		"engine: []":              `e.yaml:1:1: unknown key "engine": did you mean "engines"?`,
		"{}":                      "e.yaml:1:1: engines: missing",
		"engines:\n  - {name: a}": "e.yaml:2:5: engines[0].url: missing",
		"engines:\n  - {url: 'http://a', kind: x}":                         "e.yaml:2:29: engines[0].kind: unknown value",
		"engines:\n  - {url: 'http://a'}\n  - {url: 'http://a'}":           "e.yaml:3:11: engines[1].url: another engine has the URL",
		"engines:\n  - {url: 'http://a', profile: {first_token: 6s}}":      "first_token: 6s is more than t0, 5s",
		"engines:\n  - {url: 'http://a', models: [\"\\u202e\\u200b\\t\"]}": "holds white space or control characters",
	} {
		_, err := s.ParseEngines("e.yaml", []byte(text))
		require.ErrorContains(t, err, want)
	}
}

func TestCheckEngine(t *testing.T) {
	c, err := Parse("w.yaml", []byte(good))
	require.NoError(t, err)
	fine := Engine{Name: "e", URL: "http://10.0.0.1:8000", Region: "us"}
	require.NoError(t, c.CheckEngine(fine))
	far := fine
	far.Region = "mars"
	require.EqualError(t, c.CheckEngine(far), `region: cluster "a" has no distance to "mars"`)
	bad := fine
	bad.Kind, bad.URL = "x", "ftp://y"
	require.ErrorContains(t, c.CheckEngine(bad), `kind: unknown value "x"`)
	require.ErrorContains(t, c.CheckEngine(bad), `"ftp://y" is not a base URL`)
}

// What one engine says of itself counts more than what its source says of all, and
// to fill twice is to fill once.
func TestFill(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{"", "a", "b"})
		number := rapid.SampledFrom([]float64{0, 1, 2})
		s := Source{Region: text.Draw(t, "region"), Kind: text.Draw(t, "kind"), Weight: number.Draw(t, "weight"),
			Drain: rapid.Bool().Draw(t, "drain"), Models: rapid.SampledFrom([][]string{nil, {"m"}}).Draw(t, "models"),
			Profile: Profile{UMax: number.Draw(t, "u_max"), Slots: number.Draw(t, "slots")}}
		e := Engine{Region: text.Draw(t, "own region"), Weight: number.Draw(t, "own weight"), Profile: Profile{UMax: number.Draw(t, "own u_max")}}
		f := s.Fill(e)
		require.Equal(t, f, s.Fill(f))
		for _, x := range [][3]any{{e.Region, s.Region, f.Region}, {e.Weight, s.Weight, f.Weight}, {e.Profile.UMax, s.Profile.UMax, f.Profile.UMax}} {
			if x[0] != "" && x[0] != 0.0 {
				require.Equal(t, x[0], x[2])
			} else {
				require.Equal(t, x[1], x[2])
			}
		}
	})
}

// Where and what metrics are is said of engines of the source's kind: it would be
// wrong of others.
func TestFillSaysMetricsOfTheSourcesKind(t *testing.T) {
	s := Source{Kind: "generic", Metrics: "/stats", Signals: map[string][]string{"running": {"jobs"}}}
	e := s.Fill(Engine{})
	require.Equal(t, []any{"generic", "/stats", s.Signals}, []any{e.Kind, e.Metrics, e.Signals})
	e = s.Fill(Engine{Signals: map[string][]string{"waiting": {"queue"}}, Metrics: "/m", Kind: "generic"})
	require.Equal(t, []any{"/m", map[string][]string{"waiting": {"queue"}}}, []any{e.Metrics, e.Signals})
	e = s.Fill(Engine{Kind: "vllm"})
	require.Equal(t, Engine{Kind: "vllm"}, e)
}

func FuzzParseEngines(f *testing.F) {
	f.Add([]byte("engines: [{url: 'http://10.0.0.1:8000', models: [m]}]"))
	f.Add([]byte(`{"engines": [{"url": "unix:///x", "profile": {"t0": "1s"}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		engines, err := Source{}.ParseEngines("f.yaml", data)
		if err != nil && engines != nil {
			t.Fatal("engines of a file that is wrong")
		}
		for _, e := range engines {
			if e.URL == "" {
				t.Fatal("an engine without a URL")
			}
		}
	})
}
