// Package fleet holds Wardrop's nouns as plain data: clusters, engines,
// profiles, demand, distances, the view they form, the plan a policy makes of
// it and the snapshot each data plane routes from.
//
// Everything here is a value: no I/O, no clock, no goroutine. Each type that
// crosses a boundary has a Validate method whose errors name the field. Units
// are seconds and requests per second unless a field says otherwise. Values
// are immutable once shared: who changes one, copies it first.
package fleet
