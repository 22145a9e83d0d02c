package proxy

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/route"
)

// Codes of how requests end that are also said of answers which are cut off.
const (
	codeGone   = "client_closed"
	codeLate   = "deadline"
	codeFailed = "engine_failed"
)

// refusal is an answer that the proxy gives itself, as an OpenAI-style error.
type refusal struct {
	status     int
	kind       string // "type" of the error
	code       string
	message    string
	retryAfter int // seconds; 0 for no header

	body    []byte             // as it is written; nil until it is
	counter prometheus.Counter // of its code; nil for it to be looked up
}

var (
	jsonType       = []string{"application/json"}
	retryAfterShed = []string{strconv.Itoa(shedRetryAfter)}
)

func refuse(status int, kind, code, format string, args ...any) *refusal {
	return &refusal{status: status, kind: kind, code: code, message: fmt.Sprintf(format, args...)}
}

func badRequest(code, format string, args ...any) *refusal {
	return refuse(http.StatusBadRequest, "invalid_request_error", code, format, args...)
}

func (e *refusal) write(w http.ResponseWriter) {
	h := w.Header()
	h["Content-Type"] = jsonType
	switch e.retryAfter {
	case 0:
	case shedRetryAfter:
		h["Retry-After"] = retryAfterShed
	default:
		h["Retry-After"] = []string{strconv.Itoa(e.retryAfter)}
	}
	w.WriteHeader(e.status)
	if e.body == nil {
		e.body = e.encode()
	}
	_, _ = w.Write(e.body)
}

func (e *refusal) encode() []byte {
	b := append(make([]byte, 0, 512), `{"error":{"message":`...)
	b, _ = jsontext.AppendQuote(b, e.message) // bad UTF-8 is replaced
	b = append(b, `,"type":"`...)
	b = append(b, e.kind...)
	b = append(b, `","param":null,"code":"`...)
	b = append(b, e.code...)
	return append(b, "\"}}\n"...)
}

// shedRefusals are the answers to the requests that the plan sheds of a row, made
// once: under overload they are most of what is answered. Nil where none is shed.
func (m *metrics) shedRefusals(row *route.Row) (out [fleet.NumPriorities]*refusal) {
	for k, fraction := range row.Shed {
		if fraction > 0 {
			e := refuse(http.StatusTooManyRequests, "rate_limit_error", "shed",
				"demand for %q exceeds capacity: %.0f%% of %s requests are refused", row.Model, 100*fraction, fleet.Priority(k))
			e.retryAfter, e.body, e.counter = shedRetryAfter, e.encode(), m.refused.WithLabelValues(e.code)
			out[k] = e
		}
	}
	return out
}
