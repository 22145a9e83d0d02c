package latency

import (
	"math"

	"github.com/wardrop-lb/wardrop/fleet"
)

// edge is the fraction of saturation beyond which the curve is continued by its
// own parabola: the formula has a pole at saturation, an optimizer's trial
// points may lie beyond it, and a static plan may too.
const edge = 0.9999

// Model is the latency curve of one engine:
//
//	L(u) = T0/(1-u/u_max) + chi (S_B/B) rho^n/(1-rho)
//	rho = u/u_sat,  u_sat = B/(T0+B/u_max),  S_B = B/u_sat,  n = sqrt(2(B+1))-1
//
// The first term is processor sharing in mean field. The second is Sakasegawa's
// approximation (1977) of the wait for one of B servers, chi = (1+cv^2)/2 being the
// profile's Spread: 1 when service times vary as much as their mean. By Little's
// law u L(u) is the number of requests in the engine. It is convex, increasing and
// twice differentiable in u.
//
// A Model is immutable and safe for concurrent use. The zero Model is useless.
type Model struct {
	t0, umax, usat float64
	n              float64 // exponent of the knee, at least 1
	knee           float64 // factor of the knee: chi times what a second of it counts
	edge           float64 // load where the parabola takes over
	top            Curve   // at edge

	kappa, first, chi float64 // first: seconds to the first token, alone
}

// Curve is the number of requests in an engine, Phi(u) = u L(u), with its
// derivatives by the load.
type Curve struct {
	Phi   float64 // requests
	Slope float64 // seconds: L(u) + u L'(u), what one more request/s costs everybody
	Bend  float64 // seconds per request/s
}

// New makes the curve of a valid profile (fleet.Profile.Validate).
func New(p fleet.Profile) Model { return Weighted(p, 1, 1) }

// Weighted makes the curve of what a valid profile's latency is worth when a second
// until the first token counts first and one after it decode, both finite and at
// least 0:
//
//	(first F + decode (T0-F))/(1-u/u_max) + first chi (S_B/B) rho^n/(1-rho)
//
// F is the profile's FirstToken; where that is 0, unknown, all of T0 counts as
// decode. Processor sharing stretches both parts alike, and who waits at the knee
// has no token yet. Latency, Congestion and At are then seconds of worth, Phi is worth
// per second. Saturation, Capacity and FirstToken do not depend on the
// weights. Weights 1 and 1 give New; with a weight of 0 the curve is still convex
// and does not fall, but may be flat: Bend may be 0, never less.
func Weighted(p fleet.Profile, first, decode float64) Model {
	m := Model{umax: p.UMax, kappa: p.Kappa, first: p.FirstToken, chi: p.Spread}
	if m.chi == 0 {
		m.chi = 1
	}
	switch {
	case m.first == 0:
		m.first, m.t0 = p.T0, decode*p.T0
	case first == decode:
		m.t0 = first * p.T0 // T0 to the bit where both are 1
	default:
		m.t0 = first*p.FirstToken + decode*(p.T0-p.FirstToken)
	}
	m.knee = first * m.chi
	m.usat = 1 / (p.T0/p.Batch + 1/p.UMax)
	// Fewer than one request at once has no meaning; n >= 1 keeps Bend finite at 0.
	m.n = math.Max(1, math.Sqrt(2*(p.Batch+1))-1)
	m.edge = edge * m.usat
	m.top = m.inside(m.edge)
	return m
}

// Saturation is the load, in requests/s, at which the engine holds all it can.
func (m Model) Saturation() float64 { return m.usat }

// Capacity is the hard cap, in requests/s: the profile's fraction of Saturation.
func (m Model) Capacity() float64 { return m.kappa * m.usat }

// Latency is the mean time in seconds that a request spends in the engine at
// load u requests/s. A load below 0 or NaN counts as 0; beyond saturation the
// answer is large and finite.
func (m Model) Latency(u float64) float64 {
	switch {
	case !(u > 0):
		return m.t0
	case u > m.edge:
		// Divided term by term, so that no finite load gives NaN.
		d := u - m.edge
		return m.top.Phi/u + d/u*(m.top.Slope+0.5*m.top.Bend*d)
	}
	rho := u / m.usat
	return m.t0/(1-u/m.umax) + m.knee*math.Pow(rho, m.n)/((1-rho)*m.usat)
}

// FirstToken is the mean time in seconds until a request's first token at load u
// requests/s, odd loads treated as by Latency. Where the profile does not know its
// part of T0 it is the time until the last token, which bounds it from above.
func (m Model) FirstToken(u float64) float64 {
	m.t0, m.knee = m.first, m.chi
	if u > m.edge {
		m.top = m.inside(m.edge)
	}
	return m.Latency(u)
}

// Congestion is u L'(u) in seconds: how much longer the others wait, added up,
// for one more request/s.
func (m Model) Congestion(u float64) float64 {
	if !(u > 0) {
		return 0
	}
	return math.Max(0, m.At(u).Slope-m.Latency(u))
}

// Phi is the mean number of requests in the engine at load u requests/s.
func (m Model) Phi(u float64) float64 { return m.At(u).Phi }

// At gives Phi with both derivatives at load u requests/s.
func (m Model) At(u float64) Curve { return At(&m, u) }

// At is the method of that name, for loops over many models: it copies none.
func At(m *Model, u float64) Curve {
	switch {
	case !(u > 0):
		return m.inside(0)
	case u > m.edge:
		d := u - m.edge
		return Curve{
			Phi:   m.top.Phi + d*(m.top.Slope+0.5*m.top.Bend*d),
			Slope: m.top.Slope + m.top.Bend*d,
			Bend:  m.top.Bend,
		}
	}
	return m.inside(u)
}

// inside evaluates the formula itself, for u in [0, edge].
func (m *Model) inside(u float64) Curve {
	a := 1 / (1 - u/m.umax)
	rho := u / m.usat
	b := 1 / (1 - rho)
	r := power(rho, m.n-1) * (b * m.knee) // rho^(n-1)/(1-rho), as much as it counts
	n1 := m.n + 1
	return Curve{
		Phi:   m.t0*u*a + r*rho*rho,
		Slope: m.t0*a*a + r*rho*(n1+rho*b)/m.usat,
		Bend:  2*m.t0*a*a*a/m.umax + r*(n1*m.n+2*rho*b*(n1+rho*b))/(m.usat*m.usat),
	}
}
