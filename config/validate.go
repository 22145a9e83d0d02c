package config

import (
	"fmt"
	"maps"
	"math"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/signals"
)

// checker collects what is wrong with the meaning of a decoded file.
type checker struct {
	c        *Config
	problems Problems
}

// fail reports a problem at the position of path, or of its nearest parent that
// the file contains.
func (k *checker) fail(path, format string, args ...any) {
	k.problems = append(k.problems, place(k.c.file, k.c.positions, path, fmt.Sprintf(format, args...)))
}

func place(file string, positions map[string]position, path, message string) Problem {
	at, ok := positions[""] // of a configuration within another file
	if !ok {
		at = position{1, 1}
	}
	for p := path; p != ""; p = parent(p) {
		if pos, ok := positions[p]; ok {
			at = pos
			break
		}
	}
	return Problem{file, at.line, at.column, path + ": " + message}
}

func parent(path string) string {
	return path[:max(strings.LastIndexAny(path, ".["), 0)]
}

func (c *Config) has(path string) bool {
	_, ok := c.positions[path]
	return ok
}

func (c *Config) validate() Problems {
	k := &checker{c: c}
	k.control()
	k.oneOf("policy.name", c.Policy.Name, Policies...)
	k.inRange("policy.gain", c.Policy.Gain, 0, 10)
	k.inRange("policy.smoothing", c.Policy.Smoothing, 0, 0.999)
	k.inRange("policy.delay", float64(c.Policy.Delay), 0, 100)
	k.positive("policy.tick", c.Policy.Tick)
	k.positive("signals.interval", c.Signals.Interval)
	k.positive("signals.timeout", c.Signals.Timeout)
	k.positive("signals.report", c.Signals.Report)
	k.inRange("proxy.bound", c.Proxy.Bound, 0.05, 10)
	k.inRange("proxy.retry_budget", c.Proxy.RetryBudget, 0, 1)
	k.inRange("proxy.record_rate", c.Proxy.RecordRate, 0, 100_000)
	k.inRange("proxy.tracing.sample", c.Proxy.Tracing.Sample, 0, 1)
	if e := c.Proxy.Tracing.Endpoint; e != "" {
		if u, err := url.Parse(e); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			k.fail("proxy.tracing.endpoint", "%q is no URL of a collector: write it like http://127.0.0.1:4317", e)
		}
	}
	for i, a := range c.Proxy.Control {
		k.address(fmt.Sprintf("proxy.control[%d]", i), a)
	}
	k.inRange("proxy.max_connections", float64(c.Proxy.MaxConnections), 0, 1<<20)
	if t := c.Proxy.EngineTLS; (t.CertFile == "") != (t.KeyFile == "") {
		k.fail("proxy.engine_tls", "cert_file and key_file go together: set both or none")
	}
	for i, p := range c.Proxy.Paths {
		if !strings.HasPrefix(p, "/") || strings.ContainsAny(p, " {}?#") {
			k.fail(fmt.Sprintf("proxy.paths[%d]", i), "%q is not a path: write it like /v1/custom", p)
		}
	}
	k.regions()
	k.clusters()
	k.engines()
	k.discover()
	k.models()
	k.aliases()
	k.demand()
	return k.problems
}

// positive refuses a duration that is written as zero.
func (k *checker) positive(path string, d Duration) {
	if k.c.has(path) && d == 0 {
		k.fail(path, "want more than 0s")
	}
}

func (k *checker) clusters() {
	if len(k.c.Clusters) == 0 {
		k.fail("clusters", "none: at least one cluster must receive requests")
	}
	names := map[string]bool{}
	for i, cl := range k.c.Clusters {
		path := fmt.Sprintf("clusters[%d]", i)
		k.name(path+".name", cl.Name, names)
		if strings.HasPrefix(cl.Name, "@") {
			k.fail(path+".name", "%q begins with @, which is for collectors", cl.Name)
		}
		k.required(path+".region", cl.Region)
		k.address(path+".listen", cl.Listen)
		k.address(path+".admin", cl.Admin)
		k.distances(path+".distances", cl)
		k.engineDistances(path+".engine_distances", cl)
	}
}

func (k *checker) distances(path string, cl Cluster) {
	needed := k.c.engineRegions()
	for _, region := range needed {
		_, written := cl.Distances[region]
		if _, placed := k.c.geography(cl.Region, region); !written && !placed {
			k.fail(path, "none to region %q, where engines are: add `%s: 20ms` (the network round trip from %q), or coordinates of both regions under regions", region, region, cl.Name)
		}
	}
	for region := range cl.Distances {
		if len(k.c.Discover) == 0 && !slices.Contains(needed, region) {
			k.fail(path+"."+region, "no engine lies in region %q%s", region, suggestion(region, needed))
		}
	}
}

