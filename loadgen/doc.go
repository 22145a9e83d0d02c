// Package loadgen sends OpenAI chat requests at given rates, as clients do:
// open loop, at Poisson instants, whatever the answers take. It belongs to
// `wardrop up --load` and to tests and benchmarks.
package loadgen
