// Package fleetgen draws random fleets for benchmarks and comparisons with other
// solvers: regions on a sphere, lognormal clusters, models by Zipf's law, three
// kinds of hardware, engines placed without regard to demand. The same Spec gives
// the same fleet.
package fleetgen