func (k *checker) engineDistances(path string, cl Cluster) {
	if len(k.c.Discover) > 0 {
		return // it may be one that is found
	}
	var names []string
	for _, e := range k.c.Engines {
		names = append(names, e.Name)
	}
	for name := range cl.EngineDistances {
		k.reference(path+"."+name, "engine", name, names)
	}
}

func (k *checker) models() {
	known, seen := k.c.models(), map[string]bool{}
	for i, m := range k.c.Models {
		path := fmt.Sprintf("models[%d]", i)
		k.name(path+".name", m.Name, seen)
		if m.Name != "" && !k.c.discovers() {
			k.reference(path+".name", "model", m.Name, known)
		}
		if k.c.has(path + ".work") {
			k.inRange(path+".work", m.Work, fleet.LeastWork, fleet.MaxWork)
		}
		k.inRange(path+".token_seconds", m.TokenSeconds, 0, fleet.MaxHeld)
		k.inRange(path+".slot_seconds", m.SlotSeconds, 0, fleet.MaxHeld)
		k.inRange(path+".worth.first_token", m.Worth.FirstToken, 0, fleet.MaxWork)
		k.inRange(path+".worth.decode", m.Worth.Decode, 0, fleet.MaxWork)
		if k.c.has(path+".worth") && m.Worth.FirstToken == 0 && m.Worth.Decode == 0 {
			k.fail(path+".worth", "its time is worth nothing: want a first_token or a decode above 0")
		}
	}
}

func (k *checker) engines() {
	if len(k.c.Engines) == 0 && len(k.c.Discover) == 0 {
		k.fail("engines", "none: at least one engine must serve requests")
	}
	names, urls := map[string]bool{}, map[string]bool{}
	for i, e := range k.c.Engines {
		path := fmt.Sprintf("engines[%d]", i)
		k.name(path+".name", e.Name, names)
		k.required(path+".region", e.Region)
		k.engineURL(path+".url", e.URL, urls)
		if len(e.Models) == 0 && e.URL == "" { // of others they are read
			k.fail(path+".models", "none: an engine must serve at least one model")
		}
		k.engine(path, e)
	}
}

// engine checks what holds for engines that are configured and for those that are
// found.
func (k *checker) engine(path string, e Engine) {
	k.reading(path, e)
	k.oneOf(path+".protocol", e.Protocol, "http1", "h2c")
	seen := map[string]bool{}
	for j, m := range e.Models {
		k.name(fmt.Sprintf("%s.models[%d]", path, j), m, seen)
	}
	k.profile(path+".profile", e.Profile)
	k.inRange(path+".weight", e.Weight, 0, math.MaxFloat64)
}

// reading checks what says how an engine's signals are read.
func (k *checker) reading(path string, e Engine) {
	k.oneOf(path+".kind", e.Kind, signals.Kinds()...)
	if err := signals.CheckMetrics(e.Kind, e.Metrics); err != nil {
		k.fail(path+".metrics", "%v", err)
	} else if e.Metrics != "" && (e.Kind == signals.KindNone || e.Kind == "ollama") {
		k.fail(path+".metrics", "engines of kind %q have none that are read", e.Kind)
	}
	names := 0
	for _, key := range slices.Sorted(maps.Keys(e.Signals)) {
		at := path + ".signals." + key
		if known := signals.NameKeys(); !slices.Contains(known, key) {
			k.fail(at, "unknown key %q%s", key, suggestion(key, known))
		}
		for i, name := range e.Signals[key] {
			if err := signals.CheckName(name); err != nil {
				k.fail(fmt.Sprintf("%s[%d]", at, i), "%v", err)
			}
		}
		names += len(e.Signals[key])
	}
	switch {
	case e.Kind == signals.KindGeneric && names == 0:
		k.fail(path+".signals", "missing: kind %q wants the names of metrics, like {running: [requests_running]}", e.Kind)
	case e.Kind != signals.KindGeneric && k.c.has(path+".signals"), e.Kind != signals.KindGeneric && names > 0:
		k.fail(path+".signals", "names of metrics are for the kind %q", signals.KindGeneric)
	}
}

func (k *checker) profile(path string, p Profile) {
	k.positive(path+".t0", p.T0)
	for _, f := range []struct {
		key   string
		value float64
		high  float64
	}{{"u_max", p.UMax, math.MaxFloat64}, {"batch", p.Batch, math.MaxFloat64}, {"kappa", p.Kappa, 0.95}} {
		if k.c.has(path + "." + f.key) {
			k.inRange(path+"."+f.key, f.value, math.SmallestNonzeroFloat64, f.high)
		}
	}
	if k.c.has(path + ".spread") {
		k.inRange(path+".spread", p.Spread, math.SmallestNonzeroFloat64, fleet.MaxSpread)
	}
	k.inRange(path+".tokens", p.Tokens, 0, math.MaxFloat64)
	k.inRange(path+".slots", p.Slots, 0, math.MaxFloat64)
	t0 := p.T0
	set(&t0, Duration(time.Second))
	if p.FirstToken > t0 {
		k.fail(path+".first_token", "%v is more than t0, %v", time.Duration(p.FirstToken), time.Duration(t0))
	}
}

