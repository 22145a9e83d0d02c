package guard

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/wardrop-lb/wardrop/fleet"
)

const (
	// watchFor is how long a plan is watched before it counts as good.
	watchFor = 10 * time.Second
	// watchFrom is the part of the traffic that must move for a plan to be watched.
	watchFrom = 0.01
	// usualFor is the time in seconds after which what was tried counts for a part 1/e of
	// what is usual.
	usualFor = 60

	// leastGain is the part of its requests that an engine must have gained: one that had
	// most of them before does not fail because of the plan.
	leastGain = 0.1
	// leastAttempts, leastRise and likely are what makes a rise of failures: so many
	// attempts, so much more of them failing, and so unlikely by chance; in so many ticks
	// in a row, for an engine that has just died is out of the view by then.
	leastAttempts = 20
	leastRise     = 0.05
	likely        = 1e-4
	leastTicks    = 2

	// backFirst is how long a roll-back lasts, backMost the longest of those that follow one
	// another within backMost.
	backFirst = time.Minute
	backMost  = 10 * time.Minute
)

// watch counts failures after a plan has moved traffic, and knows the plan to go back to.
type watch struct {
	at      time.Time
	usual   map[string]Tried // by engine: of the last minute, fading
	changes []*change        // not yet good, oldest first
	creep   *change          // what moved too little to be watched, so far
	back    rollback
}

// change is a plan that moved traffic.
type change struct {
	at     time.Time
	before *fleet.Plan // what was in force, its used arcs
	moved  float64     // part of the traffic
	gains  []gain
	place  map[string]int // in gains, by engine
	others Tried          // since, at engines that gained nothing
	usual  Tried          // before, at all engines
	risen  int            // ticks in a row in which failures had risen
}

// gain is what an engine got by a change.
type gain struct {
	engine        string
	requests      float64 // requests/s more
	part          float64 // of what it has then
	before, since Tried
}

// rollback is a plan that came back. It is a lease.
type rollback struct {
	plan         *fleet.Plan
	since, until time.Time
	last         time.Duration // how long it lasts
	reason       string
	rise         float64
}

func (b *rollback) in(now time.Time) bool { return b.plan != nil && now.Before(b.until) }

func (b *rollback) hold() *Hold {
	return &Hold{Rail: RollBack, Reason: b.reason, Figure: b.rise, Limit: leastRise, Until: b.until}
}

func (t Tried) plus(o Tried) Tried { return Tried{t.Attempts + o.Attempts, t.Failed + o.Failed} }

func (t Tried) minus(o Tried) Tried { return Tried{t.Attempts - o.Attempts, t.Failed - o.Failed} }

// rate is the part that fails, by the rule of succession: few attempts say little.
func (t Tried) rate() float64 { return (min(t.Failed, t.Attempts) + 1) / (t.Attempts + 2) }

// observe takes in what was tried since the last tick.
func (w *watch) observe(tried map[string]Tried, now time.Time) {
	fade := 0.0
	if !w.at.IsZero() {
		fade = math.Exp(-max(0, now.Sub(w.at).Seconds()) / usualFor)
	}
	w.at = now
	next := make(map[string]Tried, len(tried))
	for name, t := range w.usual {
		if t = (Tried{fade * t.Attempts, fade * t.Failed}); t.Attempts >= 1e-3 {
			next[name] = t
		}
	}
	for name, t := range tried {
		next[name] = next[name].plus(t)
	}
	w.usual = next
	for _, c := range w.changes {
		c.observe(tried)
	}
	if w.creep != nil {
		w.creep.observe(tried)
	}
}

func (c *change) observe(tried map[string]Tried) {
	for name, t := range tried {
		to := &c.others
		if i, ok := c.place[name]; ok {
			to = &c.gains[i].since
		}
		*to = to.plus(t)
	}
}

// published notes what a plan that goes out moves. What moves in many small steps is one
// change. What moves because engines are gone, or because more is admitted, is none: it has
// nowhere to go back to.
func (w *watch) published(m *movement, last, next *fleet.Plan, now time.Time) {
	if m.taken == 0 || m.taken < m.gained/2 {
		return
	}
	c := w.creep
	if c == nil || now.Sub(c.at) > watchFor {
		c = &change{at: now, before: last.Used(), place: map[string]int{}}
		for _, name := range slices.Sorted(maps.Keys(w.usual)) {
			c.usual = c.usual.plus(w.usual[name])
		}
	}
	c.moved += m.part(m.taken)
	for e := range m.engines {
		if x := &m.engines[e]; x.gained > 0 {
			c.gain(next.Engines[e].Name, x, w.usual)
		}
	}
	w.creep = c
	if c.moved >= watchFrom {
		w.changes, w.creep = append(w.changes, c), nil
	}
}

