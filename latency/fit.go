package latency

import (
	"math"

	"github.com/wardrop-lb/wardrop/fleet"
)

// Observation is what an engine's gauges and counters said over a while, in means.
// A while is a few seconds at most: of what changes within it the fit sees nothing.
type Observation struct {
	Seconds  float64 // how long; > 0
	Rate     float64 // requests/s that arrived, >= 0
	InEngine float64 // requests in the engine, running and waiting
	Running  float64 // of these, running; 0 when unknown
	KVUsage  float64 // fraction of the KV cache in use, 0..1; 0 when unknown
	Slots    float64 // requests that may run at once; 0 when unknown

	// Prompt and Output are the tokens/s of prompts computed and of answers generated;
	// 0 when unknown, or when the engine counts a request's tokens only at its end.
	Prompt float64
	Output float64
}

const (
	// memory is the time in seconds after which an observation counts for a part
	// 1/e: long against the noise of arrivals, short against a change of hardware.
	memory = 3600
	// leastWindow is how many requests must arrive before a mean says something.
	leastWindow = 30
	// turnovers is how many times a window must be as long as a request takes: the
	// engine then follows the noise of the arrivals, which over less time would
	// tilt the line.
	turnovers = 40
	// longestWindow ends a window in seconds, whatever there was.
	longestWindow = 600
	// priorRequests is how many requests the prior is worth.
	priorRequests = 10
	// priorLevel is the part of that which the prior's level is worth: any data at all
	// know the level better.
	priorLevel = 1e-3
	// kvFull is the KV usage at which an engine admits no more.
	kvFull = 0.97
	// huge is beyond every gauge.
	huge = 1e9
	// leastKV is the usage under which running over usage is mostly rounding.
	leastKV = 0.002
	// standing is the part of the requests in the engine that wait, beyond which
	// it is past the curve that is fitted: a queue is no processor sharing.
	standing = 0.05
	// roomAbove bounds how far u_max may lie above what was seen, as long as the
	// prior does not lie further: an idle engine says nothing about its limit.
	roomAbove = 20
)

// Fitter learns an engine's profile from its gauges and counters.
//
// Where tokens are counted, it learns what a step of the engine takes, and T0 and u_max
// follow from the requests' mean sizes. Where they are not, it takes Little's law:
// the requests in an engine are N = u L(u), so under processor sharing
// u/N = 1/T0 - u/(T0 u_max) is linear in the load, and a line fitted by least squares
// gives both; it needs many more requests for the same certainty. What fits at once
// is running over KV usage at any load, or the slots; Batch and Spread follow from it.
//
// All is forgotten in time. A prior, usually that of the engine's kind, counts like ten
// requests as to the shape, and hardly as to the level: where all data lie at one
// load, the shape stays the prior's. The result is always a valid profile. Not safe for
// concurrent use.
type Fitter struct {
	prior fleet.Profile

	steps  steps
	window Observation // sums, weighted by time
	line   line
	batch  float64 // mean of running over KV usage, 0 when unknown
	batchN float64 // what it rests on, seconds
	slots  float64
	most   float64 // highest rate of a window that counted, fading
}

// line holds the sums of a weighted least-squares fit of y = a + b x.
type line struct{ w, wx, wy, wxx, wxy, wyy float64 }

func (l *line) add(x, y, w float64) {
	l.w += w
	l.wx += w * x
	l.wy += w * y
	l.wxx += w * x * x
	l.wxy += w * x * y
	l.wyy += w * y * y
}

func (l *line) fade(f float64) {
	l.w, l.wx, l.wy, l.wxx, l.wxy, l.wyy = l.w*f, l.wx*f, l.wy*f, l.wxx*f, l.wxy*f, l.wyy*f
}

// fit gives the line; false when the points lie at one x.
func (l *line) fit() (a, b float64, ok bool) {
	det := l.w*l.wxx - l.wx*l.wx
	if !(det > 1e-12*l.w*l.wxx) {
		return 0, 0, false
	}
	b = (l.w*l.wxy - l.wx*l.wy) / det
	return (l.wy - b*l.wx) / l.w, b, true
}

// NewFitter starts from a valid prior.
func NewFitter(prior fleet.Profile) *Fitter { return &Fitter{prior: prior} }

