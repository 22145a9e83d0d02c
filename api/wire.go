package api

import "fmt"

// Wire is the capability version: what this code says and understands on the signal and
// weight paths. Both ends of a stream say theirs (data planes, collectors and relays in the
// metadata of their xDS node, by WireKey, and in their reports; publishers in every Head), and
// speak the lower. Ends that are one apart understand each other, so that a fleet can be
// upgraded and downgraded one version at a time, in any order; those further apart refuse each
// other and say why.
//
// It grows with every change that an older end would misunderstand. A field that it may
// ignore is none.
//
//	1  until 2026-11-30  Head, EngineTable and Row apart; ends do not say what they speak
//	2  2026-11-30        Update: parts come with their head, as what has changed since the last
const Wire = 2

// WireKey is where a client's xDS node says what it speaks, as a number.
const WireKey = "wardrop_wire"

// Spoken is the wire that two ends speak with each other, 0 standing for one that does not
// say. An error says that they cannot.
func Spoken(own, other int) (int, error) {
	own, other = max(own, 1), max(other, 1)
	if own-other > 1 || other-own > 1 {
		return 0, fmt.Errorf("one end speaks wire %d and this one %d: they must not be more than one apart", other, own)
	}
	return min(own, other), nil
}
