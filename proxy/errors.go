package proxy

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
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
	h["Content-Type"] = []string{"application/json"}
	if e.retryAfter > 0 {
		h["Retry-After"] = []string{strconv.Itoa(e.retryAfter)}
	}
	w.WriteHeader(e.status)
	b := append(make([]byte, 0, 512), `{"error":{"message":`...)
	b, _ = jsontext.AppendQuote(b, e.message) // bad UTF-8 is replaced
	b = append(b, `,"type":"`...)
	b = append(b, e.kind...)
	b = append(b, `","param":null,"code":"`...)
	b = append(b, e.code...)
	b = append(b, "\"}}\n"...)
	_, _ = w.Write(b)
}
