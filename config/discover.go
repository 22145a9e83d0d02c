package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// Source is where engines are found that nobody configured. It says which one of
// file, dns, http and kubernetes it is, and what holds for the engines that do not
// say it themselves.
type Source struct {
	// Name is unique among sources. Default: file, dns, http or kubernetes.
	Name string `yaml:"name"`
	// File is a YAML or JSON file with a list `engines`, as in this one. It is read
	// again when it changes.
	File string `yaml:"file"`
	// DNS asks for the addresses of a name.
	DNS DNSSource `yaml:"dns"`
	// HTTP asks a server for a list of targets, in the form of Prometheus' http_sd.
	HTTP HTTPSource `yaml:"http"`
	// Kubernetes watches EndpointSlices.
	Kubernetes KubernetesSource `yaml:"kubernetes"`
	// Interval is the time between two refreshes, at least 1s. Default 10s, of a file 1s.
	Interval Duration `yaml:"interval"`
	// Scheme is "http" or "https": how addresses without one are reached. Default http.
	Scheme string `yaml:"scheme"`

	// Region is where engines lie that say nothing of it.
	Region string `yaml:"region"`
	// Kind says how their signals are read. Default: that of configured engines.
	Kind string `yaml:"kind"`
	// Metrics is where their metrics pages are: a path, or a URL. Default: where engines
	// of the kind have them.
	Metrics string `yaml:"metrics"`
	// Signals are what metrics of kind "generic" are called, see Engine.
	Signals map[string][]string `yaml:"signals"`
	// Models are the models they serve. Default: what they say at /v1/models.
	Models []string `yaml:"models"`
	// Profile is their capacity.
	Profile Profile `yaml:"profile"`
	// Hardware is what they run on, see Engine. Default "".
	Hardware string `yaml:"hardware"`
	// Weight is their weight under the static policy. Default: their capacity.
	Weight float64 `yaml:"weight"`
	// Protocol is "http1" or "h2c". Default http1.
	Protocol string `yaml:"protocol"`
	// Drain takes all of them out of all plans. Default false.
	Drain bool `yaml:"drain"`
	// Offset is network time beyond the region's distance. Default 0.
	Offset Duration `yaml:"offset"`
}

// DNSSource is a name whose addresses are engines.
type DNSSource struct {
	// Name is what is asked for. Required.
	Name string `yaml:"name"`
	// Records is "a", "aaaa" or "srv". Default a.
	Records string `yaml:"records"`
	// Port is the engines' port, 1 to 65535. Required but of srv, whose records say it.
	Port int `yaml:"port"`
	// Resolver is the address of a DNS server. Default: the system's.
	Resolver string `yaml:"resolver"`
}

// HTTPSource is a server that lists engines.
type HTTPSource struct {
	// URL is what is asked for. Required.
	URL string `yaml:"url"`
}

// KubernetesSource is the EndpointSlices of one or more services.
type KubernetesSource struct {
	// Selector is a label selector of EndpointSlices. Required.
	Selector string `yaml:"selector"`
	// Namespace is where they are. Default: the one of the control plane's own pod,
	// or of the kubeconfig.
	Namespace string `yaml:"namespace"`
	// Port is the name or number of the engines' port. Required where slices have several.
	Port string `yaml:"port"`
	// Kubeconfig is a file that says how to reach the cluster. Default: the service
	// account of the control plane's own pod.
	Kubeconfig string `yaml:"kubeconfig"`
	// Zones are the regions that zones lie in. Default: none, and a zone of an engine
	// for which nothing says a region is its region.
	Zones map[string]string `yaml:"zones"`
}

// Of is which kind of source it is: file, dns, http or kubernetes.
func (s Source) Of() string {
	switch {
	case s.File != "":
		return "file"
	case s.DNS != DNSSource{}:
		return "dns"
	case s.HTTP != HTTPSource{}:
		return "http"
	}
	return "kubernetes"
}

// Fill gives a found engine what its source says of engines that do not say it
// themselves. What neither says is left to WithEngines.
func (s Source) Fill(e Engine) Engine {
	set(&e.Region, s.Region)
	if set(&e.Kind, s.Kind); e.Kind == s.Kind { // else where and what its metrics are is not for it
		set(&e.Metrics, s.Metrics)
		if len(e.Signals) == 0 {
			e.Signals = s.Signals
		}
	}
	set(&e.Protocol, s.Protocol)
	set(&e.Weight, s.Weight)
	set(&e.Hardware, s.Hardware)
	set(&e.Offset, s.Offset)
	if len(e.Models) == 0 {
		e.Models = s.Models
	}
	e.Drain = e.Drain || s.Drain
	p, d := &e.Profile, s.Profile
	set(&p.T0, d.T0)
	set(&p.UMax, d.UMax)
	set(&p.Batch, d.Batch)
	set(&p.Kappa, d.Kappa)
	set(&p.FirstToken, d.FirstToken)
	set(&p.Spread, d.Spread)
	set(&p.Tokens, d.Tokens)
	set(&p.Slots, d.Slots)
	return e
}

