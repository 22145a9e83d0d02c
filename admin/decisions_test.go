package admin

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/proxy"
)

// Who asks a data plane for what it does not know, or cannot mean, is told so, and by whom.
func TestDecisionsThatAreNotThere(t *testing.T) {
	p, err := proxy.New(proxy.Options{Cluster: "a", Proxy: config.Proxy{Bound: 0.5}, Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer p.Close()
	s := httptest.NewServer(Proxy(p, prometheus.NewRegistry()))
	defer s.Close()
	c := Client{Base: s.URL}
	_, err = c.Decision(t.Context(), "i-1")
	require.ErrorContains(t, err, "the data plane says: this data plane made no such decision")
	require.True(t, Answered(err))
	for query, want := range map[string]string{
		"kept=errors": `kept: "errors" is none of [error retry slow sample]`, "since=yesterday": `since: time: invalid duration "yesterday"`, "replay=maybe": `replay: "maybe" is neither true nor false`,
	} {
		wanted, err := url.ParseQuery(query)
		require.NoError(t, err)
		require.EqualError(t, c.Decisions(t.Context(), wanted, &bytes.Buffer{}), "the data plane says: "+want)
		status, _ := get(t, s.URL+"/v1/decisions?"+query)
		require.Equal(t, http.StatusBadRequest, status)
	}
	for _, kept := range proxy.AllKept {
		var out bytes.Buffer
		require.NoError(t, c.Decisions(t.Context(), url.Values{"kept": {string(kept)}, "replay": {"true"}}, &out))
		require.Empty(t, out.String())
	}
	s.Close()
	_, err = c.Decision(t.Context(), "i-1")
	require.ErrorContains(t, err, "the data plane does not answer")
}
