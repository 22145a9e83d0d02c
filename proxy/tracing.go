package proxy

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	// The last version that has the conventions for generative AI.
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/wardrop-lb/wardrop/protect"
	"github.com/wardrop-lb/wardrop/route"
)

// tracing makes a span of every request and, within it, of every attempt, which the engine
// continues: it is told of it by traceparent (W3C Trace Context). Without a tracer the headers pass
// as they came.
type tracing struct {
	tracer trace.Tracer // nil for none
	w3c    propagation.TraceContext
}

func newTracing(provider trace.TracerProvider) tracing {
	if provider == nil {
		return tracing{}
	}
	return tracing{tracer: provider.Tracer("github.com/wardrop-lb/wardrop/proxy", trace.WithSchemaURL(semconv.SchemaURL))}
}

// begin starts the request's span and notes its trace, which also one without a tracer may have.
func (t *tracing) begin(q *request) {
	if t.tracer != nil {
		ctx := t.w3c.Extract(q.ctx, propagation.HeaderCarrier(q.r.Header))
		q.ctx, q.span = t.tracer.Start(ctx, methodOf(q.r), trace.WithSpanKind(trace.SpanKindServer))
		q.record.trace = q.span.SpanContext().TraceID()
	} else if len(q.r.Header["Traceparent"]) > 0 {
		ctx := t.w3c.Extract(context.Background(), propagation.HeaderCarrier(q.r.Header))
		q.record.trace = trace.SpanContextFromContext(ctx).TraceID()
	}
}

// end ends the request's span, which there is, with what was decided.
func (t *tracing) end(q *request, id, cluster string) {
	defer q.span.End()
	if !q.span.IsRecording() {
		return
	}
	r := &q.record
	q.span.SetName(methodOf(q.r) + " " + r.path)
	q.span.SetAttributes(
		semconv.HTTPRequestMethodKey.String(methodOf(q.r)), semconv.HTTPRoute(r.path), semconv.URLPath(brief(q.r.URL.Path, maxAttribute)), semconv.URLScheme(schemeOf(q.r)),
		semconv.HTTPResponseStatusCode(int(r.status)), semconv.GenAIRequestModel(brief(r.model, maxAttribute)),
		attribute.String("wardrop.decision", id), attribute.String("wardrop.cluster", cluster), attribute.String("wardrop.priority", r.priority.String()),
		attribute.String("wardrop.plan", strconv.FormatUint(r.epoch, 10)+"."+strconv.FormatUint(r.version, 10)), attribute.Float64("wardrop.aged", r.aged),
		attribute.Float64("wardrop.utilisation", r.utilisation), attribute.Float64("wardrop.shed.fraction", r.shedPart), attribute.Float64("wardrop.shed.draw", r.lot),
		attribute.Float64("wardrop.retries_left", r.retriesLeft), attribute.String("wardrop.key", r.key.String()), attribute.Int64("wardrop.work", r.work),
		attribute.Int("wardrop.spilled", int(r.spilled)), attribute.Int("wardrop.passed", int(r.passed)), attribute.Bool("wardrop.remembered", r.remembered),
		attribute.Float64("wardrop.queued", r.queued), attribute.Int("wardrop.attempts", int(r.n)), attribute.String("wardrop.refused", r.refused), attribute.String("wardrop.aborted", r.aborted),
	)
	for _, l := range r.probes.Looks() {
		if l.State != route.Within && l.Target >= 0 {
			q.span.AddEvent("passed over", trace.WithAttributes(
				attribute.String("wardrop.engine", r.names[l.Target]), attribute.String("wardrop.state", l.State.String()),
				attribute.Int64("wardrop.in_flight", l.InFlight), attribute.Float64("wardrop.bound", float64(l.Bound)),
			))
		}
	}
	switch {
	case r.status >= http.StatusInternalServerError:
		q.span.SetStatus(codes.Error, r.refused)
		q.span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(int(r.status))))
	case r.aborted != "" && r.aborted != codeGone:
		q.span.SetStatus(codes.Error, r.aborted)
		q.span.SetAttributes(semconv.ErrorTypeKey.String(r.aborted))
	}
}

