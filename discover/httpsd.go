package discover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/wardrop-lb/wardrop/config"
)

// httpTimeout bounds one look.
const httpTimeout = 10 * time.Second

// httpSD is a server that lists targets in the form of Prometheus' http_sd.
type httpSD struct {
	config.Source
	client *http.Client
}

func newHTTPSD(s config.Source) *httpSD {
	return &httpSD{s, &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, // one look in ten seconds
	}}}
}

// Run implements Source.
func (h *httpSD) Run(ctx context.Context, report func(Found)) error {
	return every(ctx, time.Duration(h.Interval), func() {
		limit, cancel := context.WithTimeout(ctx, httpTimeout)
		defer cancel()
		if found := h.look(limit); ctx.Err() == nil {
			report(found)
		}
	})
}

func (h *httpSD) look(ctx context.Context) Found {
	data, err := page(ctx, h.client, h.HTTP.URL, maxPage)
	if err != nil {
		return Found{Err: err}
	}
	found := parseHTTPSD(h.Scheme, data)
	if found.Err != nil {
		found.Err = fmt.Errorf("%s: %w", h.HTTP.URL, found.Err)
	}
	return found
}

// page reads a JSON page of at most limit bytes.
func page(ctx context.Context, client *http.Client, url string, limit int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: answered %d", url, resp.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("longer than %d bytes", limit)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	return data, nil
}

// parseHTTPSD reads a page. Labels that mean nothing to us are passed over, as are
// those of Prometheus' own (__meta_...), of which only __scheme__ counts.
func parseHTTPSD(scheme string, data []byte) Found {
	var groups []struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	if err := json.Unmarshal(data, &groups); err != nil {
		return Found{Err: fmt.Errorf("not a JSON list of targets and labels: %w", err)}
	}
	if groups == nil {
		return Found{Err: errors.New("not a JSON list of targets and labels: null")}
	}
	found := Found{Engines: []config.Engine{}}
	for _, g := range groups {
		e := config.Engine{Region: g.Labels["region"], Kind: g.Labels["kind"]}
		for m := range strings.SplitSeq(g.Labels["model"]+","+g.Labels["models"], ",") {
			if m = strings.TrimSpace(m); m != "" {
				e.Models = append(e.Models, m)
			}
		}
		with := scheme
		if s := g.Labels["__scheme__"]; s != "" {
			with = s
		}
		for _, t := range g.Targets {
			base, err := Target(with, t)
			if err != nil {
				found.Refused = append(found.Refused, err.Error())
				continue
			}
			e.URL = base
			found.Engines = append(found.Engines, e)
		}
	}
	return found
}
