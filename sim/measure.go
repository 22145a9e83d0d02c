package sim

import (
	"math"
	"slices"
	"time"

	"github.com/wardrop-lb/wardrop/fleet"
)

// tracked is how many engines' loads are kept over time, and points how many instants
// of them at most: what a picture can show.
const (
	tracked = 64
	points  = 4096
)

// measure is what a run has seen, warm-up left out.
type measure struct {
	w     *world
	start time.Duration

	e2e, first []float32 // seconds, of answered requests
	byCluster  []sum     // of e2e
	count      Counts
	good       int
	tokens     float64

	seen     map[uint64]struct{} // blocks that were in a prompt before
	sessions map[uint64]int32    // engine of the last turn

	loads    [][]float32 // by tracked engine: requests in it, by sample
	overload float64     // engine-seconds with a queue
	samples  int
	notes    []Note

	churn, churnTicks float64
	moves             []Move
}

type sum struct{ total, n float64 }

// Counts are of requests, but where their names say otherwise.
type Counts struct {
	Arrived   int                      `json:"arrived"`
	Answered  int                      `json:"answered"`
	Failed    int                      `json:"failed"`
	Left      int                      `json:"left"` // the client had waited long enough
	Shed      [fleet.NumPriorities]int `json:"shed"` // critical, standard, batch
	Attempts  int                      `json:"attempts"`
	Turns     int                      `json:"turns"` // of conversations, after the first
	Moved     int                      `json:"moved"` // of these, on another engine than the turn before
	Prompt    int                      `json:"prompt_tokens"`
	Cached    int                      `json:"cached_tokens"`
	Cacheable int                      `json:"cacheable_tokens"` // that were in some prompt before
}

// Note is something that happened.
type Note struct {
	At   float64 `json:"at"`
	Text string  `json:"text"`
}

func newMeasure(w *world) *measure {
	m := &measure{w: w, start: time.Duration(w.scenario.Warmup), seen: map[uint64]struct{}{}, sessions: map[uint64]int32{}}
	m.byCluster = make([]sum, len(w.fleet.Clusters))
	m.loads = make([][]float32, min(tracked, len(w.engines)))
	return m
}

func (m *measure) counts(r *Request) bool { return r.Arrived >= m.start }

func (m *measure) arrived(r *Request) {
	if m.counts(r) {
		m.count.Arrived++
	}
}

// tried counts attempts at engines.
func (m *measure) tried(r *Request, attempts int) {
	if m.counts(r) {
		m.count.Attempts += attempts
	}
}

// prompt counts what of a prompt anybody has seen before.
func (m *measure) prompt(r *Request) {
	known, leading := 0, true
	for _, b := range r.Prefix {
		if _, ok := m.seen[b.Hash]; ok {
			if leading {
				known = b.End
			}
			continue
		}
		leading = false
		m.seen[b.Hash] = struct{}{}
	}
	if m.counts(r) {
		m.count.Cacheable += min(known, r.Prompt-1)
		m.count.Prompt += r.Prompt
	}
}

func (m *measure) answered(r *Request) {
	if r.Session != 0 {
		if last, ok := m.sessions[r.Session]; ok && m.counts(r) {
			m.count.Turns++
			if int(last) != r.Engine {
				m.count.Moved++
			}
		}
		m.sessions[r.Session] = int32(r.Engine)
	}
	if !m.counts(r) {
		return
	}
	whole, first := (r.Finished - r.Arrived).Seconds(), (r.FirstToken - r.Arrived).Seconds()
	m.e2e, m.first = append(m.e2e, float32(whole)), append(m.first, float32(first))
	m.byCluster[r.Cluster].total += whole
	m.byCluster[r.Cluster].n++
	m.count.Answered++
	m.count.Cached += r.Cached
	m.tokens += float64(r.Output)
	if first <= m.w.scenario.SLO.Seconds() {
		m.good++
	}
}

func (m *measure) failed(r *Request) {
	if m.counts(r) {
		m.count.Failed++
	}
}

func (m *measure) left(r *Request) {
	if m.counts(r) {
		m.count.Left++
	}
}

func (m *measure) shed(r *Request) {
	if m.counts(r) {
		m.count.Shed[r.Priority]++
	}
}

// moved takes in how much of the weight of one tick went elsewhere, 0..1.
func (m *measure) moved(part float64) {
	if m.w.now >= m.start {
		m.churn += part
		m.churnTicks++
		m.moves = append(m.moves, Move{m.w.now.Seconds(), part})
	}
}

// sample looks at the engines.
func (m *measure) sample(w *world) {
	if w.now < m.start {
		return
	}
	m.samples++
	interval := time.Duration(w.scenario.Signals.Interval).Seconds()
	for i := range w.engines {
		running, waiting := w.load(i)
		if waiting > 0 {
			m.overload += interval
		}
		if i < len(m.loads) && m.samples <= points {
			m.loads[i] = append(m.loads[i], float32(running+waiting))
		}
	}
}

func (m *measure) note(at time.Duration, e *Event, begins bool) {
	m.notes = append(m.notes, Note{at.Seconds(), e.words(begins)})
}

// Latency is of answered requests, in seconds.
type Latency struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
}

func latencyOf(x []float32) Latency {
	if len(x) == 0 {
		return Latency{}
	}
	sorted := slices.Sorted(slices.Values(x))
	total := 0.0
	for _, v := range sorted {
		total += float64(v)
	}
	at := func(q float64) float64 {
		return float64(sorted[min(int(math.Ceil(q*float64(len(sorted))))-1, len(sorted)-1)])
	}
	return Latency{Mean: total / float64(len(sorted)), P50: at(0.5), P90: at(0.9), P99: at(0.99), P999: at(0.999)}
}

// oscillation is how much of what an engine's load varies by lies in one swing: the
// largest part of a periodogram's power that one period of 4 samples to a fifth of
// the run takes with its neighbours, in the mean over engines weighted by their
// variance. Noise spreads over all periods; a load that goes to and fro has a peak.
func oscillation(loads [][]float32) float64 {
	weighted, weight := 0.0, 0.0
	for _, x := range loads {
		peak, variance := spectralPeak(x)
		weighted += peak * variance
		weight += variance
	}
	if weight == 0 {
		return 0
	}
	return weighted / weight
}

func spectralPeak(series []float32) (peak, variance float64) {
	const longest = 1024
	n := min(len(series), longest)
	if n < 20 {
		return 0, 0
	}
	x := make([]float64, n)
	mean := 0.0
	for i := range x {
		x[i] = float64(series[len(series)-n+i])
		mean += x[i] / float64(n)
	}
	for i := range x {
		x[i] -= mean
		variance += x[i] * x[i] / float64(n)
		x[i] *= 0.5 - 0.5*math.Cos(2*math.Pi*float64(i)/float64(n-1)) // Hann's window
	}
	low, high := 5, n/4
	var power []float64
	total := 0.0
	for k := low; k <= high; k++ {
		re, im := 0.0, 0.0
		step := 2 * math.Pi * float64(k) / float64(n)
		for i, v := range x {
			s, c := math.Sincos(step * float64(i))
			re += v * c
			im += v * s
		}
		power = append(power, re*re+im*im)
		total += re*re + im*im
	}
	if total == 0 {
		return 0, 0
	}
	for i := range power {
		near := power[i]
		if i > 0 {
			near += power[i-1]
		}
		if i+1 < len(power) {
			near += power[i+1]
		}
		peak = max(peak, near/total)
	}
	return peak, variance
}
