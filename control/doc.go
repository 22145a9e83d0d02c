// Package control is the control plane: it gathers reports into a view, has the
// policy make a plan of it every tick, and publishes the plan as snapshots.
//
// The view is soft state, rebuilt from the reports of the data planes; what must
// survive is the epoch, which the store keeps, and the last plan, which a new
// leader continues from. A plan that cannot be made leaves the last one in
// force, rescaled to the engines that live. The plan in force and the view it
// was made of are kept for explanations.
package control
