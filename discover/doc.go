// Package discover finds engines, and the models of engines, so that nobody has to
// write them down.
//
// A Source finds engines: in a file, by DNS, from a server that lists targets, or in
// Kubernetes (package kube, which alone links its client). Discovery runs all sources
// of a configuration, reads the models of engines for which none are configured, and
// gives a new configuration whenever something changed: merge says what it holds. What
// a source says is held against what it said before by a keeper, so that a broken
// source does not empty a fleet. merge and keeper are pure: time is an argument.
package discover