func (c *change) gain(engine string, x *engineMove, usual map[string]Tried) {
	i, known := c.place[engine]
	if !known {
		i = len(c.gains)
		c.place[engine] = i
		c.gains = append(c.gains, gain{engine: engine, before: usual[engine]})
	}
	g := &c.gains[i]
	g.requests += x.gained
	g.part = min(1, g.requests/x.requests)
}

// failing judges the changes that are watched, and begins a roll-back where failures have
// risen after one. next says which engines live.
func (w *watch) failing(next *fleet.Plan, now time.Time) bool {
	if w.back.plan != nil && !now.Before(w.back.until) {
		w.back.plan = nil
	}
	if len(w.changes) == 0 {
		return false
	}
	alive := make(map[string]bool, len(next.Engines))
	for i := range next.Engines {
		alive[next.Engines[i].Name] = true
	}
	waiting := w.changes[:0]
	for i, c := range w.changes {
		rise, words := c.rise(alive)
		if rise == 0 {
			c.risen = 0
		} else if c.risen++; c.risen >= leastTicks {
			w.rollBack(w.changes[:i+1], rise, words, now)
			return true
		}
		// The oldest is good after its time; the others wait for those before them, so that
		// the plan to go back to is a good one.
		if len(waiting) > 0 || c.risen > 0 || now.Sub(c.at) < watchFor {
			waiting = append(waiting, c)
		}
	}
	w.changes = waiting
	return false
}

// rollBack brings back what was in force before the first change that is not yet good.
func (w *watch) rollBack(changes []*change, rise float64, words string, now time.Time) {
	last := backFirst
	if b := &w.back; b.last > 0 && now.Sub(b.until) < backMost {
		last = min(2*b.last, backMost)
	}
	at := changes[len(changes)-1].at
	w.back = rollback{plan: w.changes[0].before, since: now, until: now.Add(last), last: last, rise: rise}
	w.back.reason = fmt.Sprintf("%s since the plan of %s gave them more: the last good plan is back for %s", words, at.Format(time.TimeOnly), last)
	w.changes, w.creep = nil, nil
}

// release ends a roll-back, and forgets what would begin another.
func (w *watch) release() {
	w.back.plan = nil
	w.changes, w.creep = nil, nil
}

// rise is by how much more of the attempts fail at the engines that gained by the change, 0
// when that may be chance, or is not the plan's fault: when it is as bad elsewhere, or when it
// is one engine alone that did not gain most. words say it.
func (c *change) rise(alive map[string]bool) (rise float64, words string) {
	var before, since, worst Tried
	gained, worstGain, mostFailed, engines := 0.0, 0.0, 0.0, 0
	for i := range c.gains {
		g := &c.gains[i]
		if g.part < leastGain || !alive[g.engine] {
			continue
		}
		before, since = before.plus(g.before), since.plus(g.since)
		gained += g.requests
		engines++
		if g.since.Failed > mostFailed {
			mostFailed, worst, worstGain = g.since.Failed, g.since, g.requests
		}
	}
	if before.Attempts < leastAttempts {
		before = before.plus(c.usual)
	}
	usual := before.rate()
	if c.others.Attempts >= leastAttempts {
		usual = max(usual, c.others.rate())
	}
	rise = risen(since, usual)
	if rise == 0 || worstGain < gained/2 && risen(since.minus(worst), usual) == 0 {
		return 0, ""
	}
	return rise, fmt.Sprintf("%s of %.0f attempts failed at %d engines, usually %s,", percent(min(1, since.Failed/since.Attempts)), since.Attempts, engines, percent(usual))
}

// risen is by how much the part that fails exceeds what is usual, 0 when that may be chance.
func risen(t Tried, usual float64) float64 {
	if t.Attempts < leastAttempts {
		return 0
	}
	failed := min(t.Failed, t.Attempts) // those sent before may fail now
	rise := failed/t.Attempts - usual
	if rise < leastRise || tail(t.Attempts, failed, usual) >= likely {
		return 0
	}
	return rise
}

// tail is the probability that of n attempts k or more fail, each with probability p: the
// upper tail of the binomial distribution. k exceeds n p, so that its terms fall.
func tail(n, k, p float64) float64 {
	lgamma := func(x float64) float64 { y, _ := math.Lgamma(x); return y }
	term := math.Exp(lgamma(n+1) - lgamma(k+1) - lgamma(n-k+1) + k*math.Log(p) + (n-k)*math.Log1p(-p))
	sum := 0.0
	for ; k <= n && term > 1e-9*sum; k++ {
		sum += term
		term *= (n - k) / (k + 1) * p / (1 - p)
	}
	return sum
}
