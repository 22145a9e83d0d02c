// Package weights is the weight path: it takes snapshots from the control plane
// to the data planes and to disk.
//
// The transport is incremental xDS (aggregated delta discovery): the publisher
// serves a cluster's head, the engine table and one row per model as separate
// resources, so that a tick ships what changed and a reconnecting data plane
// resumes from what it holds. The head names every part by digest; a subscriber
// applies a snapshot when it holds exactly those parts, whole or not at all.
//
// A subscriber refuses a lower epoch or version and whatever does not validate,
// keeps what it has and answers with a NACK that carries the reason.
package weights
