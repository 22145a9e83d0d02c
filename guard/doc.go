// Package guard decides whether a plan that the policy has made may go out.
//
// A plan is right for the view that it was made of. Guard asks whether that view, or the
// plan, is to be believed: one that would move most of the traffic at once, that rests on
// signals of which most are missing, that leaves a row with nothing, or whose certificate
// does not hold, is held back, and the last plan goes on on the engines that live. A plan
// after which failures rise on the engines that gained by it is taken back for a while.
// Every hold has a reason in words; none outlasts its cause or its lease, and an operator
// can let the plan through at once.
//
// The package is pure: time is an argument. What it remembers from tick to tick is in a
// Guard.
package guard
