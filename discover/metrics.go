package discover

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are discovery's; docs/metrics.md describes them. Labels are the names of
// the configuration's sources, and codes of our own.
type metrics struct {
	refreshes *prometheus.CounterVec
	reads     *prometheus.CounterVec
}

func newMetrics(d *Discovery, r prometheus.Registerer) *metrics {
	m := &metrics{
		refreshes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wardrop_discover_refreshes_total", Help: "Looks of a source at its engines.",
		}, []string{"source", "outcome"}),
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wardrop_discover_model_reads_total", Help: "Reads of engines' models.",
		}, []string{"outcome"}),
	}
	r.MustRegister(m.refreshes, m.reads, (*collector)(d))
	return m
}

// sourceStatus is what there is to say of one source.
type sourceStatus struct {
	name                   string
	engines, held, refused int
	good                   time.Time // of the last refresh that did not fail; zero before
}

type status struct {
	sources       []sourceStatus
	unread        int // engines whose models nobody knows
	refusedModels int
}

// collector reads what is in force when it is scraped.
type collector Discovery

var (
	descEngines = prometheus.NewDesc("wardrop_discover_engines", "Engines in force that a source found.", []string{"source"}, nil)
	descHeld    = prometheus.NewDesc("wardrop_discover_held", "Engines kept for a while though their source says that they are gone.", []string{"source"}, nil)
	descRefused = prometheus.NewDesc("wardrop_discover_refused", "Engines that a source found and that cannot be taken.", []string{"source"}, nil)
	descAge     = prometheus.NewDesc("wardrop_discover_age_seconds", "Time since a source's last refresh that did not fail.", []string{"source"}, nil)
	descUnread  = prometheus.NewDesc("wardrop_discover_engines_without_models", "Engines whose models are neither configured nor read.", nil, nil)
	descModels  = prometheus.NewDesc("wardrop_discover_models_refused", "Names of models that engines say and that are refused.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descEngines, descHeld, descRefused, descAge, descUnread, descModels} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	s := c.status.Load()
	if s == nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, x := range s.sources {
		gauge(descEngines, float64(x.engines), x.name)
		gauge(descHeld, float64(x.held), x.name)
		gauge(descRefused, float64(x.refused), x.name)
		if !x.good.IsZero() {
			gauge(descAge, time.Since(x.good).Seconds(), x.name)
		}
	}
	gauge(descUnread, float64(s.unread))
	gauge(descModels, float64(s.refusedModels))
}
