package signals

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// lookup is a page in which a test looks for names.
type lookup struct {
	*found
	names map[string]term
}

func parseText(body string, truncated bool, names ...string) lookup {
	l := lookup{names: map[string]term{}}
	t := &table{vocabulary: vocabulary{}, rule: perProcess}
	for i, n := range names {
		t.vocabulary[n] = i
		l.names[n] = term{name: i}
	}
	l.found = t.find(Page{Body: []byte(body), Truncated: truncated})
	return l
}

func (l lookup) sum(name string) Opt      { return l.found.sum([]term{l.names[name]}) }
func (l lookup) greatest(name string) Opt { return l.found.greatest([]term{l.names[name]}) }

func (l lookup) all(name string) (out []sample) {
	for _, s := range l.samples {
		if s.of(l.names[name]) {
			out = append(out, s)
		}
	}
	return out
}

func TestParseTakesWhatItCan(t *testing.T) {
	f := parseText(strings.Join([]string{
		"# HELP a text", "# TYPE a gauge", "# TYPE a gauge",
		`a{x="1",y="br}ace \" quote, comma"} 1`,
		"  a 2 1700000000\r",
		"}{ nonsense", "<html>", "b", "", "c NaN", "d -nan", "e +Inf", `f{x="open 1`, "g 1e3 # {} 4", "h 0x10", "i nonsense",
		"last 7", // without its newline
	}, "\n"), false, "a", "b", "c", "d", "e", "f", "g", "h", "i", "last", "absent")
	require.Equal(t, []sample{{labels: []byte(`x="1",y="br}ace \" quote, comma"`), value: 1}, {value: 2}}, f.all("a"))
	require.Equal(t, `br}ace " quote, comma`, f.all("a")[0].label("y"))
	require.Equal(t, 7, f.spoilt)
	for _, spoilt := range []string{"b", "c", "d", "e", "f", "h", "i"} {
		require.True(t, f.all(spoilt)[0].spoilt, spoilt)
		require.False(t, f.sum(spoilt).Known, spoilt)
	}
	require.Equal(t, Some(1000), f.sum("g"))
	require.Equal(t, Some(7), f.sum("last"))
	require.Equal(t, Opt{}, f.found.sum(nil), "absent is not zero")
}

func TestOneBadRankMakesTheSumAbsent(t *testing.T) {
	f := parseText("a{engine=\"0\"} 3\na{engine=\"1\"} NaN\n", false, "a")
	require.False(t, f.sum("a").Known)
	require.Equal(t, Some(3), f.greatest("a"))
}

func TestSeriesThatAreThereTwiceCountOnce(t *testing.T) {
	f := parseText("a{engine=\"0\"} 3\na{engine=\"0\"} 4\na{pid=\"9\",engine=\"1\"} 0\na{pid=\"8\",engine=\"1\"} 5\n", false, "a")
	require.Equal(t, Some(9), f.sum("a"))
	f = parseText("a{engine=0} 3\na{engine=1} 4\na{engine=\"0\",x=1} 5\na{x=1,engine=\"0\"} 6\n", false, "a")
	require.Equal(t, Some(18), f.sum("a"), "what cannot be read does not make series the same")
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
