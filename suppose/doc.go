// Package suppose answers what another solve answers: what the plan would be if something
// were different (what-if), what would have to be different for an engine to get traffic
// (thresholds), which input moved which weight by how much (attribution), and where another
// engine would save the most (advice).
//
// Every answer comes from the policy itself, run on the view that was recorded with the plan
// in question and changed in what is supposed; nothing is estimated where it can be solved.
package suppose
