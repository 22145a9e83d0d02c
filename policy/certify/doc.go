// Package certify judges a plan without trusting who made it. It recomputes the
// loads from the weights, checks every constraint and every recorded figure, and
// derives from the plan's own prices a lower bound on what any plan could cost.
//
// The bound needs convexity alone: an engine's curve lies above its tangent at
// any price, and at fixed prices each row's best answer is a greedy fill. Right
// prices make it tight, wrong ones can only make it worse, so a small gap proves
// the plan good. It is taken on the original arcs, engine by engine, and shares
// no code with the solver.
package certify
