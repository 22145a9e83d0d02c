package proxy

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the request path's; docs/metrics.md describes them. Labels come
// from the snapshot or from our own code, never from clients.
type metrics struct {
	refused   *prometheus.CounterVec
	attempts  *prometheus.CounterVec
	retries   *prometheus.CounterVec
	firstByte *prometheus.HistogramVec
	cancelled prometheus.Counter
}

func newMetrics(p *DataPlane, r prometheus.Registerer) *metrics {
	m := &metrics{
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wardrop_proxy_refused_total", Help: "Requests that the data plane answered itself, by error code.",
		}, []string{"code"}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wardrop_proxy_attempts_total", Help: "Attempts at engines, by outcome.",
		}, []string{"engine", "model", "outcome"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wardrop_proxy_retries_total", Help: "Retries on another engine, by what the first attempt met.",
		}, []string{"reason"}),
		firstByte: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "wardrop_proxy_first_byte_seconds", Help: "Time from a request's arrival to the first byte of its answer's body.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 16),
		}, []string{"model"}),
		cancelled: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "wardrop_proxy_cancelled_total", Help: "Requests whose client went away after the first byte.",
		}),
	}
	r.MustRegister(m.refused, m.attempts, m.retries, m.firstByte, m.cancelled, (*collector)(p))
	return m
}

// collector reads the data plane's state when it is scraped.
type collector DataPlane

var (
	descInFlight = prometheus.NewDesc("wardrop_proxy_in_flight", "Requests in flight at an engine.", []string{"engine", "model"}, nil)
	descWeight   = prometheus.NewDesc("wardrop_proxy_weight", "Fraction of the model's requests that the snapshot gives to an engine.", []string{"engine", "model"}, nil)
	descPenalty  = prometheus.NewDesc("wardrop_proxy_penalty_seconds", "Penalty held against an engine.", []string{"engine"}, nil)
	descDemand   = prometheus.NewDesc("wardrop_proxy_demand_total", "Requests that arrived, first attempts only, shed ones included.", []string{"model", "priority"}, nil)
	descRetried  = prometheus.NewDesc("wardrop_proxy_client_retries_total", "Requests that clients sent again; they are no demand.", []string{"model", "priority"}, nil)
	descTokens   = prometheus.NewDesc("wardrop_proxy_tokens_total", "Tokens of answers that came to their end.", []string{"model", "priority", "of"}, nil)
	descShed     = prometheus.NewDesc("wardrop_proxy_shed_total", "Requests refused because the plan sheds them.", []string{"model", "priority"}, nil)
	descEpoch    = prometheus.NewDesc("wardrop_proxy_snapshot_epoch", "Epoch of the snapshot in force.", nil, nil)
	descVersion  = prometheus.NewDesc("wardrop_proxy_snapshot_version", "Version of the snapshot in force.", nil, nil)
	descAge      = prometheus.NewDesc("wardrop_proxy_snapshot_age_seconds", "Time since the snapshot in force came; of one found on disk since it was published.", nil, nil)
	descAged     = prometheus.NewDesc("wardrop_proxy_snapshot_aged", "Part of the weights that age has taken: so much of them is in proportion to the engines' capacities.", nil, nil)
	descDropped  = prometheus.NewDesc("wardrop_proxy_access_log_dropped_total", "Requests that the access log did not write.", nil, nil)
	descStale    = prometheus.NewDesc("wardrop_proxy_snapshot_stale", "1 when the snapshot is older than it is good for.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descInFlight, descWeight, descPenalty, descDemand, descRetried, descTokens, descShed, descEpoch, descVersion, descAge, descAged, descStale, descDropped} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	if l := c.records.log; l != nil {
		ch <- prometheus.MustNewConstMetric(descDropped, prometheus.CounterValue, float64(l.Dropped()))
	}
	t := c.table.Load()
	if t == nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s, now := t.router.Snapshot, time.Now()
	age := c.ageing.of(now)
	gauge(descEpoch, float64(s.Epoch))
	gauge(descVersion, float64(s.Version))
	gauge(descAge, age.Seconds())
	stale := 0.0
	if age > s.GoodFor {
		stale = 1
	}
	gauge(descStale, stale)
	gauge(descAged, t.aged)
	penalties := map[string]float64{}
	listed := map[*seenState]bool{}
	for model, row := range t.rows {
		for i, target := range row.Targets() {
			listed[row.targets[i].seen] = true
			gauge(descInFlight, float64(target.Flight.Requests()), target.Engine.Name, model)
			gauge(descWeight, target.Weight, target.Engine.Name, model)
			penalties[target.Engine.Name] = row.targets[i].engine.outlier.Penalty(now.UnixNano())
		}
		c.collectDemand(ch, model, row.model)
	}
	for _, s := range c.memory.draining(listed) {
		gauge(descInFlight, float64(s.flight.Requests()), s.engine, s.model)
	}
	for engine, p := range penalties {
		gauge(descPenalty, p, engine)
	}
}
