package relay

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	descUpstreams = prometheus.NewDesc("wardrop_relay_upstreams", "Upstreams of the relay, by whether they are connected.", []string{"connected"}, nil)
	descEpoch     = prometheus.NewDesc("wardrop_relay_epoch", "Epoch of the snapshot that is served to a cluster.", []string{"cluster"}, nil)
	descVersion   = prometheus.NewDesc("wardrop_relay_version", "Version of the snapshot that is served to a cluster.", []string{"cluster"}, nil)
	descAge       = prometheus.NewDesc("wardrop_relay_age_seconds", "Time since the snapshot that is served to a cluster was published.", []string{"cluster"}, nil)
	descRefused   = prometheus.NewDesc("wardrop_relay_refused", "1 where the newest snapshot from upstream was refused.", []string{"cluster"}, nil)
	descClients   = prometheus.NewDesc("wardrop_relay_clients", "Connected clients of the weight path.", nil, nil)
	descReporting = prometheus.NewDesc("wardrop_relay_reporting", "Instances that send reports.", nil, nil)
	descReports   = prometheus.NewDesc("wardrop_relay_reports_total", "Reports passed on, each counted once.", nil, nil)
)

// collector reads the relay when it is scraped.
type collector Relay

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descUpstreams, descEpoch, descVersion, descAge, descRefused, descClients, descReporting, descReports} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s := (*Relay)(c).Status(time.Now())
	connected := 0
	for _, u := range s.Upstreams {
		if u.Connected {
			connected++
		}
	}
	gauge(descUpstreams, float64(connected), "true")
	gauge(descUpstreams, float64(len(s.Upstreams)-connected), "false")
	for _, x := range s.Clusters {
		gauge(descEpoch, float64(x.Epoch), x.Cluster)
		gauge(descVersion, float64(x.Version), x.Cluster)
		gauge(descAge, x.Age, x.Cluster)
		refused := 0.0
		if x.Refused != "" {
			refused = 1
		}
		gauge(descRefused, refused, x.Cluster)
	}
	gauge(descClients, float64(len(s.Clients)))
	gauge(descReporting, float64(s.Reporting))
	ch <- prometheus.MustNewConstMetric(descReports, prometheus.CounterValue, float64(c.forwarder.Passed()))
}
