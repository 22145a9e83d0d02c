package signals

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func parseText(body string, truncated bool, names ...string) families {
	return parse(Page{Body: []byte(body), Truncated: truncated}, nameSet(names))
}

func TestParseTakesWhatItCan(t *testing.T) {
	f := parseText(strings.Join([]string{
		"# HELP a text", "# TYPE a gauge", "# TYPE a gauge",
		`a{x="1",y="br}ace \" quote, comma"} 1`,
		"  a 2 1700000000\r",
		"}{ nonsense", "<html>", "b", "", "c NaN", "d -nan", "e +Inf", `f{x="open 1`, "g 1e3 # {} 4", "h 0x10", "i nonsense",
		"last 7", // without its newline
	}, "\n"), false, "a", "b", "c", "d", "e", "f", "g", "h", "i", "last", "absent")
	require.Equal(t, []sample{{labels: `x="1",y="br}ace \" quote, comma"`, value: 1}, {value: 2}}, f["a"])
	require.Equal(t, `br}ace " quote, comma`, f["a"][0].label("y"))
	for _, spoilt := range []string{"b", "c", "d", "e", "f", "h", "i"} {
		require.True(t, f[spoilt][0].spoilt, spoilt)
		require.False(t, f.sum(spoilt).Known, spoilt)
	}
	require.Equal(t, Some(1000), f.sum("g"))
	require.Equal(t, Some(7), f.sum("last"))
	require.Equal(t, Opt{}, f.sum("absent"), "absent is not zero")
}

func TestOneBadRankMakesTheSumAbsent(t *testing.T) {
	f := parseText("a{engine=\"0\"} 3\na{engine=\"1\"} NaN\n", false, "a")
	require.False(t, f.sum("a").Known)
	require.Equal(t, Some(3), f.greatest("a"))
}

func TestSeriesThatAreThereTwiceCountOnce(t *testing.T) {
	f := parseText("a{engine=\"0\"} 3\na{engine=\"0\"} 4\na{pid=\"9\",engine=\"1\"} 0\na{pid=\"8\",engine=\"1\"} 5\n", false, "a")
	require.Equal(t, Some(9), f.sum("a"))
}

func TestNegativeIsAbsent(t *testing.T) {
	f := parseText("a -1\n", false, "a")
	require.False(t, f.sum("a").Known)
	require.False(t, f.greatest("a").Known)
	require.False(t, fraction(Some(1.5)).Known)
	require.Equal(t, Some(1), fraction(Some(1.004)))
}

func TestATruncatedPageLosesItsLastFamilyOnly(t *testing.T) {
	page := "# TYPE a gauge\na{r=\"0\"} 1\na{r=\"1\"} 2\n# TYPE b gauge\nb{r=\"0\"} 10\nb{r=\"1\"} 20\n"
	for cut := range len(page) {
		f := parseText(page[:cut], true, "a", "b")
		require.False(t, f.sum("b").Known, "at %d", cut)
		if a := f.sum("a"); a.Known {
			require.Equal(t, 3.0, a.Value, "at %d", cut)
			require.Greater(t, cut, strings.Index(page, "# TYPE b"))
		}
	}
	require.Equal(t, Some(30), parseText(page, false, "b").sum("b"))
}

func TestSamplesAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString("x 1\n")
	for i := range 2 * maxSamples {
		fmt.Fprintf(&b, "a{i=\"%d\"} 1\n", i)
	}
	f := parseText(b.String(), false, "a", "x")
	require.False(t, f.sum("a").Known, "some of it is missing")
	require.Equal(t, Some(1), f.sum("x"))
}

func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(f, err)
	for _, name := range files {
		b, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(string(b), false)
		f.Add(string(b[:len(b)/2]), true)
	}
	f.Add("vllm:num_requests_running{a=\"\\\"} -nan\nvllm:cache_config_info{num_gpu_blocks=\"9\",block_size=\"", false)
	f.Fuzz(func(t *testing.T, body string, truncated bool) {
		page := text(body)
		page.Truncated = truncated
		for _, kind := range Kinds() {
			if kind == KindNone {
				continue
			}
			r, err := read(t, kind, pages{"/metrics": page, "/props": page})
			if err != nil {
				continue
			}
			v := r.Values
			counters := v.counters()
			for _, o := range append(counters[:], v.Running, v.Waiting, v.KVUsage, v.Slots, v.KVTokens) {
				require.False(t, math.IsNaN(o.Value) || math.IsInf(o.Value, 0) || o.Value < 0)
				require.True(t, o.Known || o.Value == 0)
			}
			require.LessOrEqual(t, v.KVUsage.Value, 1.0)
		}
	})
}

func BenchmarkVLLMPage(b *testing.B) {
	body, err := os.ReadFile("testdata/vllm_dp2.txt")
	require.NoError(b, err)
	p := pages{"/metrics": text(string(body))}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (vllm{}).Read(b.Context(), p.get); err != nil {
			b.Fatal(err)
		}
	}
}
