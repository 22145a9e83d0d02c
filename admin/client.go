package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/wardrop-lb/wardrop/explain"
	"github.com/wardrop-lb/wardrop/history"
	"github.com/wardrop-lb/wardrop/proxy"
	"github.com/wardrop-lb/wardrop/store"
	"github.com/wardrop-lb/wardrop/suppose"
)

// Client talks to the admin API of a control plane.
type Client struct {
	// Base is the API's URL or host:port.
	Base string
	// Token is shown where something is changed; empty for none.
	Token string

	patience time.Duration // clientTimeout if 0
	whom     string        // is asked; the control plane if empty
}

const clientTimeout = 10 * time.Second

// WhyWeight asks why a row's engines have their weights; engine may be empty.
func (c Client) WhyWeight(ctx context.Context, cluster, model, engine string) (*explain.Weight, error) {
	q := url.Values{"cluster": {cluster}, "model": {model}}
	if engine != "" {
		q.Set("engine", engine)
	}
	var out explain.Weight
	return &out, c.get(ctx, "/v1/why/weight?"+q.Encode(), &out)
}

// Status asks how the control plane is.
func (c Client) Status(ctx context.Context) (*Status, error) {
	var out Status
	return &out, c.get(ctx, "/v1/status", &out)
}

// Engines asks what is known of the engines.
func (c Client) Engines(ctx context.Context) (*Engines, error) {
	var out Engines
	return &out, c.get(ctx, "/v1/engines", &out)
}

// Demand asks what arrives where.
func (c Client) Demand(ctx context.Context) (*Demand, error) {
	var out Demand
	return &out, c.get(ctx, "/v1/demand", &out)
}

// Distances asks how far regions are.
func (c Client) Distances(ctx context.Context) (*Distances, error) {
	var out Distances
	return &out, c.get(ctx, "/v1/distances", &out)
}

// Overrides asks what operators have pinned.
func (c Client) Overrides(ctx context.Context) (*Overrides, error) {
	var out Overrides
	return &out, c.get(ctx, "/v1/overrides", &out)
}

// Override pins something.
func (c Client) Override(ctx context.Context, o store.Override) error {
	return c.do(ctx, http.MethodPut, "/v1/overrides", o, nil)
}

// RemoveOverride ends an override by its key.
func (c Client) RemoveOverride(ctx context.Context, key string) error {
	return c.do(ctx, http.MethodDelete, "/v1/overrides/"+(&url.URL{Path: key}).EscapedPath(), nil, nil)
}

// Join asks to be taken in as a member, and gives those to begin with.
func (c Client) Join(ctx context.Context, joins store.Peer) ([]store.Peer, error) {
	var out Members
	err := c.do(ctx, http.MethodPost, "/v1/members", joins, &out)
	return out.Members, err
}

// Plans asks which plans are recorded.
func (c Client) Plans(ctx context.Context) (*Plans, error) {
	var out Plans
	return &out, c.get(ctx, "/v1/plans", &out)
}

// PlansFrom asks which plans are recorded from one on, as a history.Source does.
func (c Client) PlansFrom(ctx context.Context, from [2]uint64) ([]history.Entry, error) {
	var out Plans
	err := c.get(ctx, fmt.Sprintf("/v1/plans?from=%d.%d", from[0], from[1]), &out)
	return out.Plans, err
}

// Record writes a recorded plan to w as it is kept, as a history.Source does.
func (c Client) Record(ctx context.Context, epoch, version uint64, w io.Writer) error {
	return c.get(ctx, fmt.Sprintf("/v1/plans/%d.%d", epoch, version), w)
}

// WhyChange asks how one recorded plan became another, each named EPOCH.VERSION.
func (c Client) WhyChange(ctx context.Context, from, to string) (*suppose.Change, error) {
	var out suppose.Change
	return &out, c.slowly().get(ctx, "/v1/why/change?"+url.Values{"from": {from}, "to": {to}}.Encode(), &out)
}

// Thresholds asks what would have to be different for an engine to get traffic of a row.
func (c Client) Thresholds(ctx context.Context, cluster, model, engine string) ([]suppose.Threshold, error) {
	var out Thresholds
	err := c.slowly().get(ctx, "/v1/why/thresholds?"+url.Values{"cluster": {cluster}, "model": {model}, "engine": {engine}}.Encode(), &out)
	return out.Thresholds, err
}

// WhatIf asks for the plan that would follow.
func (c Client) WhatIf(ctx context.Context, changes suppose.Changes) (*suppose.Outcome, error) {
	var out suppose.Outcome
	return &out, c.slowly().do(ctx, http.MethodPost, "/v1/what-if", changes, &out)
}

// Advice asks what an operator may want to do.
func (c Client) Advice(ctx context.Context) (*suppose.Advice, error) {
	var out suppose.Advice
	return &out, c.slowly().get(ctx, "/v1/advice", &out)
}

// Decision asks a data plane how it routed a request.
func (c Client) Decision(ctx context.Context, id string) (*proxy.Decision, error) {
	c.whom = dataPlane
	var out proxy.Decision
	return &out, c.get(ctx, "/v1/decisions/"+url.PathEscape(id), &out)
}

// Decisions copies what a data plane remembers to w, as lines of JSON. wanted are the query's keys:
// model, engine, kept, since, replay.
func (c Client) Decisions(ctx context.Context, wanted url.Values, w io.Writer) error {
	c.whom = dataPlane
	return c.slowly().do(ctx, http.MethodGet, "/v1/decisions?"+wanted.Encode(), nil, w)
}

// refusal is what is answered in place of what was asked for.
type refusal struct{ whose, text string }

func (r refusal) Error() string { return "the " + r.whose + " says: " + r.text }

const dataPlane = "data plane"

func (c Client) asked() string { return cmp.Or(c.whom, "control plane") }

// Answered tells whether an error is an answer, rather than that there was none.
func Answered(err error) bool {
	var r refusal
	return errors.As(err, &r)
}

// slowly waits longer: what is asked for needs many solves.
func (c Client) slowly() Client {
	c.patience = 5 * time.Minute
	return c
}

func (c Client) get(ctx context.Context, path string, into any) error {
	return c.do(ctx, http.MethodGet, path, nil, into)
}

// do asks, with a body unless it is nil; into is nil where nothing is answered.
func (c Client) do(ctx context.Context, method, path string, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.patience, clientTimeout))
	defer cancel()
	base := c.Base
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	var sent io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(base, "/")+path, sent)
	if err != nil {
		return err
	}
	if c.Token != "" && method != http.MethodGet {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("the %s does not answer: %w", c.asked(), err)
	}
	defer func() { _ = resp.Body.Close() }()
	if into == nil && resp.StatusCode == http.StatusNoContent {
		return nil
	}
	if resp.StatusCode != http.StatusOK {
		var e struct{ Error string }
		if json.NewDecoder(resp.Body).Decode(&e) != nil || e.Error == "" {
			e.Error = resp.Status
		}
		return refusal{c.asked(), e.Error}
	}
	if w, ok := into.(io.Writer); ok {
		_, err := io.Copy(w, resp.Body)
		return err
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("what answers at %s is no %s of this version: %w", c.Base, c.asked(), err)
	}
	return nil
}
