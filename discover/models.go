package discover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/wardrop-lb/wardrop/config"
)

// Bounds of what an engine may say of its models.
const (
	maxModelsPage = 1 << 20 // bytes
	maxModels     = 1000
)

// readAgain is how soon an engine that did not say its models is asked again at
// first: one that starts is to get its traffic soon. It doubles up to the interval.
const readAgain = time.Second

// modelsTimeout bounds one read.
const modelsTimeout = 5 * time.Second

// parseModels reads a page of /v1/models: the names of all models, adapters
// included, sorted; and how many names are refused, because no file could hold them
// or because they are too many.
func parseModels(data []byte) (models []string, refused int, err error) {
	var page struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(data, &page); err != nil {
		return nil, 0, fmt.Errorf("not a list of models: %w", err)
	}
	if page.Data == nil {
		return nil, 0, errors.New("not a list of models: there is no data")
	}
	models = []string{}
	for _, m := range page.Data {
		if config.CheckModel(m.ID) != nil {
			refused++
			continue
		}
		models = append(models, m.ID)
	}
	slices.Sort(models)
	models = slices.Compact(models)
	if len(models) > maxModels {
		refused += len(models) - maxModels
		models = models[:maxModels]
	}
	return models, refused, nil
}

// reading is what is known of one engine's models.
type reading struct {
	models  []string // nil: never read
	refused int
	asked   bool // answered or not
}

// reader reads the models of engines. Safe for concurrent use.
type reader struct {
	client   *http.Client
	places   chan struct{} // reads at once
	interval time.Duration
}

// readsAtOnce bounds reads under way: thousands of engines that all time out must not
// hold as many sockets.
const readsAtOnce = 64

func newReader(interval time.Duration, transport http.RoundTripper) *reader {
	return &reader{&http.Client{
		Transport: transport,
		// An engine must not send us elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, make(chan struct{}, readsAtOnce), interval}
}

// run reads an engine's models until ctx ends, and calls report with what each read
// gave.
func (r *reader) run(ctx context.Context, base string, report func(models []string, refused int, err error)) {
	wait := readAgain
	for ctx.Err() == nil {
		models, refused, err := r.read(ctx, base)
		if ctx.Err() != nil {
			return
		}
		report(models, refused, err)
		next := r.interval - spread(base, r.interval)
		if err != nil {
			next = min(wait, r.interval)
			wait *= 2
		} else {
			wait = readAgain
		}
		select {
		case <-ctx.Done():
		case <-time.After(next):
		}
	}
}

// spread takes up to a tenth off an interval, for each engine another part, so that
// engines found at once are not read at once for ever.
func spread(base string, interval time.Duration) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(base))
	return interval / 10 * time.Duration(h.Sum32()%1024) / 1024
}

func (r *reader) read(ctx context.Context, base string) ([]string, int, error) {
	select {
	case r.places <- struct{}{}:
		defer func() { <-r.places }()
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, modelsTimeout)
	defer cancel()
	client, at := r.client, base
	if u, err := url.Parse(base); err == nil && u.Scheme == "unix" {
		client, at = socketClient(u.Path), "http://localhost"
	}
	for len(at) > 0 && at[len(at)-1] == '/' {
		at = at[:len(at)-1]
	}
	data, err := page(ctx, client, at+"/v1/models", maxModelsPage)
	if err != nil {
		return nil, 0, err
	}
	return parseModels(data)
}

func socketClient(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
}
