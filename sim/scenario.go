package sim

import (
	"bytes"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/wardrop-lb/wardrop/config"
	"github.com/wardrop-lb/wardrop/enginemodel"
	"github.com/wardrop-lb/wardrop/fleetgen"
	"github.com/wardrop-lb/wardrop/latency"
)

// Scenario is a fleet, what it is asked, and what happens to it. The fleet is a
// configuration as `wardrop up` takes it; its demand gives the mean rates.
type Scenario struct {
	// About says in a sentence what the scenario shows. Required.
	About string `yaml:"about"`
	// Duration is how long requests arrive. Default 10m.
	Duration config.Duration `yaml:"duration"`
	// Warmup is how much of that is not measured. Default a tenth.
	Warmup config.Duration `yaml:"warmup"`
	// SLO is the time to the first token within which an answer is good. Default 2s.
	SLO config.Duration `yaml:"slo"`
	// Load says how requests arrive and how large they are; of a (cluster, model) the
	// first entry that fits counts.
	Load []Load `yaml:"load"`
	// Traces are recorded requests that take the place of a model's synthetic ones.
	Traces []Trace `yaml:"traces"`
	// Hardware says what engines are made of, by their names, which may hold *; of an
	// engine the first entry that fits counts. Its profile then follows from that.
	// Others are made to fit their profile.
	Hardware []Hardware `yaml:"hardware"`
	// Clients says what clients do when they wait or are refused.
	Clients Clients `yaml:"clients"`
	// Signals says how engines' readings reach the clusters.
	Signals Signals `yaml:"signals"`
	// Network says how distances vary.
	Network Network `yaml:"network"`
	// Events are what happens when.
	Events []Event `yaml:"events"`
	// Policies are compared unless the command names others. Default: optimal and
	// least-request.
	Policies []string `yaml:"policies"`
	// Generate draws the fleet in place of one that is written down, like
	// clusters=20,engines=400,models=4,util=0.8,seed=1.
	Generate string `yaml:"generate"`
	// Expect are comparisons that must hold, like `optimal.mean < nearest.mean * 0.9`.
	Expect []string `yaml:"expect"`

	// Config is the fleet.
	Config *config.Config `yaml:"-"`
}

// Load is how requests of some (cluster, model)s arrive.
type Load struct {
	// Cluster and Model name them and may hold *. Default *.
	Cluster string `yaml:"cluster"`
	Model   string `yaml:"model"`
	// Arrivals is the law of the times between two: poisson, gamma or weibull. Default
	// poisson.
	Arrivals string `yaml:"arrivals"`
	// CV is the coefficient of variation of gamma's and weibull's times, above 0.
	// Default 2.
	CV float64 `yaml:"cv"`
	// Prompt and Output are the sizes in tokens. Default 512 and 256.
	Prompt Size `yaml:"prompt"`
	Output Size `yaml:"output"`
	// Daily makes rates rise and fall as a sine.
	Daily Daily `yaml:"daily"`
	// Sessions are conversations, each turn of which repeats all before it.
	Sessions Sessions `yaml:"sessions"`
	// Shared is a prompt that all requests begin with, in tokens. Default 0.
	Shared int `yaml:"shared"`
	// Documents are prompts' beginnings that some requests share.
	Documents Documents `yaml:"documents"`
}

// Size is a lognormal number of tokens.
type Size struct {
	// Mean is the mean, at least 1.
	Mean float64 `yaml:"mean"`
	// CV is the coefficient of variation. Default 0.5.
	CV float64 `yaml:"cv"`
}

// Daily is a rate's rise and fall.
type Daily struct {
	// Period is from peak to peak. Default 24h.
	Period config.Duration `yaml:"period"`
	// Amplitude is of the rate, 0 to 1. Default 0.
	Amplitude float64 `yaml:"amplitude"`
	// Phase is by how much the peak comes later. Default 0s.
	Phase config.Duration `yaml:"phase"`
}

// Sessions are conversations.
type Sessions struct {
	// Turns is the mean number of requests in one, geometrically distributed. Default 1:
	// requests have nothing to do with one another.
	Turns float64 `yaml:"turns"`
	// Think is the mean time from an answer to the next turn. Default 10s.
	Think config.Duration `yaml:"think"`
}

// Documents are beginnings that requests share, some more than others: the n-th is
// as popular as 1/n.
type Documents struct {
	// Count is how many there are. Default 0.
	Count int `yaml:"count"`
	// Tokens is the mean length. Default 2000.
	Tokens float64 `yaml:"tokens"`
	// Part is the fraction of requests that begin with one, 0 to 1. Default 1.
	Part float64 `yaml:"part"`
}

// Hardware is what engines are made of.
type Hardware struct {
	// Engine names engines and may hold *. Required.
	Engine string `yaml:"engine"`
	// Kind is a model on a machine, like 8b-h100. Required.
	Kind string `yaml:"kind"`
	// Slots bounds the requests in a batch. Default the kind's.
	Slots int `yaml:"slots"`
}

