package main

import (
	"io"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTokenOfCommands: what changes something wants the token, of a file or the environment; the
// page is there, and says who may change something.
func TestTokenOfCommands(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	writeFile(t, token, "open sesame\n")
	c := startControlPlaneWith(t, "memory, admin_token_file: "+token)
	code, _, errors := wardrop(t, "drain", "near", "-c", c.file)
	require.Equal(t, 1, code)
	require.Contains(t, errors, "--token-file FILE, or WARDROP_TOKEN")
	code, _, errors = wardrop(t, "drain", "near", "-c", c.file, "--token-file", token)
	require.Zero(t, code, errors)
	code, out, errors := wardrop(t, "override", "-c", c.file)
	require.Zero(t, code, errors)
	require.Contains(t, out, "drain/near", "to look needs none")
	t.Setenv(tokenEnv, "open sesame")
	code, _, errors = wardrop(t, "override", "remove", "drain/near", "--admin", c.admin)
	require.Zero(t, code, errors)

	resp, err := http.Get("http://" + c.admin + "/")
	require.NoError(t, err)
	page, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Contains(t, string(page), "<title>Wardrop</title>")
}

// TestTokenThatIsNot: a control plane that could not tell who may change it does not start.
func TestTokenThatIsNot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "wardrop.yaml")
	empty := filepath.Join(t.TempDir(), "empty")
	writeFile(t, empty, " \n")
	for path, want := range map[string]string{"/nowhere/token": "no such file", empty: "is empty"} {
		writeFile(t, file, `control: {store: memory, listen: "127.0.0.1:0", admin: "127.0.0.1:0", admin_token_file: `+path+`}
clusters: [{name: a, region: a, distances: {a: 5ms}}]
engines: [{name: near, region: a, url: "http://127.0.0.1:9", models: [demo]}]
`)
		code, _, errors := wardrop(t, "control", "-c", file)
		require.NotZero(t, code)
		require.Contains(t, errors, want)
	}
}
