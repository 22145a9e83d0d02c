// Package route turns a snapshot into a picker: the answer to the one question
// of the request path, which engine serves this request.
//
// A row's slot table maps the hash of a request's affinity key to an engine, in
// proportion to the weights, so that equal keys meet and a change of weights
// moves few keys. It depends on the snapshot alone: all data planes agree.
// Bounded load then passes over an engine that already holds more than its part
// of the work in flight, so that hot keys spread over as few engines as needed.
//
// The package is pure: time and randomness are arguments. The only state is the
// work in flight, counted in Flights, which outlive snapshots.
package route
