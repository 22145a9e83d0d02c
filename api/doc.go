// Package api holds the wire types and their conversions to and from fleet.
//
// The types are generated from wardropv1/wardrop.proto by generate.sh. Encode
// and Decode are exact inverses for every valid value, to the bit; Decode refuses what does
// not add up, so that nothing malformed passes from the wire into a data plane. Wire says
// which version of all that this is, and what the others were.
package api

//go:generate ./generate.sh
