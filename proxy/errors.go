package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// refusal is an answer that the proxy gives itself, as an OpenAI-style error.
type refusal struct {
	status     int
	kind       string // "type" of the error
	code       string
	message    string
	retryAfter int // seconds; 0 for no header
}

func refuse(status int, kind, code, format string, args ...any) *refusal {
	return &refusal{status: status, kind: kind, code: code, message: fmt.Sprintf(format, args...)}
}

func badRequest(code, format string, args ...any) *refusal {
	return refuse(http.StatusBadRequest, "invalid_request_error", code, format, args...)
}

func (e *refusal) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if e.retryAfter > 0 {
		h.Set("Retry-After", fmt.Sprint(e.retryAfter))
	}
	w.WriteHeader(e.status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{
		"message": e.message, "type": e.kind, "param": nil, "code": e.code,
	}})
}
