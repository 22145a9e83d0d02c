package discover

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
)

const targets = `[
  {"targets": ["10.0.0.1:8000", "10.0.0.2:8000"], "labels": {"region": "eu", "kind": "llamacpp", "model": "a", "models": "b, c", "__meta_zone": "x", "job": "y"}},
  {"targets": ["h.example:443", "no port"], "labels": {"__scheme__": "https"}},
  {"targets": []}
]`

func TestHTTPSD(t *testing.T) {
	var answer atomic.Pointer[func(http.ResponseWriter, *http.Request)]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*answer.Load())(w, r) }))
	defer server.Close()
	s := newHTTPSD(config.Source{HTTP: config.HTTPSource{URL: server.URL}, Scheme: "http"})
	look := func(f func(http.ResponseWriter, *http.Request)) Found {
		answer.Store(&f)
		return s.look(t.Context())
	}
	say := func(text string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
	}
	found := look(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") != "application/json" {
			w.WriteHeader(http.StatusNotAcceptable)
		}
		say(targets)(w, r)
	})
	require.NoError(t, found.Err)
	require.Equal(t, []config.Engine{
		{URL: "http://10.0.0.1:8000", Region: "eu", Kind: "llamacpp", Models: []string{"a", "b", "c"}},
		{URL: "http://10.0.0.2:8000", Region: "eu", Kind: "llamacpp", Models: []string{"a", "b", "c"}},
		{URL: "https://h.example:443"},
	}, found.Engines)
	require.Equal(t, []string{`"no port" is not host:port`}, found.Refused)

	found = look(say("[]"))
	require.NoError(t, found.Err)
	require.Empty(t, found.Engines)

	for name, c := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request)
		want   string
	}{
		"5xx":      {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(503); say("[]")(w, r) }, "answered 503"},
		"204":      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, "answered 204"},
		"HTML":     {say("<html>"), "not a JSON list of targets and labels"},
		"null":     {say("null"), "not a JSON list of targets and labels"},
		"object":   {say(`{"targets": []}`), "not a JSON list of targets and labels"},
		"nothing":  {say(""), "not a JSON list of targets and labels"},
		"cut off":  {say(targets[:50]), "not a JSON list of targets and labels"},
		"too long": {say("[" + strings.Repeat(" ", maxPage) + "]"), "longer than"},
		"broken": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "[]")
		}, "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			found := look(c.answer)
			require.ErrorContains(t, found.Err, c.want)
			require.ErrorContains(t, found.Err, server.URL)
			require.Empty(t, found.Engines)
		})
	}
}

func FuzzHTTPSD(f *testing.F) {
	f.Add([]byte(targets))
	f.Add([]byte(`[{"targets":["a:1"],"labels":{"__scheme__":"unix:///x?"}}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		found := parseHTTPSD("http", data)
		if found.Err != nil && len(found.Engines)+len(found.Refused) > 0 {
			t.Fatal("engines of a page that is wrong")
		}
		for _, e := range found.Engines {
			if _, err := address(e.URL); err != nil {
				t.Fatal(err)
			}
		}
	})
}