// WithEngines gives a configuration with these engines in place of its own, with
// their defaults; c stays as it is.
func (c *Config) WithEngines(engines []Engine) *Config {
	n := *c
	n.Engines = slices.Clone(engines)
	for i := range n.Engines {
		n.Engines[i].setDefaults()
	}
	return &n
}

// CheckEngine says what is wrong with an engine that was found: what would be a
// mistake in a file, or a region that some cluster knows no distance to. nil when
// nothing is. An engine without models is right: they are read from it.
func (c *Config) CheckEngine(e Engine) error {
	k := &checker{c: &Config{}}
	k.required("name", e.Name)
	if trouble := nameTrouble(e.Name); trouble != "" {
		k.fail("name", "%s", trouble)
	}
	k.required("url", e.URL)
	k.engineURL("url", e.URL, map[string]bool{})
	k.engine("", e)
	for _, cl := range c.Clusters {
		if _, ok := cl.Distances[e.Region]; !ok {
			k.fail("region", "cluster %q has no distance to %q", cl.Name, e.Region)
			break
		}
	}
	if len(k.problems) == 0 {
		return nil
	}
	var words []string
	for _, p := range k.problems {
		words = append(words, strings.TrimPrefix(p.Message, "."))
	}
	return fmt.Errorf("%s", strings.Join(words, "; "))
}

// ParseEngines reads the file of a source: a list under the key `engines`, of which
// each must have a url, filled by Fill. name stands in errors, which are Problems.
// Names and regions may be left out.
func (s Source) ParseEngines(name string, data []byte) ([]Engine, error) {
	var list struct {
		Engines []Engine `yaml:"engines"`
	}
	positions := map[string]position{}
	d := decoder{file: name, positions: positions}
	d.decode(data, &list)
	if len(d.problems) == 0 {
		k := &checker{c: &Config{file: name, positions: positions}}
		if !k.c.has("engines") {
			k.fail("engines", "missing: want a list, which may be empty: []")
		}
		names, urls := map[string]bool{}, map[string]bool{}
		for i, e := range list.Engines {
			path := fmt.Sprintf("engines[%d]", i)
			if e.Name != "" {
				k.name(path+".name", e.Name, names)
			}
			k.required(path+".url", e.URL)
			k.engineURL(path+".url", e.URL, urls)
			list.Engines[i] = s.Fill(e)
			k.engine(path, list.Engines[i])
		}
		d.problems = k.problems
	}
	if len(d.problems) > 0 {
		return nil, d.problems.sorted()
	}
	return list.Engines, nil
}

// MaxName is the longest name, in bytes: names are labels of metrics.
const MaxName = 256

// CheckModel says what is wrong with the name of a model; nil when nothing is.
func CheckModel(name string) error {
	if name == "" {
		return fmt.Errorf("a name is missing")
	}
	if trouble := nameTrouble(name); trouble != "" {
		return fmt.Errorf("%s", trouble)
	}
	return nil
}

// nameTrouble is what is wrong with a name that is there, "" when nothing is.
func nameTrouble(name string) string {
	switch {
	case len(name) > MaxName:
		return fmt.Sprintf("%q... is longer than %d bytes", name[:32], MaxName)
	case !utf8.ValidString(name):
		return fmt.Sprintf("%q is not UTF-8", name)
	case strings.ContainsFunc(name, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }):
		return fmt.Sprintf("%q holds white space or control characters", name)
	}
	return ""
}

// discovers says whether engines or their models are found rather than configured:
// what the file names may then be there though the file does not say so.
func (c *Config) discovers() bool {
	return len(c.Discover) > 0 || slices.ContainsFunc(c.Engines, func(e Engine) bool { return len(e.Models) == 0 })
}

