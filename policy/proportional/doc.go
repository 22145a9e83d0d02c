// Package proportional is the feedback controller that the optimizer replaces,
// kept to compare with.
//
// Each tick an engine's score, how busy its signals say it is, is smoothed and
// compared with its model's mean; each weight is nudged by gain x relative error,
// clamped and renormalised. It knows nothing of distance, demand or capacity, and
// it steers on what it caused a moment ago: see Limit for when it must oscillate.
package proportional
