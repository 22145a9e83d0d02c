// Package explain turns recorded terms into words and JSON.
//
// It computes nothing that a decision could disagree with: every number it gives
// was recorded when the plan was made. On the used arcs of one row the totals
// are equal; that equality is the explanation.
package explain
