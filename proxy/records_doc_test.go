package proxy

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// docs/records.md names every field of a record and every attribute of a span.
func TestRecordsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/records.md")
	require.NoError(t, err)
	for _, x := range []any{Decision{}, Probe{}, Attempt{}, Table{}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(x)) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			require.NotEmpty(t, name, f.Name)
			require.Contains(t, string(text), "`"+name+"`", "%T", x)
		}
	}
	code, err := os.ReadFile("tracing.go")
	require.NoError(t, err)
	names := regexp.MustCompile(`"(wardrop\.[a-z_.]+)"`).FindAllStringSubmatch(string(code), -1)
	require.Greater(t, len(names), 20)
	for _, m := range names {
		require.Contains(t, string(text), "`"+m[1]+"`")
	}
	for _, s := range []string{outrun, canceled, notHere, codeGone, codeLate, codeFailed} {
		require.Contains(t, string(text), "`"+s+"`")
	}
}
