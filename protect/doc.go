// Package protect keeps a bad day from becoming an outage: outlier penalties, a
// retry budget that tightens as utilisation climbs, and the draw that decides
// which requests are shed.
//
// All of it is pure: time and randomness are arguments, given in nanoseconds
// and uniform 64-bit words. Values are safe for concurrent use where they say
// so.
package protect
