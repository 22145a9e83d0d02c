// Package testengine is package enginemodel with an HTTP face: a server that
// speaks the OpenAI API, takes the time a real engine would take, exports
// vLLM's metrics, and fails in the ways engines fail when it is told to.
//
// It stands in for an engine in tests, demonstrations and load runs. What it
// generates is decided by the request alone, so that whoever reads the answer
// can tell that it is whole and belongs to that request.
//
// Dialer gives connections a distance: each byte takes half a round trip, for
// real, so that a fleet over many regions runs on one machine.
package testengine
