package admin

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"

	"github.com/wardrop-lb/wardrop/control"
	"github.com/wardrop-lb/wardrop/history"
	"github.com/wardrop-lb/wardrop/suppose"
)

// Plans is the answer of /v1/plans: those that are recorded, the oldest first.
type Plans struct {
	Plans []history.Entry `json:"plans"`
}

// Thresholds is the answer of /v1/why/thresholds; empty for an engine that has traffic.
type Thresholds struct {
	Thresholds []suppose.Threshold `json:"thresholds"`
}

// suppositions serves what another solve answers.
func suppositions(mux *http.ServeMux, c *control.Control) {
	mux.HandleFunc("GET /v1/plans", func(w http.ResponseWriter, r *http.Request) {
		var from [2]uint64
		if s := r.URL.Query().Get("from"); s != "" {
			var err error
			if from, err = history.Parse(s); err != nil {
				fail(w, http.StatusBadRequest, err.Error())
				return
			}
		}
		answer(w, http.StatusOK, Plans{c.Plans(from)})
	})
	mux.HandleFunc("GET /v1/plans/{plan}", func(w http.ResponseWriter, r *http.Request) {
		at, err := history.Parse(r.PathValue("plan"))
		if err != nil {
			fail(w, http.StatusBadRequest, err.Error())
			return
		}
		packed, err := c.Record(at[0], at[1])
		if err != nil {
			solved(w, nil, err)
			return
		}
		defer func() { _ = packed.Close() }()
		w.Header().Set("Content-Type", "application/gzip")
		_, _ = io.Copy(w, packed) // who asked finds by the checksum that it is not whole
	})
	mux.HandleFunc("GET /v1/why/change", func(w http.ResponseWriter, r *http.Request) {
		from, err1 := history.Parse(r.URL.Query().Get("from"))
		to, err2 := history.Parse(r.URL.Query().Get("to"))
		if err := errors.Join(err1, err2); err != nil {
			fail(w, http.StatusBadRequest, err.Error())
			return
		}
		change, err := c.WhyChange(r.Context(), from, to)
		if q := r.URL.Query(); change != nil && q.Has("model") {
			change.Weights = slices.DeleteFunc(change.Weights, func(w suppose.WeightChange) bool {
				return q.Get("cluster") != "" && w.Cluster != q.Get("cluster") || w.Model != q.Get("model")
			})
		}
		solved(w, change, err)
	})
	mux.HandleFunc("GET /v1/why/thresholds", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		list, err := c.Thresholds(r.Context(), q.Get("cluster"), q.Get("model"), q.Get("engine"))
		solved(w, Thresholds{list}, err)
	})
	mux.HandleFunc("POST /v1/what-if", func(w http.ResponseWriter, r *http.Request) {
		var changes suppose.Changes
		if !asked(w, r, &changes) {
			return
		}
		outcome, err := c.WhatIf(r.Context(), changes)
		if n, err := strconv.Atoi(r.URL.Query().Get("moves")); err == nil && outcome != nil && n >= 0 && n < len(outcome.Moves) {
			outcome.Moves = outcome.Moves[:n] // a page shows but the largest
		}
		solved(w, outcome, err)
	})
	mux.HandleFunc("GET /v1/advice", func(w http.ResponseWriter, r *http.Request) {
		advice, err := c.Advise(r.Context())
		solved(w, advice, err)
	})
}

func solved(w http.ResponseWriter, v any, err error) {
	switch {
	case errors.Is(err, control.ErrNoPlan):
		fail(w, http.StatusServiceUnavailable, err.Error())
	case errors.Is(err, history.ErrGone):
		fail(w, http.StatusNotFound, err.Error())
	case err != nil:
		fail(w, http.StatusBadRequest, err.Error())
	default:
		answer(w, http.StatusOK, v)
	}
}
