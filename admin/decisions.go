package admin

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/wardrop-lb/wardrop/proxy"
)

// decided serves what a data plane remembers of its decisions: one of them, why an engine was not
// picked for it, and all as lines of JSON, with replay=true after the weights that they were made by.
func decided(mux *http.ServeMux, p *proxy.DataPlane) {
	find := func(w http.ResponseWriter, r *http.Request) (proxy.Decision, bool) {
		d, ok := p.Decision(r.PathValue("id"))
		if !ok {
			fail(w, http.StatusNotFound, "this data plane made no such decision, or has forgotten it, or did not record it: of more than proxy.record_rate a second it records errors, retries, slow ones and a sample")
		}
		return d, ok
	}
	mux.HandleFunc("GET /v1/decisions/{id}", func(w http.ResponseWriter, r *http.Request) {
		if d, ok := find(w, r); ok {
			answer(w, http.StatusOK, d)
		}
	})
	mux.HandleFunc("GET /v1/decisions", func(w http.ResponseWriter, r *http.Request) {
		wanted, err := wanted(r, time.Now())
		if err != nil {
			fail(w, http.StatusBadRequest, err.Error())
			return
		}
		list := p.Decisions(wanted)
		w.Header().Set("Content-Type", "application/jsonl")
		e := json.NewEncoder(w)
		if replay, _ := strconv.ParseBool(r.URL.Query().Get("replay")); replay {
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

func wanted(r *http.Request, now time.Time) (w proxy.Wanted, err error) {
	q := r.URL.Query()
	w = proxy.Wanted{Model: q.Get("model"), Engine: q.Get("engine"), Kept: proxy.Kept(q.Get("kept"))}
	if text := q.Get("since"); text != "" {
		var since time.Duration
		if since, err = time.ParseDuration(text); err == nil {
			w.Since = now.Add(-since)
		}
	}
	return w, err
}