// Observe takes what the gauges said since the last call. Values that are not
// finite, or out of range, are left out.
func (f *Fitter) Observe(o Observation) {
	if !(o.Seconds > 0 && o.Seconds < huge && o.Rate >= 0 && o.Rate < huge && o.InEngine >= 0 && o.InEngine < huge) {
		return
	}
	fade := math.Exp(-o.Seconds / memory)
	f.line.fade(fade)
	f.most *= fade
	f.steps.observe(o)
	if o.Slots > 0 && o.Slots < huge {
		f.slots = o.Slots
	}
	f.observeBatch(o)
	w := &f.window
	w.Seconds += o.Seconds
	w.Rate += o.Rate * o.Seconds
	w.InEngine += o.InEngine * o.Seconds
	if o.Running > 0 && o.Running < huge {
		w.Running += o.Running * o.Seconds
	}
	// InEngine over Rate is the time that a request takes, by Little's law.
	if w.Rate >= leastWindow && w.Seconds*w.Rate >= turnovers*w.InEngine || w.Seconds >= longestWindow {
		f.close()
	}
}

// observeBatch keeps a mean of what would fit, by the time that it was seen.
func (f *Fitter) observeBatch(o Observation) {
	if !(o.Running > 0 && o.Running < huge && o.KVUsage >= leastKV && o.KVUsage <= 1) {
		return
	}
	// Sums, not a mean of ratios: at little load the ratio is coarse.
	weight := o.Seconds * o.KVUsage
	f.batch += weight * (kvFull * o.Running / o.KVUsage)
	f.batchN += weight
	fade := math.Exp(-o.Seconds / memory)
	f.batch, f.batchN = f.batch*fade, f.batchN*fade
}

// close turns a window into a point of the line. A window with a standing queue is
// past the curve, an empty one says nothing.
func (f *Fitter) close() {
	w := f.window
	f.window = Observation{}
	rate, in, running := w.Rate/w.Seconds, w.InEngine/w.Seconds, w.Running/w.Seconds
	if rate <= 0 || in <= 0 || running > 0 && in-running > standing*in {
		return
	}
	y := rate / in
	// A mean over n requests has a relative error of about 1/sqrt(n): the weight
	// is that of relative errors.
	f.line.add(rate, y, w.Rate/(y*y))
	f.most = max(f.most, rate)
}

// Profile is what was learned so far. Kappa, Tokens and Slots are the prior's.
func (f *Fitter) Profile() fleet.Profile {
	p := f.prior
	top := max(p.UMax, roomAbove*max(f.most, f.steps.most))
	e := engine{idle: p.T0 - 1/p.UMax, work: 1 / p.UMax, first: p.FirstToken}
	if learned, ok := f.steps.engine(p.T0, p.UMax); ok {
		e = learned
		e.work = max(e.work, 1/top)
		p.T0 = e.idle + e.work + e.half
		p.FirstToken = min(e.first+e.half, p.T0)
		p.UMax = 1 / e.work
	} else if a, b, ok := f.withPrior().fit(); ok && a > 0 {
		umax := top
		if b < 0 {
			umax = min(-a/b, top)
		}
		p.T0, p.UMax = 1/a, max(umax, 1.01*f.most)
		p.FirstToken = min(p.FirstToken*p.T0/f.prior.T0, p.T0)
		e = engine{idle: p.T0 - 1/p.UMax, work: 1 / p.UMax}
	}
	if b := f.fits(); b > 0 {
		full(&p, e, b)
	}
	return p
}

// withPrior adds what the prior says of level and shape. Level: a = 1/T0. Shape: the
// line reaches 0 at u_max, a/u_max + b = 0, which counts at the highest rate seen
// and says nothing about the level. Errors are relative to what was seen.
func (f *Fitter) withPrior() *line {
	l, level := f.line, 1/f.prior.T0
	if l.w > 0 {
		level = l.wy / l.w
	}
	weight := priorRequests / (level * level)
	l.add(0, 1/f.prior.T0, weight*priorLevel)
	x := max(f.most, f.prior.UMax/100)
	// As an observation of a*ux + b*x = 0 in the normal equations.
	ux := x / f.prior.UMax
	l.w += weight * ux * ux
	l.wx += weight * ux * x
	l.wxx += weight * x * x
	return &l
}

// fits is how many requests fit at once: the least of what the KV cache and the
// slots allow, 0 where neither is known.
func (f *Fitter) fits() float64 {
	b := math.Inf(1)
	if f.batchN > 0 {
		b = f.batch / f.batchN
	}
	if f.slots > 0 {
		b = min(b, f.slots)
	}
	if math.IsInf(b, 1) {
		return 0
	}
	return max(b, 1)
}

// Doubt is the relative standard error of T0, from 1 when nothing was observed
// down towards 0.
func (f *Fitter) Doubt() float64 {
	requests := f.steps.weight
	if f.line.w > 0 {
		// f.line.w y^2 is about the number of requests that are remembered.
		y := f.line.wy / f.line.w
		requests = max(requests, f.line.w*y*y)
	}
	if d := 1 / math.Sqrt(1+requests); d >= 0 {
		return d
	}
	return 1
}
