package control

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wardrop-lb/wardrop/guard"
	"github.com/wardrop-lb/wardrop/policy/optimal"
	"github.com/wardrop-lb/wardrop/suppose"
)

// metrics are the control plane's; docs/metrics.md describes them. Labels come
// from the configuration.
type metrics struct {
	ticks     prometheus.Histogram
	failures  prometheus.Counter
	rollbacks prometheus.Counter
}

func newMetrics(c *Control, r prometheus.Registerer) *metrics {
	m := &metrics{
		ticks: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "wardrop_control_tick_seconds", Help: "Time a tick took: view, plan, publication.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "wardrop_control_plan_failures_total", Help: "Ticks in which the policy gave no plan and the last one was rescaled.",
		}),
		rollbacks: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "wardrop_control_rollbacks_total", Help: "Plans that were taken back because failures rose after them.",
		}),
	}
	r.MustRegister(m.ticks, m.failures, m.rollbacks, (*collector)(c))
	return m
}

// collector reads the control plane's state when it is scraped.
type collector Control

var (
	descLeading   = prometheus.NewDesc("wardrop_control_leading", "1 while this member leads; its other metrics of plans are of its own last one.", nil, nil)
	descOverrides = prometheus.NewDesc("wardrop_control_overrides", "What operators override, by kind.", []string{"kind"}, nil)
	descEpoch     = prometheus.NewDesc("wardrop_control_epoch", "Epoch of this leader.", nil, nil)
	descVersion   = prometheus.NewDesc("wardrop_control_plan_version", "Version of the plan in force.", nil, nil)
	descAge       = prometheus.NewDesc("wardrop_control_plan_age_seconds", "Time since the plan in force was published.", nil, nil)
	descGap       = prometheus.NewDesc("wardrop_control_plan_gap", "Certified relative gap of the plan in force.", nil, nil)
	descObjective = prometheus.NewDesc("wardrop_control_plan_objective", "Objective of the plan in force: expected seconds spent by all requests, per second.", nil, nil)
	descFallback  = prometheus.NewDesc("wardrop_control_plan_fallback", "1 while the plan in force is a rescaled one because the policy gave none.", nil, nil)
	descHold      = prometheus.NewDesc("wardrop_control_hold", "1 while the policy's plan is held back by a rail.", []string{"rail"}, nil)
	descPlanes    = prometheus.NewDesc("wardrop_control_data_planes", "Data planes that report.", []string{"cluster"}, nil)
	descLoad      = prometheus.NewDesc("wardrop_control_engine_load", "Requests/s that the plan gives to an engine.", []string{"engine"}, nil)
	descCapacity  = prometheus.NewDesc("wardrop_control_engine_capacity", "Requests/s that an engine may get.", []string{"engine"}, nil)
	descSlowdown  = prometheus.NewDesc("wardrop_control_engine_slowdown", "Times slower than its profile that an engine is taken for; 1 is not slow.", []string{"engine"}, nil)
	descDoubt     = prometheus.NewDesc("wardrop_control_engine_doubt", "Relative standard error of an engine's profile that is learned; 1 while it is a guess.", []string{"engine"}, nil)
	descDemand    = prometheus.NewDesc("wardrop_control_demand_rate", "Requests/s that are expected in the next tick, as measured.", []string{"cluster", "model", "priority"}, nil)
	descMissed    = prometheus.NewDesc("wardrop_control_demand_missed", "By which part of itself that was wrong, in the mean.", []string{"cluster", "model", "priority"}, nil)
	descReplicas  = prometheus.NewDesc("wardrop_control_replicas", "Engines that serve a model in a region.", []string{"model", "region"}, nil)
	descDesired   = prometheus.NewDesc("wardrop_control_desired_replicas", "Engines that a model's load in a region, refused requests included, would keep three quarters busy.", []string{"model", "region"}, nil)
	descPrice     = prometheus.NewDesc("wardrop_control_engine_price_seconds", "What one more unit of work at an engine costs everybody.", []string{"engine"}, nil)
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descLeading, descOverrides, descEpoch, descVersion, descAge, descGap, descObjective, descFallback, descHold, descPlanes, descReplicas, descDesired, descLoad, descCapacity, descPrice, descSlowdown, descDoubt, descDemand, descMissed} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	planes := map[string]int{}
	for _, cl := range c.config.Load().Clusters {
		planes[cl.Name] = 0
	}
	for _, p := range c.reports.live(time.Now()) {
		if _, ok := planes[p.Cluster]; ok {
			planes[p.Cluster]++
		}
	}
	for cluster, n := range planes {
		gauge(descPlanes, float64(n), cluster)
	}
	leads := 0.0
	if c.leading.Load() {
		leads = 1
	}
	gauge(descLeading, leads)
	pinned := map[string]int{}
	for _, o := range c.overrides.at(time.Now()) {
		pinned[o.Kind]++
	}
	for kind := range overrideKinds {
		gauge(descOverrides, float64(pinned[kind]), kind)
	}
	s := c.state.Load()
	if s == nil {
		return
	}
	gauge(descEpoch, float64(s.Plan.Epoch))
	gauge(descVersion, float64(s.Plan.Version))
	gauge(descAge, time.Since(s.Published).Seconds())
	if s.Plan.Policy == optimal.Name { // the others claim nothing
		gauge(descGap, s.Plan.Gap)
	}
	gauge(descObjective, s.Plan.Objective)
	fallback := 0.0
	if s.Trouble != "" {
		fallback = 1
	}
	gauge(descFallback, fallback)
	for _, rail := range guard.Rails {
		held := 0.0
		if s.Hold != nil && s.Hold.Rail == rail {
			held = 1
		}
		gauge(descHold, held, string(rail))
	}
	for i := range s.View.Engines {
		e := &s.View.Engines[i]
		gauge(descSlowdown, max(1, e.Slowdown), e.Name)
		if p := profileOf(e); e.Learn {
			gauge(descDoubt, p.Doubt, e.Name)
		}
	}
	for of, f := range s.Forecasts {
		gauge(descDemand, f.Rate, of.Cluster, of.Model, of.Priority.String())
		gauge(descMissed, f.Missed, of.Cluster, of.Model, of.Priority.String())
	}
	for _, r := range suppose.CountReplicas(s.View, s.Plan) {
		gauge(descReplicas, float64(r.Engines), r.Model, r.Region)
		gauge(descDesired, float64(r.Desired), r.Model, r.Region)
	}
	for i := range s.Plan.Engines {
		e := &s.Plan.Engines[i]
		gauge(descLoad, e.Load, e.Name)
		gauge(descCapacity, e.Capacity, e.Name)
		gauge(descPrice, e.Price(), e.Name)
	}
}
