package latency

import "math"

// steps learns what a step of the engine takes, from counters of tokens: a step
// with n requests in it that computes p prompt tokens takes
//
//	base + token n + prompt p
//
// seconds, and every request in it gets a token. So over a window the mean time of
// a token, running requests over tokens per second, is base + token E[n] + prompt E[p],
// means over tokens: linear, at any load, and free of the chance in which requests
// arrive and how long they are. That chance is in their mean sizes alone.
type steps struct {
	window struct{ seconds, output, running, crowd, prompt, requests float64 }
	sums   [4][4]float64 // of 1, n, p and the time of a token, multiplied pairwise
	weight float64       // requests that sums rest on
	most   float64       // highest throughput of a window in requests/s, fading

	seconds, requests, output, prompt float64 // what came lately: requests, and their tokens
}

const (
	// sizeMemory is the time in seconds after which a request's size counts for a
	// part 1/e. Sizes vary as much as their mean: it takes thousands.
	sizeMemory = 2 * memory
	// stepWindow is how many seconds a window lasts at least: reading counters and
	// gauges not quite together makes no difference over that time.
	stepWindow = 40
	// leastTokens is how many tokens a window needs.
	leastTokens = 100
	// leastBase is the part of a token's time that is no work, at least: no fit
	// finds an engine that needs nothing but work.
	leastBase = 0.01
)

// engine is what the curve needs to know of one: a request alone takes idle + work
// seconds, work being what it takes from all others too, 1/u_max.
type engine struct {
	idle, work float64
	half       float64 // seconds until the step ends that is under way when a request comes
	first      float64 // seconds of idle + work until the first token
}

func (s *steps) observe(o Observation) {
	fade, slow := math.Exp(-o.Seconds/memory), math.Exp(-o.Seconds/sizeMemory)
	for i := range s.sums {
		for j := range s.sums[i] {
			s.sums[i][j] *= fade
		}
	}
	s.weight *= fade
	s.most *= fade
	s.seconds, s.requests, s.output, s.prompt = s.seconds*slow, s.requests*slow, s.output*slow, s.prompt*slow
	if !(o.Output > 0 && o.Output < huge && o.Prompt >= 0 && o.Prompt < huge && o.Running >= 0 && o.Running < huge) {
		return
	}
	s.seconds += o.Seconds
	s.requests += o.Rate * o.Seconds
	s.output += o.Output * o.Seconds
	s.prompt += o.Prompt * o.Seconds
	w := &s.window
	w.seconds += o.Seconds
	w.requests += o.Rate * o.Seconds
	w.output += o.Output * o.Seconds
	w.running += o.Running * o.Seconds
	// Means over tokens. A request whose prompt is computed is in that step itself,
	// but in half of the while on average.
	w.crowd += max(o.Running, 1) * o.Output * o.Seconds
	w.prompt += max(o.Running+0.5, 1) * o.Prompt * o.Seconds
	if w.seconds >= stepWindow && w.output >= leastTokens || w.seconds >= longestWindow {
		s.close()
	}
}

// close turns a window into a point of the fit.
func (s *steps) close() {
	w := s.window
	s.window = struct{ seconds, output, running, crowd, prompt, requests float64 }{}
	if w.output < leastTokens || !(w.running > 0) {
		return
	}
	y := w.running / w.output
	v := [4]float64{1, w.crowd / w.output, w.prompt / w.output, y}
	if !(y > 1/huge && y < huge && v[1] < huge && v[2] < huge) {
		return
	}
	// Not by relative errors: an engine that turned slow is to be noticed first.
	for i := range v {
		for j := range v {
			s.sums[i][j] += w.requests * v[i] * v[j]
		}
	}
	s.weight += w.requests
	// What came may have been more than it could do.
	s.most = max(s.most, w.output/w.seconds*s.requests/s.output)
}

// engine is what was learned; false when that is nothing yet. The prior, a request
// alone and the part of it that is work, counts like ten requests as to the shape.
func (s *steps) engine(t0, umax float64) (engine, bool) {
	if !(s.weight >= leastWindow && s.requests > 0 && s.output > s.requests) {
		return engine{}, false
	}
	mean := func(i int) float64 { return s.sums[0][i] / s.sums[0][0] }
	// Every column is divided by its mean. That of prompts may be all zero.
	scale, prompts := [4]float64{1, 1 / mean(1), 0, 1}, 0.0
	if p := mean(2); p > 1/huge {
		scale[2], prompts = 1/p, 1
	}
	var a [3][4]float64
	for i := range a {
		for j := range a[i] {
			a[i][j] = s.sums[i][j] * scale[i] * scale[j]
		}
	}
	// The parts of work and idle have the prior's ratio, and about half of the work
	// is in prompts: both hardly matter once loads differ.
	part := min(1/(t0*umax), 1-leastBase)
	ratio := mean(1) * part / (1 - part)
	most := max(ratio, 1) // no coefficient above 1, or it would count for more
	add(&a, [3]float64{-ratio / most, 1 / most, prompts / most}, priorRequests)
	add(&a, [3]float64{0, 1, -1}, priorRequests)
	x, ok := solve(a)
	if !ok {
		return engine{}, false
	}
	// Gauges show what a step left behind, so that they miss one of a request's steps.
	output := s.output / s.requests
	lag := 1 + 1/output
	base, token, prompt := max(x[0], leastBase*mean(3))*lag, x[1]*scale[1]*lag, x[2]*scale[2]*lag*s.prompt/s.requests
	e := engine{idle: base * output, work: token*output + prompt}
	token, prompt = max(token, 0), max(prompt, 0)
	e.first = base + token + prompt
	// Half of the mean step as time sees them: long ones, with a prompt, count more.
	// How many there are is that of the load seen.
	e.half = ((e.idle+max(e.work, 0))/output + s.requests/s.seconds*prompt*prompt) / 2
	return e, true
}

// add adds an observation of 0 to normal equations.
func add(a *[3][4]float64, row [3]float64, weight float64) {
	for i := range row {
		for j := range row {
			a[i][j] += weight * row[i] * row[j]
		}
	}
}

// solve solves normal equations, the last column being the right side.
func solve(a [3][4]float64) (x [3]float64, ok bool) {
	for i := range a {
		if !(a[i][i] > 0) {
			return x, false
		}
		for k := i + 1; k < len(a); k++ {
			q := a[k][i] / a[i][i]
			for j := i; j < 4; j++ {
				a[k][j] -= q * a[i][j]
			}
		}
	}
	for i := 2; i >= 0; i-- {
		x[i] = a[i][3]
		for j := i + 1; j < 3; j++ {
			x[i] -= a[i][j] * x[j]
		}
		x[i] /= a[i][i]
		if math.IsNaN(x[i]) || math.IsInf(x[i], 0) {
			return x, false
		}
	}
	return x, true
}
