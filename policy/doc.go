// Package policy holds the one interface that every policy implements: a view
// and the last plan in, a plan out.
//
// The policies are packages of their own: policy/optimal (the optimizer) and
// policy/static (weights from configuration). policy/certify checks a plan
// against the view it was made for and shares no code with them. Problem here
// is the part that solver and certificate must agree on: what is minimised.
//
// A policy is pure: it reads no clock, does no I/O and gives the same plan for
// the same input, whatever the order of the view's slices.
package policy
