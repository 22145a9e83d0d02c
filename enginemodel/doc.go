// Package enginemodel models one inference engine step by step: continuous
// batching with chunked prefill, a bounded number of requests in the batch, a
// paged KV cache that keeps prompts' beginnings for others and preempts by
// recomputing, a first-in-first-out queue.
//
// It is what an engine does with its time, without the mathematics: who is in
// the batch, how long each step takes, which request gets a token. The
// simulator drives it in virtual time, package testengine in real time.
//
// Engine takes every step and tells of every token. Fast is the same engine for
// whoever asks only for first and last tokens: it jumps from one change of the
// batch to the next. Simulated is what both have in common; Stepped makes an
// Engine one. Hardware has the parameters of known GPUs and models. Profile is what
// an operator would measure of an engine, FromProfile is the way back.
//
// The package is pure: no I/O, no clock, no goroutine. Time is an argument, a
// duration since an instant of the driver's choosing. The same calls give the
// same events, always. No engine is safe for concurrent use.
package enginemodel