// maxAttribute bounds what a span says of what clients write, in bytes. It must be UTF-8: one text that
// is not would cost all spans that are sent with it.
const maxAttribute = 1 << 10

// methodOf is a request's method as the conventions name it: those that nobody knows have one name.
func methodOf(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return r.Method
	}
	return semconv.HTTPRequestMethodOther.Value.AsString()
}

func schemeOf(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// attempt starts an attempt's span and tells the engine of it.
func (t *tracing) attempt(ctx context.Context, q *request, target int, header http.Header) trace.Span {
	if t.tracer == nil {
		return nil
	}
	operation := operationOf(q.endpoint.path)
	ctx, span := t.tracer.Start(ctx, strings.TrimSuffix(operation+" "+q.fields.Model, " "), trace.WithSpanKind(trace.SpanKindClient))
	delete(header, "Tracestate") // it is of the span before, or of none that could be read
	t.w3c.Inject(ctx, propagation.HeaderCarrier(header))
	if !span.IsRecording() {
		return span
	}
	x := &q.row.Targets()[target]
	span.SetAttributes(
		semconv.GenAIOperationNameKey.String(operation), semconv.GenAIProviderNameKey.String(x.Engine.Kind), semconv.GenAIRequestModel(q.fields.Model),
		semconv.GenAIRequestStream(q.fields.Stream), attribute.String("wardrop.engine", x.Engine.Name), attribute.String("wardrop.region", x.Engine.Region),
		attribute.Float64("wardrop.weight", x.Weight), attribute.Float64("wardrop.predicted", x.Predicted), attribute.Float64("wardrop.network", x.Network),
	)
	if q.fields.MaxTokens > 0 {
		span.SetAttributes(semconv.GenAIRequestMaxTokens(int(q.fields.MaxTokens)))
	}
	span.SetAttributes(serverOf(q.row.targets[target].base)...)
	return span
}

// used notes what an attempt's answer took.
func (q *request) used(span trace.Span) {
	if r := &q.record; span != nil && r.output > 0 {
		span.SetAttributes(semconv.GenAIUsageInputTokens(int(r.prompt)), semconv.GenAIUsageOutputTokens(int(r.output)), semconv.GenAIUsageCacheReadInputTokens(int(r.cached)))
	}
}

// endSpan ends an attempt's span with what came of it.
func (a *attempt) endSpan() {
	if a.span == nil {
		return
	}
	defer a.span.End()
	if !a.span.IsRecording() {
		return
	}
	if a.resp != nil {
		a.span.SetAttributes(semconv.HTTPResponseStatusCode(a.resp.StatusCode))
	}
	switch kind := a.ending(); kind {
	case outcomeNames[protect.Success]:
	case canceled: // no failure of the engine
		a.span.SetAttributes(semconv.ErrorTypeKey.String(kind))
		return
	default:
		a.span.SetAttributes(semconv.ErrorTypeKey.String(kind))
		a.span.SetStatus(codes.Error, a.trouble())
		return
	}
	a.span.SetAttributes(semconv.GenAIResponseTimeToFirstChunk(a.waited.Seconds()))
}

// operationOf is what the conventions call what an endpoint does; where they have no name, its path's
// last part.
func operationOf(path string) string {
	switch path {
	case "/v1/chat/completions", "/v1/responses", "/v1/messages":
		return semconv.GenAIOperationNameChat.Value.AsString()
	case "/v1/completions":
		return semconv.GenAIOperationNameTextCompletion.Value.AsString()
	case "/v1/embeddings":
		return semconv.GenAIOperationNameEmbeddings.Value.AsString()
	case storedPath:
		return "stored_response"
	}
	return path[strings.LastIndexByte(path, '/')+1:]
}

func serverOf(u *url.URL) []attribute.KeyValue {
	out := []attribute.KeyValue{semconv.ServerAddress(u.Hostname())}
	if _, port, err := net.SplitHostPort(u.Host); err == nil {
		if n, err := strconv.Atoi(port); err == nil {
			out = append(out, semconv.ServerPort(n))
		}
	}
	return out
}
