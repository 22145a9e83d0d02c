package proxy

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/route"
)

func TestSniff(t *testing.T) {
	f, err := Sniff([]byte(`{"messages":[{"role":"system","content":"s"},{"content":"hi","role":"user"},{"role":"assistant","content":"x"}],"stream":true,"max_tokens":12,"model":"mod\u0065l"}`))
	require.NoError(t, err)
	require.Equal(t, "model", f.Model)
	require.True(t, f.Stream)
	require.Equal(t, int64(12), f.MaxTokens)
	require.Equal(t, route.KeyNone, f.KeySource)
	require.Equal(t, 3, f.Prefix.Len())
}

// TestSniffKeepsAConversationTogether: a later turn's chain begins like the
// first's, whatever API it comes by.
func TestSniffKeepsAConversationTogether(t *testing.T) {
	for _, bodies := range [][2]string{
		{`{"model":"m","messages":[{"role":"user","content":"a"}]}`, `{"model":"m","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`},
		{`{"model":"m","input":["a"]}`, `{"model":"m","input":["a","b"]}`},
		{`{"system":"s","messages":["a"],"model":"m"}`, `{"system":"s","messages":["a","b"],"model":"m"}`},
	} {
		first, err := Sniff([]byte(bodies[0]))
		require.NoError(t, err)
		later, err := Sniff([]byte(bodies[1]))
		require.NoError(t, err)
		require.Equal(t, first.Prefix.Len()+1, later.Prefix.Len())
		s := route.NewPopularity(2)
		a, _ := s.Key(&first.Prefix, 2, 0)
		b, _ := s.Key(&later.Prefix, 2, 0)
		require.Equal(t, a, b)
	}
}

func TestSniffFindsTheModelsPlace(t *testing.T) {
	body := `{"x":"model", "model" : "a\u0062c" ,"y":1}`
	f, err := Sniff([]byte(body))
	require.NoError(t, err)
	require.Equal(t, "abc", f.Model)
	require.Equal(t, `"a\u0062c"`, body[f.modelAt[0]:f.modelAt[1]])
}

func TestSniffOrderOfKeys(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want route.KeySource
	}{
		"cache key first":             {`{"model":"m","prompt":"p","conversation":"c","prompt_cache_key":"k"}`, route.KeyPromptCache},
		"then conversation":           {`{"model":"m","previous_response_id":"r","prompt":"p"}`, route.KeyConversation},
		"a prompt is no explicit key": {`{"model":"m","prompt":["a","b"]}`, route.KeyNone},
		"null is none":                {`{"model":"m","prompt_cache_key":null,"conversation":""}`, route.KeyNone},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := Sniff([]byte(c.body))
			require.NoError(t, err)
			require.Equal(t, c.want, f.KeySource)
		})
	}
}

func TestSniffRefuses(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"empty":            {"", "not a JSON object"},
		"array":            {"[]", "not a JSON object"},
		"BOM":              {"\xef\xbb\xbf{}", "not a JSON object"},
		"no model":         {`{}`, "no model"},
		"empty model":      {`{"model":""}`, "no model"},
		"endless model":    {`{"model":"` + strings.Repeat("m", maxName) + `"}`, "too long"},
		"model twice":      {`{"model":"a","model":"b"}`, "twice"},
		"model escaped":    {`{"model":"a","mod\u0065l":"b"}`, "twice"},
		"nested duplicate": {`{"model":"a","messages":[{"role":"user","role":"system"}]}`, "twice"},
		"model a number":   {`{"model":7}`, `"model" must be a string`},
		"stream a string":  {`{"model":"a","stream":"yes"}`, `"stream" must be true or false`},
		"max_tokens text":  {`{"model":"a","max_tokens":"x"}`, `"max_tokens" must be a number`},
		"truncated":        {`{"model":"a"`, "ends too early"},
		"trailing":         {`{"model":"a"} x`, "more after"},
		"bad UTF-8":        {"{\"model\":\"\xff\"}", "not JSON"},
		"raw newline":      {"{\"model\":\"a\nb\"}", "not JSON"},
		"comment":          {`{"model":"a",/**/"x":1}`, "not JSON"},
		"deep":             {`{"model":"a","x":` + strings.Repeat("[", 20000), "not JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Sniff([]byte(c.body))
			require.ErrorContains(t, err, c.want)
		})
	}
}

// FuzzSniff holds Sniff against encoding/json: what it accepts is valid JSON with
// the same model, and it never panics.
func FuzzSniff(f *testing.F) {
	f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":"a"}],"stream":false,"max_tokens":1e3}`))
	f.Add([]byte(`{"model":"m","prompt":[1,2],"conversation":{"id":"x"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := Sniff(body)
		if err != nil {
			return
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(body, &want); err != nil {
			t.Fatalf("accepted, yet encoding/json says: %v", err)
		}
		var model string
		if err := json.Unmarshal(want["model"], &model); err != nil || model != got.Model {
			t.Fatalf("model %q, encoding/json reads %q (%v)", got.Model, model, err)
		}
	})
}
