// Package optimal is the optimizer: the plan with the least expected time of
// all requests together, network and engines, under hard caps, with the prices
// that explain it.
//
// A solve numbers the view, splits it into components (engines joined by models
// in common), and hands each to a primal-dual interior point method on a
// three-layer network: rows, groups of engines at one distance, engines. The
// optimum is then spread over the engines, snapped to weights worth having
// (small ones dropped, last ones kept where they hardly change), explained in
// seconds, and certified by policy/certify, whose verdict is final.
//
// Everything is a pure function of view and last plan, to the bit.
package optimal
