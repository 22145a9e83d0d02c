package discover

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wardrop-lb/wardrop/config"
)

func parse(t require.TestingT, text string) *config.Config {
	c, err := config.Parse("w.yaml", []byte(text))
	require.NoError(t, err)
	return c
}

const mergeFile = `
clusters: [{name: a, region: eu, distances: {eu: 2ms, us: 90ms}}]
engines: [{name: own, region: eu, url: "http://10.0.0.1:8000", models: [m], drain: true}]
discover:
  - {name: one, file: x, region: eu}
  - {name: two, file: y, region: us, models: [n], profile: {t0: 3s}}
`

func TestMerge(t *testing.T) {
	c := parse(t, mergeFile)
	m := merge(c, map[string][]config.Engine{
		"one": {{URL: "http://10.0.0.2:8000", Name: "own"}, {URL: "http://10.0.0.1:8000/"}, {URL: "http://10.0.0.3:8000", Region: "mars"}},
		"two": {{URL: "http://10.0.0.2:8000", Name: "second"}, {URL: "http://[::ffff:10.0.0.4]:80"}, {URL: "http://10.0.0.5", Name: "own"}},
	}, map[string][]string{"http://10.0.0.2:8000": {"read"}})
	type row struct{ name, region, model string }
	var rows []row
	for _, e := range m.config.Engines {
		rows = append(rows, row{e.Name, e.Region, fmt.Sprint(e.Models)})
		require.NotEmpty(t, e.Protocol, "defaults are there")
	}
	require.Equal(t, []row{
		{"own", "eu", "[m]"},
		{"one/own", "eu", "[read]"}, // the name is taken
		{"10.0.0.4:80", "us", "[n]"},
		{"two/own", "us", "[n]"},
	}, rows)
	require.True(t, m.config.Engines[0].Drain, "what is written down counts")
	require.Equal(t, map[string]int{"one": 1, "two": 2}, m.taken)
	require.Equal(t, map[string]bool{"http://10.0.0.2:8000": true}, m.read)
	require.Equal(t, []refusal{{"one", "http://10.0.0.3:8000", `region: cluster "a" has no distance to "mars"`}}, m.refused)
	require.Len(t, c.Engines, 1, "the configuration itself stays as it is")
	require.NoError(t, m.config.View().Validate())
}

// An engine whose models nobody knows is listed, and is in no view.
func TestMergeListsEnginesWithoutModels(t *testing.T) {
	m := merge(parse(t, mergeFile), map[string][]config.Engine{"one": enginesOf(2)}, nil)
	require.Len(t, m.config.Engines, 2)
	require.Len(t, m.config.View().Engines, 1)
}

// The order in which engines come does not matter; names and addresses are unique;
// what comes out is valid; to merge anew is to merge once.
func TestMergeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := parse(t, mergeFile)
		engine := rapid.Custom(func(t *rapid.T) config.Engine {
			return config.Engine{
				URL: rapid.SampledFrom([]string{"http://10.0.0.1:8000", "http://10.0.0.2:8000", "https://10.0.0.2:8000", "http://10.0.0.3:8000",
					"http://h:80", "http://H", "unix:///s", "nonsense", "http://x/path"}).Draw(t, "url"),
				Name:   rapid.SampledFrom([]string{"", "own", "n", "one/n", "10.0.0.3:8000", "a b"}).Draw(t, "name"),
				Region: rapid.SampledFrom([]string{"", "eu", "us", "mars"}).Draw(t, "region"),
				Kind:   rapid.SampledFrom([]string{"", "vllm", "evil"}).Draw(t, "kind"),
			}
		})
		// Of several at one address the keeper leaves one.
		found := map[string][]config.Engine{}
		for _, s := range []string{"one", "two", "not configured"} {
			var k keeper
			k.kept = byAddresses(rapid.SliceOf(engine).Draw(t, s))
			found[s] = k.engines()
		}
		models := map[string][]string{"http://10.0.0.2:8000": {"m", "n"}}
		m := merge(c, found, models)
		require.NoError(t, m.config.View().Validate())
		names, addresses := map[string]bool{}, map[string]bool{}
		for _, e := range m.config.Engines {
			at, err := address(e.URL)
			require.NoError(t, err)
			require.False(t, names[e.Name], e.Name)
			require.False(t, addresses[at], at)
			names[e.Name], addresses[at] = true, true
			require.NoError(t, c.CheckEngine(e))
		}
		require.Equal(t, c.Engines[0], m.config.Engines[0])
		require.Equal(t, len(m.config.Engines)-1, m.taken["one"]+m.taken["two"])

		for s := range found {
			found[s] = rapid.Permutation(slices.Clone(found[s])).Draw(t, "order")
		}
		again := merge(c, found, models)
		require.Equal(t, m.config.Engines, again.config.Engines)
		require.Equal(t, m.refused, again.refused)
	})
}

func TestTarget(t *testing.T) {
	for target, want := range map[string]string{
		"10.0.0.1:8000": "s://10.0.0.1:8000", "[::1]:80": "s://[::1]:80", "h.example:1": "s://h.example:1",
		"http://h:1": "http://h:1", "https://h": "https://h", "unix:///x/y": "unix:///x/y",
	} {
		got, err := Target("http", target)
		require.NoError(t, err, target)
		if len(want) > 4 && want[:4] == "s://" {
			want = "http" + want[1:]
		}
		require.Equal(t, want, got)
	}
	for _, target := range []string{"", "h", "h:", ":1", "h:0", "h:65536", "h:http", "a/b:1", "u@h:1", "http://u@h:1", "http://h:1/p", "http://h?q", "ftp://h:1", "http://", "unix://x", "a b:1", "h:1#f"} {
		_, err := Target("http", target)
		require.Error(t, err, target)
	}
}

func FuzzTarget(f *testing.F) {
	f.Add("10.0.0.1:8000")
	f.Add("https://h/")
	f.Fuzz(func(t *testing.T, target string) {
		base, err := Target("http", target)
		if err != nil {
			return
		}
		if _, err := address(base); err != nil {
			t.Fatalf("%q gives %q, which has no address: %v", target, base, err)
		}
	})
}
