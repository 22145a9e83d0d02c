package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/wardrop-lb/wardrop/proxy"
)

// decided serves what a data plane remembers of its decisions: one of them, and those that are wanted as
// lines of JSON, with replay=true after the weights that they were made by.
func decided(mux *http.ServeMux, p *proxy.DataPlane) {
	mux.HandleFunc("GET /v1/decisions/{id}", func(w http.ResponseWriter, r *http.Request) {
		if d, ok := p.Decision(r.PathValue("id")); ok {
			answer(w, http.StatusOK, d)
			return
		}
		fail(w, http.StatusNotFound, "this data plane made no such decision, or has forgotten it, or did not record it: of more than proxy.record_rate a second it records errors, retries, slow ones and a sample")
	})
	mux.HandleFunc("GET /v1/decisions", func(w http.ResponseWriter, r *http.Request) {
		wanted, replay, err := wanted(r, time.Now())
		if err != nil {
			fail(w, http.StatusBadRequest, err.Error())
			return
		}
		list := p.Decisions(wanted)
		w.Header().Set("Content-Type", "application/jsonl")
		e := json.NewEncoder(w)
		if replay {
			for _, t := range p.Tables(list) {
				if e.Encode(proxy.Recorded{Table: &t}) != nil {
					return
				}
			}
		}
		for i := range list {
			if e.Encode(proxy.Recorded{Decision: &list[i]}) != nil {
				return
			}
		}
	})
}

// wanted reads the query: model, engine, kept, since, replay.
func wanted(r *http.Request, now time.Time) (w proxy.Wanted, replay bool, err error) {
	q := r.URL.Query()
	w = proxy.Wanted{Model: q.Get("model"), Engine: q.Get("engine"), Kept: proxy.Kept(q.Get("kept"))}
	if w.Kept != "" && !slices.Contains(proxy.AllKept, w.Kept) {
		return w, false, fmt.Errorf("kept: %q is none of %v", w.Kept, proxy.AllKept)
	}
	if text := q.Get("since"); text != "" {
		since, err := time.ParseDuration(text)
		if err != nil {
			return w, false, fmt.Errorf("since: %w", err)
		}
		w.Since = now.Add(-since)
	}
	if text := q.Get("replay"); text != "" {
		if replay, err = strconv.ParseBool(text); err != nil {
			return w, false, fmt.Errorf("replay: %q is neither true nor false", text)
		}
	}
	return w, replay, nil
}
