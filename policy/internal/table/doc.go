// Package table numbers a view: names sorted, references as indices, arrays
// flat, so that the policies loop over integers and give the same plan for any
// order of the view's slices.
//
// It also writes the plan: the rows and arcs that every plan has, and the loads
// that its weights cause. policy/certify does not use it: the certificate
// reads view and plan by itself.
package table