// Label selectors as Kubernetes' API takes them. They are compiled by who needs them: it takes
// longer than all else that a start does here.
var (
	labelName  = `[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?`
	dnsLabel   = `[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?`
	labelKey   = `(?:` + dnsLabel + `(?:\.` + dnsLabel + `)*/)?` + labelName
	labelSet   = `\(\s*` + labelName + `(?:\s*,\s*` + labelName + `)*\s*\)`
	labelTerm  = `\s*(?:!\s*` + labelKey + `|` + labelKey + `(?:\s*(?:==?|!=)\s*(?:` + labelName + `)?|\s+(?:in|notin)\s*` + labelSet + `)?)\s*`
	selectorRE = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^` + labelTerm + `(?:,` + labelTerm + `)*$`) })
	labelRE    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^` + dnsLabel + `$`) })
)

// leastInterval keeps a slip of the unit from asking a server without end.
const leastInterval = Duration(time.Second)

func (k *checker) discover() {
	if k.c.has("signals.models_interval") && k.c.Signals.ModelsInterval < leastInterval {
		k.fail("signals.models_interval", "want at least %v", time.Duration(leastInterval))
	}
	names := map[string]bool{}
	for i, s := range k.c.Discover {
		path := fmt.Sprintf("discover[%d]", i)
		if !k.oneSource(path) {
			continue
		}
		name := s.Name
		set(&name, s.Of())
		if names[name] && s.Name == "" {
			k.fail(path, "another source is called %q: give this one a name", name)
		} else {
			k.name(path+".name", name, names)
		}
		names[name] = true
		if k.c.has(path+".interval") && s.Interval < leastInterval {
			k.fail(path+".interval", "want at least %v", time.Duration(leastInterval))
		}
		k.oneOf(path+".scheme", s.Scheme, "http", "https")
		k.engine(path, Engine{Kind: s.Kind, Metrics: s.Metrics, Signals: s.Signals, Protocol: s.Protocol, Models: s.Models, Profile: s.Profile, Weight: s.Weight})
		switch s.Of() {
		case "dns":
			k.dns(path+".dns", s.DNS)
		case "http":
			k.sourceURL(path+".http.url", s.HTTP.URL)
		case "kubernetes":
			k.kubernetes(path+".kubernetes", s.Kubernetes)
		}
	}
}

// oneSource checks that a source is of one kind.
func (k *checker) oneSource(path string) bool {
	var of []string
	for _, key := range []string{"file", "dns", "http", "kubernetes"} {
		if k.c.has(path + "." + key) {
			of = append(of, key)
		}
	}
	switch len(of) {
	case 0:
		k.fail(path, "no source: want one of file, dns, http and kubernetes")
	case 1:
		if of[0] == "file" {
			k.required(path+".file", k.c.Discover[indexOf(path)].File)
		}
		return true
	default:
		k.fail(path+"."+of[1], "a source is one of file, dns, http and kubernetes, and this one is %s already", of[0])
	}
	return false
}

func indexOf(path string) (i int) {
	_, _ = fmt.Sscanf(path, "discover[%d]", &i)
	return i
}

func (k *checker) dns(path string, s DNSSource) {
	k.required(path+".name", s.Name)
	if len(s.Name) > 253 || strings.ContainsAny(s.Name, ":/ ") || nameTrouble(s.Name) != "" {
		k.fail(path+".name", "%q is not a name to ask DNS for: write it like engines.example.com", s.Name)
	} else if _, err := netip.ParseAddr(s.Name); err == nil {
		k.fail(path+".name", "%q is an address: there is nothing to ask DNS for, write it in engines", s.Name)
	}
	k.oneOf(path+".records", s.Records, "a", "aaaa", "srv")
	switch {
	case s.Records == "srv" && k.c.has(path+".port"):
		k.fail(path+".port", "SRV records say the port themselves")
	case s.Records != "srv" && (s.Port < 1 || s.Port > 65535):
		k.fail(path+".port", "want the engines' port, 1 to 65535")
	}
	k.address(path+".resolver", s.Resolver)
}

func (k *checker) sourceURL(path, value string) {
	k.required(path, value)
	if u, err := url.Parse(value); value != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		k.fail(path, "%q is not a URL: write http://host:port/path", value)
	}
}

func (k *checker) kubernetes(path string, s KubernetesSource) {
	k.required(path+".selector", s.Selector)
	if s.Selector != "" && !selectorRE().MatchString(s.Selector) {
		k.fail(path+".selector", "%q is not a label selector: write it like kubernetes.io/service-name=vllm", s.Selector)
	}
	if s.Namespace != "" && !labelRE().MatchString(s.Namespace) {
		k.fail(path+".namespace", "%q is not the name of a namespace", s.Namespace)
	}
	for zone, region := range s.Zones {
		k.required(path+".zones."+zone, region)
	}
}