// models lists the models that some engine serves, sorted.
func (c *Config) models() []string {
	var models []string
	for _, e := range c.Engines {
		models = append(models, e.Models...)
	}
	slices.Sort(models)
	return slices.Compact(models)
}

func (k *checker) aliases() {
	models, names := k.c.models(), map[string]bool{}
	for i, a := range k.c.Aliases {
		path := fmt.Sprintf("aliases[%d]", i)
		k.name(path+".name", a.Name, names)
		if slices.Contains(models, a.Name) {
			k.fail(path+".name", "%q is a model: an alias must have a name of its own", a.Name)
		}
		sum := 0.0
		for model, part := range a.To {
			if !k.c.discovers() {
				k.reference(path+".to."+model, "model", model, models)
			}
			k.inRange(path+".to."+model, part, 0, math.MaxFloat64)
			sum += part
		}
		if sum <= 0 {
			k.fail(path+".to", "it stands for nothing: write {MODEL: 1}")
		}
	}
}

func (k *checker) demand() {
	var clusters []string
	for _, c := range k.c.Clusters {
		clusters = append(clusters, c.Name)
	}
	models := k.c.models()
	seen := map[[3]string]bool{}
	for i, d := range k.c.Demand {
		path := fmt.Sprintf("demand[%d]", i)
		k.reference(path+".cluster", "cluster", d.Cluster, clusters)
		if !k.c.discovers() || d.Model == "" {
			k.reference(path+".model", "model", d.Model, models)
		}
		if _, err := fleet.ParsePriority(d.Priority); err != nil && d.Priority != "" {
			k.fail(path+".priority", "%v", err)
		}
		if !k.c.has(path + ".rate") {
			k.fail(path+".rate", "missing: want requests per second")
		}
		k.inRange(path+".rate", d.Rate, 0, math.MaxFloat64)
		if d.Rate > 0 && d.Rate < 1e-9 {
			k.fail(path+".rate", "%v is less than one request in thirty years: write 0", d.Rate)
		}
		priority := d.Priority
		set(&priority, "standard")
		key := [3]string{d.Cluster, d.Model, priority}
		if seen[key] {
			k.fail(path, "the demand of this cluster, model and priority is there twice")
		}
		seen[key] = true
	}
}

func (k *checker) reference(path, noun, name string, known []string) {
	if name == "" {
		k.fail(path, "missing: name a %s", noun)
	} else if !slices.Contains(known, name) {
		k.fail(path, "unknown %s %q%s", noun, name, suggestion(name, known))
	}
}

func (k *checker) required(path, value string) {
	if value == "" {
		k.fail(path, "missing")
	}
}

func (k *checker) name(path, name string, seen map[string]bool) {
	k.required(path, name)
	if trouble := nameTrouble(name); trouble != "" {
		k.fail(path, "%s", trouble)
	}
	if name != "" && seen[name] {
		k.fail(path, "%q is there twice: names must be unique", name)
	}
	seen[name] = true
}

func (k *checker) oneOf(path, value string, allowed ...string) {
	if value != "" && !slices.Contains(allowed, value) {
		k.fail(path, "unknown value %q%s", value, suggestion(value, allowed))
	}
}

func (k *checker) address(path, value string) {
	if value == "" {
		return
	}
	if _, port, err := net.SplitHostPort(value); err != nil || port == "" {
		k.fail(path, "%q is not an address: write host:port, like 127.0.0.1:8080", value)
	}
}

func (k *checker) engineURL(path, value string, seen map[string]bool) {
	if value == "" {
		return
	}
	u, err := url.Parse(value)
	switch {
	case err == nil && u.Scheme == "unix" && u.Host == "" && strings.HasPrefix(u.Path, "/"):
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "":
		k.fail(path, "%q is not a base URL: write http://host:port, without a path", value)
	}
	if seen[value] {
		k.fail(path, "another engine has the URL %s", value)
	}
	seen[value] = true
}

func (k *checker) inRange(path string, x, low, high float64) {
	if x >= low && x <= high && !math.IsInf(x, 0) {
		return
	}
	switch {
	case high == math.MaxFloat64 && low == 0:
		k.fail(path, "%v is not a number of at least 0", x)
	case high == math.MaxFloat64:
		k.fail(path, "%v is not a number above 0", x)
	case low == math.SmallestNonzeroFloat64:
		k.fail(path, "%v is not above 0 and at most %v", x, high)
	default:
		if k.c.has(path) {
			k.fail(path, "%v is not between %v and %v", x, low, high)
		}
	}
}
