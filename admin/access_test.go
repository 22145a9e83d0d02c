package admin

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/control"
	"github.com/wardrop-lb/wardrop/store"
	"github.com/wardrop-lb/wardrop/suppose"
)

// guarded serves a control plane that does not run, with a token if one is given.
func guarded(t *testing.T, token func() (string, error), planes func() []string) string {
	t.Helper()
	cfg, err := config.Parse("w.yaml", []byte(file))
	require.NoError(t, err)
	c := control.New(control.Options{Config: cfg, Store: &store.Memory{}, Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	s := httptest.NewServer(Control(c, prometheus.NewRegistry(), Options{Token: token, Planes: planes}))
	t.Cleanup(s.Close)
	return s.URL
}

var drain = store.Override{Kind: control.OverrideDrain, Subject: "near"}

// TestToken: what changes something wants the token, what does not is free.
func TestToken(t *testing.T) {
	token := "secret"
	var broken error
	url := guarded(t, func() (string, error) { return token, broken }, nil)
	for _, wrong := range []string{"", "Secret", "secre", "secrets"} {
		c := Client{Base: url, Token: wrong}
		require.ErrorContains(t, c.Override(t.Context(), drain), "needs the token", wrong)
		require.ErrorContains(t, c.RemoveOverride(t.Context(), drain.Key()), "needs the token")
		_, err := c.Join(t.Context(), store.Peer{Name: "x"})
		require.ErrorContains(t, err, "needs the token")
	}
	free := Client{Base: url}
	_, err := free.Status(t.Context())
	require.NoError(t, err)
	_, err = free.WhatIf(t.Context(), suppose.Changes{Demand: []suppose.DemandChange{{Factor: 1.1}}})
	require.ErrorContains(t, err, "there is no plan yet", "it changes nothing, and is not held up")

	right := Client{Base: url, Token: token}
	require.NoError(t, right.Override(t.Context(), drain))
	require.NoError(t, right.RemoveOverride(t.Context(), drain.Key()))
	token = "another"
	require.ErrorContains(t, right.Override(t.Context(), drain), "needs the token", "it is read anew")
	token = ""
	require.Error(t, Client{Base: url}.Override(t.Context(), drain), "no token is no way in")
	broken = errors.New("the file cannot be read")
	require.ErrorContains(t, right.Override(t.Context(), drain), "the file cannot be read")
}

func TestAccess(t *testing.T) {
	_, body := get(t, guarded(t, nil, nil)+"/v1/access")
	require.JSONEq(t, `{"token":false,"authorised":false}`, body)
	url := guarded(t, func() (string, error) { return "secret", nil }, nil)
	_, body = get(t, url+"/v1/access")
	require.JSONEq(t, `{"token":true,"authorised":false}`, body)
}

// TestOtherOrigins: another site's page cannot change anything, token or not.
func TestOtherOrigins(t *testing.T) {
	url := guarded(t, nil, nil)
	send := func(headers map[string]string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url+"/v1/overrides", strings.NewReader(`{"kind":"freeze"}`))
		require.NoError(t, err)
		for k, v := range headers {
			req.Header.Set(k, v)
		}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	require.Equal(t, http.StatusForbidden, send(map[string]string{"Sec-Fetch-Site": "cross-site"}))
	require.Equal(t, http.StatusForbidden, send(map[string]string{"Origin": "https://elsewhere.example"}))
	require.Equal(t, http.StatusNoContent, send(map[string]string{"Sec-Fetch-Site": "same-origin", "Origin": url}))
	require.Equal(t, http.StatusNoContent, send(nil), "a command is no page")
}

// TestRequestIsLookedForEverywhere: the data plane that knows answers, whoever else does not;
// nobody but those that are known is asked.
func TestRequestIsLookedForEverywhere(t *testing.T) {
	asked := 0
	knows := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.URL.Path != "/v1/decisions/plane-1" {
			fail(w, http.StatusNotFound, "no such decision")
			return
		}
		answer(w, http.StatusOK, map[string]any{"id": "plane-1", "cluster": "a", "model": "demo", "status": 200, "key": "none"})
	}))
	defer knows.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	addresses := []string{strings.TrimPrefix(gone.URL, "http://"), strings.TrimPrefix(knows.URL, "http://")}
	url := guarded(t, nil, func() []string { return addresses })
	status, body := get(t, url+"/v1/why/request?id=plane-1&engine=near")
	require.Equal(t, http.StatusOK, status, body)
	require.Contains(t, body, `"words"`)
	require.Contains(t, body, `"why_not"`)
	status, body = get(t, url+"/v1/why/request?id=plane-2")
	require.Equal(t, http.StatusNotFound, status)
	require.Contains(t, body, "1 of 2 did not answer")
	get(t, url+"/v1/why/request?id=..%2Fsnapshot")
	require.Equal(t, 3, asked)
	addresses = nil
	_, body = get(t, url+"/v1/why/request?id=plane-1")
	require.Contains(t, body, "nobody to ask")
}
