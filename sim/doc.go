// Package sim runs a fleet under virtual time: clusters with demand, distances,
// engines that batch, signals that come late, faults. Production's own route,
// protect and policy decide where requests go, or the published rules of other
// routers (package sim/baseline), on the same requests, so that they can be
// compared.
//
// A run depends on its scenario and seed alone: one goroutine, one clock, one
// stream of randomness for each source of demand and each router. The package reads
// no clock and does no I/O but what its caller hands it.
package sim
