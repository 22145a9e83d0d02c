// Package weights is the weight path: it takes snapshots from the control plane
// to data planes, relays and stock clients, and to disk.
//
// The transport is incremental xDS (aggregated delta discovery). A publisher sends, in
// one response, the parts of a cluster's snapshot that a subscriber lacks: its head, the
// engine table and one row per model, each as what has changed since the version that the
// subscriber holds. The head names every part by digest; a subscriber applies a snapshot
// when it holds exactly those parts, whole or not at all. Who speaks wire 1 is sent each
// type apart and every changed part whole.
//
// A subscriber follows many upstreams at once. The newest snapshot counts, whoever brings
// it; a lower epoch and whatever does not validate is refused with a NACK that carries the
// reason, and what is in force stays.
package weights
