package proxy

import (
	"encoding/json"
	"net/http"
)

// bodyKind says how an endpoint's body names its model.
type bodyKind uint8

const (
	jsonBody bodyKind = iota
	formBody
)

// endpoint is a path that engines serve and that names a model in its body.
type endpoint struct {
	path string
	body bodyKind
	// cached tells that engines keep what the prompt begins with, so that its
	// prefix makes the affinity key.
	cached bool
	// stores tells that the answer may be asked for again by its id.
	stores bool
}

// endpoints are the paths that are known: OpenAI's, Anthropic's, and vLLM's own.
var endpoints = []endpoint{
	{path: "/v1/chat/completions", cached: true},
	{path: "/v1/completions", cached: true},
	{path: "/v1/responses", cached: true, stores: true},
	{path: "/v1/messages", cached: true},
	{path: "/v1/messages/count_tokens"},
	{path: "/v1/embeddings"},
	{path: "/v1/images/generations"},
	{path: "/v1/images/edits", body: formBody},
	{path: "/v1/audio/speech"},
	{path: "/v1/audio/transcriptions", body: formBody},
	{path: "/v1/audio/translations", body: formBody},
	{path: "/v1/rerank"},
	{path: "/v2/rerank"},
	{path: "/rerank"},
	{path: "/v1/score"},
	{path: "/score"},
	{path: "/pooling"},
	{path: "/classify"},
	{path: "/tokenize"},
	{path: "/detokenize"},
}

// routes builds the handler of the request path.
func (p *DataPlane) routes() http.Handler {
	mux := http.NewServeMux()
	known := map[string]bool{}
	all := endpoints
	for _, path := range p.config.Paths {
		all = append(all[:len(all):len(all)], endpoint{path: path})
	}
	for _, e := range all {
		if known[e.path] {
			continue
		}
		known[e.path] = true
		mux.HandleFunc("POST "+e.path, func(w http.ResponseWriter, r *http.Request) { p.serve(w, r, e) })
		mux.HandleFunc(e.path, p.onlyPost)
	}
	mux.HandleFunc("GET /v1/models", p.serveModels)
	mux.HandleFunc("/v1/responses/{id}", p.serveStored)
	mux.HandleFunc("/v1/responses/{id}/{what}", p.serveStored)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		p.refuse(w, nil, refuse(http.StatusNotFound, "invalid_request_error", "unknown_url", "unknown path %s", r.URL.Path))
	})
	return mux
}

func (p *DataPlane) onlyPost(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Allow", http.MethodPost)
	p.refuse(w, nil, refuse(http.StatusMethodNotAllowed, "invalid_request_error", "method_not_allowed", "use POST"))
}

// serveModels lists what may be asked for: the models of all engines and the
// aliases.
func (p *DataPlane) serveModels(w http.ResponseWriter, _ *http.Request) {
	type model struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		OwnedBy string `json:"owned_by"`
	}
	t := p.table.Load()
	if t == nil {
		p.refuse(w, nil, noSnapshot())
		return
	}
	models := []model{}
	for _, name := range t.router.Models() {
		models = append(models, model{name, "model", p.started.Unix(), "wardrop"})
	}
	for _, c := range p.aliasList {
		models = append(models, model{c.Name, "model", p.started.Unix(), "wardrop"})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"object": "list", "data": models})
}
