// Package testengine is package enginemodel with an HTTP face: a server that
// speaks the OpenAI API, takes the time a real engine would take, exports
// vLLM's metrics, and fails in the ways engines fail when it is told to.
//
// It stands in for an engine in tests, demonstrations and load runs. What it
// generates is decided by the request alone, so that whoever reads the answer
// can tell that it is whole and belongs to that request.
//
// Faults can be switched while it runs, over /faults or by SetFaults; Help lists
// them. They are those that real engines were seen with: black holes with gauges
// that stand still or say that nothing is to do, livelocks, streams that die, health
// pages that lie both ways, pages of metrics that are wrong in every way, answers
// that end early but cleanly, and streams that are right but unusual.
//
// Dialer gives connections a distance: each byte takes half a round trip, for
// real, so that a fleet over many regions runs on one machine.
package testengine
