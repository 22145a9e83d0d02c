package proxy

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wardrop-lb/wardrop/signals"
)

// readingMetrics count what reading engines comes to. Labels are codes of our own and
// engines of the snapshot.
type readingMetrics struct {
	reads  *prometheus.CounterVec
	inBand *prometheus.CounterVec
	faults *prometheus.CounterVec

	mu   sync.Mutex
	last map[string]signals.Faults // by engine: what was counted already
}

func newReadingMetrics(r prometheus.Registerer) *readingMetrics {
	m := &readingMetrics{
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wardrop_signals_reads_total", Help: "Attempts to read an engine, by outcome.",
		}, []string{"outcome"}),
		faults: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wardrop_signals_faults_total", Help: "What was wrong with engines' answers, by fault.",
		}, []string{"fault"}),
		inBand: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wardrop_signals_in_band_total", Help: "Reports of engines in their answers, by outcome.",
		}, []string{"outcome"}),
		last: map[string]signals.Faults{},
	}
	r.MustRegister(m.reads, m.faults, m.inBand)
	return m
}

// count takes the outcome of an attempt.
func (m *readingMetrics) count(st signals.State) {
	outcome := "ok"
	switch {
	case !st.Reachable:
		outcome = "unreachable"
	case st.Err != "":
		outcome = "failed"
	}
	m.reads.WithLabelValues(outcome).Inc()
	m.mu.Lock()
	old := m.last[st.Engine]
	m.last[st.Engine] = st.Faults
	m.mu.Unlock()
	if st.Faults.Failed < old.Failed || st.Faults.Truncated < old.Truncated || st.Faults.Spoilt < old.Spoilt || st.Faults.Redirects < old.Redirects {
		old = signals.Faults{} // it is read anew
	}
	for fault, n := range map[string]uint64{
		"truncated": st.Faults.Truncated - old.Truncated, "spoilt": st.Faults.Spoilt - old.Spoilt, "redirect": st.Faults.Redirects - old.Redirects,
	} {
		if n > 0 {
			m.faults.WithLabelValues(fault).Add(float64(n))
		}
	}
}

// forget drops what is kept of engines that are not read any more.
func (m *readingMetrics) forget(read []signals.Target) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := make(map[string]signals.Faults, len(read))
	for _, t := range read {
		if f, ok := m.last[t.Engine]; ok {
			kept[t.Engine] = f
		}
	}
	m.last = kept
}

var (
	descRead = prometheus.NewDesc("wardrop_signals_engines", "Engines that this data plane reads, by what they are read as.", []string{"kind"}, nil)
	descGood = prometheus.NewDesc("wardrop_signals_age_seconds", "Time since an engine last said how it is.", []string{"engine"}, nil)
)

// collectReadings exports what is known of the engines that are read.
func (c *collector) collectReadings(ch chan<- prometheus.Metric, now time.Time) {
	kinds := map[string]int{}
	for _, st := range c.scraper.States() {
		kinds[st.Kind]++
		if st.Signal != nil {
			ch <- prometheus.MustNewConstMetric(descGood, prometheus.GaugeValue, now.Sub(st.Signal.Time).Seconds(), st.Engine)
		}
	}
	for kind, n := range kinds {
		ch <- prometheus.MustNewConstMetric(descRead, prometheus.GaugeValue, float64(n), kind)
	}
}
