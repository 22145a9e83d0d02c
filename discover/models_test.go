package discover

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
)

// As vLLM lists a model with an adapter; SGLang's page has the same fields.
const modelsPage = `{"object":"list","data":[
 {"id":"meta-llama/Llama-3.1-8B","object":"model","created":1,"owned_by":"vllm","root":"meta-llama/Llama-3.1-8B","parent":null,"max_model_len":8192,"permission":[]},
 {"id":"sql-lora","object":"model","created":1,"owned_by":"vllm","root":"/loras/sql","parent":"meta-llama/Llama-3.1-8B","max_model_len":null,"permission":[]}]}`

func TestParseModels(t *testing.T) {
	models, refused, err := parseModels([]byte(modelsPage))
	require.NoError(t, err)
	require.Zero(t, refused)
	require.Equal(t, []string{"meta-llama/Llama-3.1-8B", "sql-lora"}, models)

	models, refused, err = parseModels([]byte(`{"data":[{"id":"b"},{"id":""},{"id":"a\nb"},{"id":"` + strings.Repeat("x", 257) + `"},{"id":"\u202egpt"},{"id":"a"},{"id":"b"},{}]}`))
	require.NoError(t, err)
	require.Equal(t, 5, refused)
	require.Equal(t, []string{"a", "b"}, models)

	var many []string
	for i := range maxModels + 7 {
		many = append(many, fmt.Sprintf(`{"id":"m%05d"}`, i))
	}
	models, refused, err = parseModels([]byte(`{"data":[` + strings.Join(many, ",") + `]}`))
	require.NoError(t, err)
	require.Len(t, models, maxModels)
	require.Equal(t, 7, refused)

	models, _, err = parseModels([]byte(`{"data":[]}`))
	require.NoError(t, err)
	require.NotNil(t, models, "it was read, and there are none")
	for _, text := range []string{"", "null", "{}", "[]", `{"data":null}`, `{"data":{}}`, "<html>", modelsPage[:99]} {
		_, _, err := parseModels([]byte(text))
		require.ErrorContains(t, err, "not a list of models", text)
	}
}

func FuzzParseModels(f *testing.F) {
	f.Add([]byte(modelsPage))
	f.Fuzz(func(t *testing.T, data []byte) {
		models, _, err := parseModels(data)
		if (models == nil) == (err == nil) {
			t.Fatal("models or an error")
		}
		if len(models) > maxModels || !slices.IsSorted(models) {
			t.Fatal("out of bounds, or of order")
		}
		for _, m := range models {
			if err := config.CheckModel(m); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestReadModels(t *testing.T) {
	handler := http.NewServeMux()
	handler.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, modelsPage) })
	server := httptest.NewServer(handler)
	defer server.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	r := newReader(time.Second, transport)
	for _, base := range []string{server.URL, server.URL + "/"} {
		models, _, err := r.read(t.Context(), base)
		require.NoError(t, err)
		require.Len(t, models, 2)
	}

	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	socket := &httptest.Server{Listener: l, Config: &http.Server{Handler: handler}}
	socket.Start()
	defer socket.Close()
	models, _, err := r.read(t.Context(), "unix://"+path)
	require.NoError(t, err)
	require.Len(t, models, 2)

	for want, answer := range map[string]http.HandlerFunc{
		"answered 302": func(w http.ResponseWriter, q *http.Request) {
			http.Redirect(w, q, server.URL+"/v1/models", http.StatusFound)
		},
		"answered 503": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) },
		"longer than 1048576": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, strings.Repeat(" ", maxModelsPage), modelsPage)
		},
	} {
		bad := httptest.NewServer(answer)
		_, _, err := r.read(t.Context(), bad.URL)
		require.ErrorContains(t, err, want)
		bad.Close()
	}
}
