package latency

import (
	"math"

	"github.com/wardrop-lb/wardrop/fleet"
)

const (
	// matched is the part of saturation at which the knee is made to fit: about where
	// the cap stands. Below it there is hardly any knee.
	matched = 0.9
	// leastSpread is the least that a learned knee is scaled by.
	leastSpread = 0.01
)

// full sets what follows from the b requests that fit at once: Batch and Spread.
//
// Of b requests each takes idle + b work seconds, so that is where saturation lies;
// u_sat = B/(T0+B/u_max) counts a request's own work a second time, in T0, and Batch
// is the B that makes up for it.
//
// Spread is what the knee must be multiplied by. Sakasegawa's formula is about
// servers that serve one request as fast whatever the others do; an engine is
// faster when it is less full, and rarely full before it is saturated. Requests that
// come at random, are served at n/(idle+n work) in all while n <= b fit, and wait
// beyond, are a birth-death process; up to b it is the one of processor sharing
// whatever the sizes are. At one load the knee is given that process's mean.
func full(p *fleet.Profile, e engine, b float64) {
	idle := max(e.idle, leastBase*p.T0)
	p.Batch = b * p.T0 / idle
	p.Spread = 1
	m := New(*p)
	u := matched * m.usat
	knee := math.Pow(matched, m.n) / ((1 - matched) * m.usat)
	p.Spread = leastSpread // also where there is no knee, so that the ratio is none
	if s := crowd(idle, e.work, b, u) / knee; s > leastSpread {
		p.Spread = min(s, fleet.MaxSpread)
	}
}

// crowd is by how many seconds a request stays longer, at u requests/s, than it
// would if all of them fit: the wait, less what those in the batch gain by others
// waiting.
func crowd(idle, work, b, u float64) float64 {
	// From b downwards, by the odds against b: where they are long, all fit.
	const long = 1e15
	rho := u * (idle + b*work) / b
	odds, all, sum := 1.0, 1/(1-rho), b/(1-rho)
	for n := b; n >= 1 && odds > all/long; n-- {
		odds *= n / (u * (idle + n*work))
		all += odds
		sum += odds * (n - 1)
		if all > long {
			return 0
		}
	}
	wait := rho / ((1 - rho) * (1 - rho))
	return (sum+wait)/(all*u) - (idle+work)/(1-u*work)
}