// Clients is what clients do.
type Clients struct {
	// Timeout is after how long a client leaves that has no whole answer. Default 0s:
	// never.
	Timeout config.Duration `yaml:"timeout"`
	// Retries is how often a client sends a refused or failed request again, a second
	// later and each time twice that. Default 0.
	Retries int `yaml:"retries"`
}

// Signals is how readings reach the clusters.
type Signals struct {
	// Interval is between two readings of an engine. Default 1s.
	Interval config.Duration `yaml:"interval"`
	// Delay is how late they are beyond the network. Default 0s.
	Delay config.Duration `yaml:"delay"`
	// Loss is the part of them that is lost, 0 to 1. Default 0.
	Loss float64 `yaml:"loss"`
}

// Network is how distances vary.
type Network struct {
	// Jitter is the coefficient of variation of each way, 0 to 1. Default 0.
	Jitter float64 `yaml:"jitter"`
}

// Event is something that happens. What it does names one of its keys.
type Event struct {
	// At is when, and For how long. For's default: to the end.
	At  config.Duration `yaml:"at"`
	For config.Duration `yaml:"for"`
	// Engine, Region and Cluster say to whom, and may hold *.
	Engine  string `yaml:"engine"`
	Region  string `yaml:"region"`
	Cluster string `yaml:"cluster"`
	// Do is what happens to engines: down, hang, slow or drain.
	Do string `yaml:"do"`
	// Factor is how many times slow engines' steps take, or a cluster's demand is.
	Factor float64 `yaml:"factor"`
	// Control takes the control plane away: down.
	Control string `yaml:"control"`
}

// LoadScenario reads a scenario; name stands in its errors. open reads the traces that
// it names. An error in the scenario is a config.Problems.
func LoadScenario(name string, data []byte, open func(name string) ([]byte, error)) (*Scenario, error) {
	s := &Scenario{}
	c, places, err := config.Within(name, data, "fleet", s)
	if err != nil {
		return nil, err
	}
	switch {
	case (c == nil) == (s.Generate == ""):
		places.Fail("fleet", "want a configuration with clusters, engines and demand, or generate in its place")
		return nil, places.Err()
	case c == nil:
		if c, err = generate(s.Generate); err != nil {
			places.Fail("generate", "%v", err)
			return nil, places.Err()
		}
	}
	s.Config = c
	s.setDefaults(places)
	s.validate(places)
	if err := places.Err(); err != nil {
		return nil, err
	}
	for i := range s.Traces {
		if err := s.Traces[i].read(open); err != nil {
			return nil, err
		}
	}
	s.setProfiles()
	return s, nil
}

// generate draws a fleet and reads it as a file would be.
func generate(text string) (*config.Config, error) {
	spec, err := fleetgen.Parse(text)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := fleetgen.Write(&b, spec.View()); err != nil {
		return nil, err
	}
	return config.Parse(text, b.Bytes())
}

// Utilise scales all demand so that it is that part of what the engines may take, by
// their profiles' caps.
func (s *Scenario) Utilise(part float64) {
	demand, capacity := 0.0, 0.0
	for _, d := range s.Config.Demand {
		demand += d.Rate
	}
	for _, e := range s.Config.Engines {
		capacity += latency.New(e.Fleet().Profile).Capacity()
	}
	for i := range s.Config.Demand {
		s.Config.Demand[i].Rate *= part * capacity / demand
	}
}

// Shorten runs less of it: the warm-up stays the same part, events beyond the end do
// not happen.
func (s *Scenario) Shorten(d time.Duration) {
	s.Warmup = config.Duration(float64(d) * float64(s.Warmup) / float64(s.Duration))
	s.Duration = config.Duration(d)
}

func setDefault[T comparable](x *T, value T) {
	var zero T
	if *x == zero {
		*x = value
	}
}

func (s *Scenario) setDefaults(p *config.Places) {
	setDefault(&s.Duration, config.Duration(10*time.Minute))
	if !p.Has("warmup") {
		s.Warmup = s.Duration / 10
	}
	setDefault(&s.SLO, config.Duration(2*time.Second))
	setDefault(&s.Signals.Interval, config.Duration(time.Second))
	if len(s.Policies) == 0 {
		s.Policies = []string{"optimal", "least-request"}
	}
	s.Load = append(s.Load, Load{}) // for what no entry fits
	for i := range s.Load {
		l := &s.Load[i]
		setDefault(&l.Cluster, "*")
		setDefault(&l.Model, "*")
		setDefault(&l.Arrivals, "poisson")
		setDefault(&l.CV, 2)
		setDefault(&l.Prompt.Mean, 512)
		setDefault(&l.Output.Mean, 256)
		for _, x := range []*Size{&l.Prompt, &l.Output} {
			setDefault(&x.CV, 0.5)
		}
		setDefault(&l.Daily.Period, config.Duration(24*time.Hour))
		setDefault(&l.Sessions.Turns, 1)
		setDefault(&l.Sessions.Think, config.Duration(10*time.Second))
		setDefault(&l.Documents.Tokens, 2000)
		if !p.Has(fmt.Sprintf("load[%d].documents.part", i)) {
			l.Documents.Part = 1
		}
	}
}

