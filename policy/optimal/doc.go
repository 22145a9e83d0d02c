// Package optimal is the optimizer: the plan with the least expected time of
// all requests together, network and engines, under hard caps, with the prices
// that explain it.
//
// A call numbers the view, splits it into components (engines joined by models
// in common), and hands each to a primal-dual interior point method on a
// three-layer network: rows, groups of engines at one distance, engines. Rows
// and engines are eliminated in closed form, which leaves the groups' prices. The
// optimum is then snapped to flows worth having (small ones dropped, last ones
// kept where they hardly change), spread over the engines so that what can stay
// stays, explained in seconds, and certified by policy/certify, whose verdict is
// final.
//
// A Policy keeps its memory between calls. While views differ in figures alone
// nothing is numbered anew and nothing is allocated but the plan.
//
// Everything is a pure function of view and last plan, to the bit, whatever the
// order of the view and the number of workers; Options.Warm alone lets it depend
// on the calls before.
//
// The time of a solve grows with clusters times groups, and with the cube of the
// groups in a component. Engines with distances of their own
// (fleet.Distance.Engine) are groups of their own: a few hundred cost little,
// thousands in one model cost seconds.
package optimal
