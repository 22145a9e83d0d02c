package collect

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wardrop-lb/wardrop/signals"
)

// metrics count what reading engines comes to. Labels are codes of our own and
// engines of the snapshot.
type metrics struct {
	reads  *prometheus.CounterVec
	inBand *prometheus.CounterVec
	faults *prometheus.CounterVec

	mu   sync.Mutex
	last map[string]signals.Faults // by engine: what was counted already
}

func newMetrics(reader *Reader, r prometheus.Registerer) *metrics {
	m := &metrics{
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
	r.MustRegister(m.reads, m.faults, m.inBand, (*collector)(reader))
	return m
}

// count takes the outcome of an attempt.
func (m *metrics) count(st signals.State) {
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
func (m *metrics) forget(read []signals.Target) {
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
	descRead = prometheus.NewDesc("wardrop_signals_engines", "Engines that are read here, by what they are read as.", []string{"kind"}, nil)
	descGood = prometheus.NewDesc("wardrop_signals_age_seconds", "Time since an engine last said how it is.", []string{"engine"}, nil)
)

// collector reads what is known of the engines when it is scraped.
type collector Reader

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- descRead
	ch <- descGood
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	kinds := map[string]int{}
	for _, st := range c.scraper.States() {
		kinds[st.Kind]++
		if st.Signal != nil {
			ch <- prometheus.MustNewConstMetric(descGood, prometheus.GaugeValue, time.Since(st.Signal.Time).Seconds(), st.Engine)
		}
	}
	for kind, n := range kinds {
		ch <- prometheus.MustNewConstMetric(descRead, prometheus.GaugeValue, float64(n), kind)
	}
}
