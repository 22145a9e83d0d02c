package main

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/wardrop-lb/wardrop/config"
)

// flushPatience is how long the last spans may take at the end.
const flushPatience = 5 * time.Second

// openTracing sends spans where the configuration says; nil if nowhere. What it returns beside must be
// called when requests have ended. Nothing waits for the collector: what it does not take in time is lost.
func openTracing(env *environment, c config.Tracing) (trace.TracerProvider, func(), error) {
	if c.Endpoint == "" {
		return nil, func() {}, nil
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { env.log.Warn("spans are lost", "error", err) }))
	exporter, err := otlptracegrpc.New(env.ctx, otlptracegrpc.WithEndpointURL(c.Endpoint))
	if err != nil {
		return nil, nil, fmt.Errorf("proxy.tracing: %w", err)
	}
	about, err := resource.New(env.ctx, resource.WithAttributes(semconv.ServiceName("wardrop")), resource.WithFromEnv(), resource.WithHost(), resource.WithProcessPID(),
		resource.WithAttributes(attribute.String("service.namespace", "wardrop")))
	if err != nil {
		return nil, nil, fmt.Errorf("proxy.tracing: %w", err)
	}
	p := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(c.Sample))))
	return p, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(env.ctx), flushPatience)
		defer cancel()
		if err := p.Shutdown(ctx); err != nil {
			env.log.Warn("the last spans are lost", "error", err)
		}
	}, nil
}
