package proxy

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/protect"
	"github.com/wardrop-lb/wardrop/route"
)

const (
	// bytesPerToken turns a body's size into expected prompt tokens.
	bytesPerToken = 4
	// usualOutput is the output expected of a request that sets no limit, in tokens.
	usualOutput = 256
	// shedRetryAfter is what a refused client is told to wait: about a tick.
	shedRetryAfter = 2
)

// routes builds the handler of the request path.
func (p *DataPlane) routes() http.Handler {
	mux := http.NewServeMux()
	for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings"} {
		mux.HandleFunc("POST "+path, p.serve)
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Allow", "POST")
			refuse(http.StatusMethodNotAllowed, "invalid_request_error", "method_not_allowed", "use POST").write(w)
		})
	}
	mux.HandleFunc("GET /v1/models", p.serveModels)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(http.StatusNotFound, "invalid_request_error", "unknown_url", "unknown path %s", r.URL.Path).write(w)
	})
	return mux
}

// request is one request on its way.
type request struct {
	w        http.ResponseWriter
	r        *http.Request
	body     *bodyBuffer
	row      *rowState
	pick     route.Pick
	work     int64
	priority fleet.Priority
	arrived  time.Time
}

func (p *DataPlane) serve(w http.ResponseWriter, r *http.Request) {
	q := request{w: w, r: r, arrived: time.Now(), priority: fleet.Standard}
	body, err := readBody(r, int64(p.config.MaxBody))
	if err != nil {
		p.refuse(w, p.bodyError(r, err))
		return
	}
	defer body.release()
	q.body = body
	if e := p.admit(&q); e != nil {
		p.refuse(w, e)
		return
	}
	p.forward(&q)
}

// bodyError says why a body could not be read. A client that went away gets no
// answer that it could read, but the connection must still be closed by one.
func (p *DataPlane) bodyError(r *http.Request, err error) *refusal {
	if errors.Is(err, errTooLarge) {
		return refuse(http.StatusRequestEntityTooLarge, "invalid_request_error", "body_too_large",
			"the body is larger than %d bytes, the limit of this proxy", p.config.MaxBody)
	}
	if r.Context().Err() != nil {
		return refuse(statusClientClosed, "invalid_request_error", "client_closed", "the client went away")
	}
	return badRequest("unreadable_body", "the body could not be read: %v", err)
}

// admit decides where the request may go: it sniffs the body, finds the row,
// sheds if the plan says so, and picks.
func (p *DataPlane) admit(q *request) *refusal {
	if name := q.r.Header.Get("X-Priority"); name != "" {
		priority, err := fleet.ParsePriority(name)
		if err != nil {
			return badRequest("invalid_priority", "x-priority: %v", err)
		}
		q.priority = priority
	}
	fields, err := Sniff(q.body.buf.Bytes())
	if err != nil {
		return badRequest("invalid_body", "%v", err)
	}
	t := p.table.Load()
	if t == nil {
		return noSnapshot()
	}
	q.row = t.rows[fields.Model]
	if q.row == nil {
		return refuse(http.StatusNotFound, "invalid_request_error", "model_not_found", "the model %q does not exist", fields.Model)
	}
	q.row.model.demand[q.priority].add()
	if fraction := q.row.Shed[q.priority]; fraction > 0 && protect.Shed(shedDraw(q.r), fraction) {
		q.row.model.shed[q.priority].add()
		e := refuse(http.StatusTooManyRequests, "rate_limit_error", "shed",
			"demand for %q exceeds capacity: %.0f%% of %s requests are refused", fields.Model, 100*fraction, q.priority)
		e.retryAfter = shedRetryAfter
		return e
	}
	q.row.model.budget.Admit(q.row.Utilisation)
	q.work = expectedWork(q.body.buf.Len(), fields.MaxTokens)
	q.pick = q.row.Pick(keyHash(q.r, &fields), q.work, q.arrived.UnixNano())
	return nil
}

func noSnapshot() *refusal {
	return refuse(http.StatusServiceUnavailable, "server_error", "no_snapshot",
		"this data plane has no routing weights yet: it waits for the control plane")
}

// expectedWork is a request's work in tokens.
func expectedWork(bodyBytes int, maxTokens int64) int64 {
	if maxTokens == 0 {
		maxTokens = usualOutput
	}
	return int64(bodyBytes)/bytesPerToken + maxTokens
}

// keyHash hashes the affinity key; without one the request may go anywhere.
func keyHash(r *http.Request, f *Fields) uint64 {
	if session := r.Header.Get("X-Session-Id"); session != "" {
		return route.HashKey(route.KeySession, f.Model, []byte(session))
	}
	if f.KeySource == route.KeyNone {
		return rand.Uint64()
	}
	return route.HashKey(f.KeySource, f.Model, f.Key)
}

// shedDraw is uniform, and the same for the same request id.
func shedDraw(r *http.Request) uint64 {
	if id := r.Header.Get("X-Request-Id"); id != "" {
		return xxhash.Sum64String(id)
	}
	return rand.Uint64()
}

func (p *DataPlane) serveModels(w http.ResponseWriter, _ *http.Request) {
	type model struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		OwnedBy string `json:"owned_by"`
	}
	t := p.table.Load()
	if t == nil {
		p.refuse(w, noSnapshot())
		return
	}
	models := []model{}
	for _, name := range t.router.Models() {
		models = append(models, model{name, "model", p.started.Unix(), "wardrop"})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"object": "list", "data": models})
}

// refuse answers a request itself.
func (p *DataPlane) refuse(w http.ResponseWriter, e *refusal) {
	p.metrics.refused.WithLabelValues(e.code).Inc()
	e.write(w)
}
