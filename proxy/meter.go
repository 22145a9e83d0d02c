package proxy

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// window is how long rates look back: long enough that Poisson noise stays
// under a few percent at the rates that matter, short enough for a plan to
// follow a step within a few ticks.
const window = 10 * time.Second

// counter counts events; adding costs one atomic operation. Its rate comes from
// samples that the reporter takes.
type counter struct {
	total   atomic.Uint64
	history history
}

func (c *counter) add() { c.total.Add(1) }

// history is a sliding window over samples of a growing total. While that does not grow, two
// samples stand for all: most engines of a large fleet are idle, here.
type history struct {
	mu      sync.Mutex
	samples []sample // oldest first; the first is at or before the window's start
}

type sample struct {
	at    time.Time
	total float64
}

// sample records the total at a time and returns how much it grew over the
// window, and the part of the window that the samples cover.
func (h *history) sample(at time.Time, total float64) (grown float64, covered time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.samples); n > 1 && h.samples[n-1].total == total && h.samples[n-2].total == total {
		h.samples[n-1].at = at
	} else {
		h.samples = append(h.samples, sample{at, total})
	}
	old := 0
	for len(h.samples)-old > 2 && at.Sub(h.samples[old+1].at) >= window {
		old++
	}
	h.samples = append(h.samples[:0], h.samples[old:]...)
	first := h.samples[0]
	covered = at.Sub(first.at)
	if len(h.samples) > 1 && h.samples[1].total == first.total { // it was as much at the window's start
		covered = min(covered, window)
	}
	return total - first.total, covered
}

// rate samples the counter: events per second over the window, the total, and
// the seconds covered.
func (c *counter) rate(at time.Time) (perSecond float64, total uint64, seconds float64) {
	total = c.total.Load()
	grown, covered := c.history.sample(at, float64(total))
	if covered <= 0 {
		return 0, total, 0
	}
	return grown / covered.Seconds(), total, covered.Seconds()
}

// mean is the mean of observed durations over the window.
type mean struct {
	nanos, count atomic.Int64
	sums, counts history
}

func (m *mean) observe(d time.Duration) {
	m.nanos.Add(int64(d))
	m.count.Add(1)
}

// seconds samples the mean; 0 when nothing was observed.
func (m *mean) seconds(at time.Time) float64 {
	count := m.count.Load()
	sum, _ := m.sums.sample(at, float64(m.nanos.Load()))
	n, _ := m.counts.sample(at, float64(count))
	if n <= 0 {
		return 0
	}
	return sum / n / 1e9
}

// atomicFloat is a float64 that is written and read by different goroutines.
type atomicFloat struct{ bits atomic.Uint64 }

func (n *atomicFloat) store(x float64) { n.bits.Store(math.Float64bits(x)) }

// blend moves the number a little towards x; the first x is taken whole. An x far
// beyond the number counts as giant times it, so that a few do not make themselves
// the rule. Of racing updates one may be lost.
func (n *atomicFloat) blend(x float64) {
	const part, giant = 1.0 / 64, 4
	if old := n.load(); old != 0 {
		x = old + part*(min(x, giant*old)-old)
	}
	n.store(x)
}

func (n *atomicFloat) load() float64 { return math.Float64frombits(n.bits.Load()) }

// spent adds up how long attempts take, those under way too. Beginning and ending one costs
// two atomic operations at most.
type spent struct {
	ended atomic.Int64 // nanoseconds
	// open is those under way: how many in the upper bits, and in the lower ones the sum
	// of when they began. Both change at once, or a reader would see one too many that
	// began at no time.
	open atomic.Uint64
}

const (
	spentUnit = 10 * time.Millisecond
	spentBits = 44 // twenty thousand under way for three months
)

// spentEpoch is before all attempts.
var spentEpoch = time.Now()

func openSince(at time.Time) uint64 {
	return 1<<spentBits + uint64(max(0, at.Sub(spentEpoch))/spentUnit)
}

func (s *spent) begin(at time.Time) { s.open.Add(openSince(at)) }

func (s *spent) end(begun, now time.Time) {
	s.open.Add(-openSince(begun))
	s.ended.Add(int64(now.Sub(begun)))
}

func (s *spent) seconds(now time.Time) float64 {
	open := s.open.Load()
	n, begun := float64(open>>spentBits), float64(open&(1<<spentBits-1))
	underWay := max(0, n*float64(max(0, now.Sub(spentEpoch)))-begun*float64(spentUnit))
	return (float64(s.ended.Load()) + underWay) / 1e9
}
