// Package control is the control plane: it gathers reports into a view, has the
// policy make a plan of it every tick, and publishes the plan as snapshots.
//
// Of several members one leads. The others hold the same view and remember the same, for data
// planes report to all; they serve what the leader plans, and go on from it when they lead.
//
// The view is soft state, rebuilt from the reports of the data planes; what must
// survive is the epoch and what operators override, which the store keeps, and the last plan,
// which a new leader continues from. A plan that cannot be made, or that a guard rail holds
// back, leaves the last one in force, rescaled to the engines that live. The plan in force and
// the view it was made of are kept for explanations.
package control