func (s *Scenario) validate(p *config.Places) {
	in := func(path string, x, low, high float64) {
		if !(x >= low && x <= high) {
			p.Fail(path, "%v is not between %v and %v", x, low, high)
		}
	}
	if s.About == "" {
		p.Fail("about", "missing: a sentence on what the scenario shows")
	}
	if s.Warmup >= s.Duration {
		p.Fail("warmup", "%v leaves nothing of the duration, %v", time.Duration(s.Warmup), time.Duration(s.Duration))
	}
	for i, l := range s.Load {
		at := fmt.Sprintf("load[%d]", i)
		if l.Arrivals != "poisson" && l.Arrivals != "gamma" && l.Arrivals != "weibull" {
			p.Fail(at+".arrivals", "unknown law %q: want poisson, gamma or weibull", l.Arrivals)
		}
		in(at+".cv", l.CV, 0.01, 100)
		in(at+".prompt.mean", l.Prompt.Mean, 1, 1e7)
		in(at+".prompt.cv", l.Prompt.CV, 0, 10)
		in(at+".output.mean", l.Output.Mean, 1, 1e6)
		in(at+".output.cv", l.Output.CV, 0, 10)
		in(at+".daily.amplitude", l.Daily.Amplitude, 0, 1)
		in(at+".sessions.turns", l.Sessions.Turns, 1, 1e4)
		in(at+".shared", float64(l.Shared), 0, 1e6)
		in(at+".documents.count", float64(l.Documents.Count), 0, 1e6)
		in(at+".documents.tokens", l.Documents.Tokens, 1, 1e6)
		in(at+".documents.part", l.Documents.Part, 0, 1)
	}
	var models []string
	for _, e := range s.Config.Engines {
		models = append(models, e.Models...)
	}
	slices.Sort(models)
	for i := range s.Traces {
		s.Traces[i].validate(p, fmt.Sprintf("traces[%d]", i), slices.Compact(models))
	}
	for i, h := range s.Hardware {
		at := fmt.Sprintf("hardware[%d]", i)
		if h.Engine == "" {
			p.Fail(at+".engine", "missing: names of engines, like gpu-*")
		}
		if _, ok := enginemodel.Hardware(h.Kind); !ok {
			p.Fail(at+".kind", "unknown kind %q: known are %s", h.Kind, strings.Join(enginemodel.HardwareNames(), ", "))
		}
		in(at+".slots", float64(h.Slots), 0, 1e5)
	}
	in("clients.retries", float64(s.Clients.Retries), 0, 100)
	in("signals.loss", s.Signals.Loss, 0, 1)
	in("network.jitter", s.Network.Jitter, 0, 1)
	for i := range s.Events {
		s.Events[i].validate(p, fmt.Sprintf("events[%d]", i), s)
	}
	for i, text := range s.Expect {
		if _, err := parseExpect(text); err != nil {
			p.Fail(fmt.Sprintf("expect[%d]", i), "%v", err)
		}
	}
}

func (e *Event) validate(p *config.Places, at string, s *Scenario) {
	if e.At >= s.Duration {
		p.Fail(at+".at", "%v is after the end, %v", time.Duration(e.At), time.Duration(s.Duration))
	}
	engines := e.Engine != "" || e.Region != ""
	switch {
	case e.Control != "":
		if e.Control != "down" {
			p.Fail(at+".control", "unknown %q: want down", e.Control)
		}
	case engines:
		switch e.Do {
		case "down", "hang", "drain":
		case "slow":
			if !(e.Factor > 0 && e.Factor <= 1e6) {
				p.Fail(at+".factor", "how many times its steps take: %v is not above 0", e.Factor)
			}
		default:
			p.Fail(at+".do", "unknown %q: want down, hang, slow or drain", e.Do)
		}
		if len(s.enginesOf(e)) == 0 {
			p.Fail(at, "no engine is meant")
		}
	case e.Cluster != "":
		if !(e.Factor >= 0 && e.Factor <= 1e3) || !p.Has(at+".factor") {
			p.Fail(at+".factor", "how many times the demand: want a number of at least 0")
		}
	default:
		p.Fail(at, "nothing happens: want engine or region with do, cluster with factor, or control")
	}
}

// matches says whether a name fits a pattern that may hold *.
func matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return err == nil && ok
}

// enginesOf lists the engines that an event is about.
func (s *Scenario) enginesOf(e *Event) []int {
	var out []int
	for i, engine := range s.Config.Engines {
		if (e.Engine == "" || matches(e.Engine, engine.Name)) && (e.Region == "" || matches(e.Region, engine.Region)) {
			out = append(out, i)
		}
	}
	return out
}

// loadOf is the entry that counts for a (cluster, model).
func (s *Scenario) loadOf(cluster, model string) *Load {
	for i := range s.Load {
		if l := &s.Load[i]; matches(l.Cluster, cluster) && matches(l.Model, model) {
			return l
		}
	}
	return &s.Load[len(s.Load)-1]
}

// draw is a lognormal number of tokens, at least 1.
func (z Size) draw(normal float64) int {
	s2 := math.Log(1 + z.CV*z.CV)
	return max(1, int(math.Round(z.Mean*math.Exp(math.Sqrt(s2)*normal-s2/2))))
}
