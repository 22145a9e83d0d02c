// Package tick is what the control plane does at each tick, as functions of their
// arguments alone: reports in, a view; a plan in, one snapshot for each cluster.
// Between the two stands a policy. The control plane calls it by the clock, the
// simulator under virtual time.
package tick
