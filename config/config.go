package config

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wardrop-lb/wardrop/fleet"
)

// Config is the whole file.
type Config struct {
	// Control is the control plane.
	Control Control `yaml:"control"`
	// Policy makes the plans.
	Policy Policy `yaml:"policy"`
	// Proxy holds what all data planes share.
	Proxy Proxy `yaml:"proxy"`
	// Signals says how engines are read.
	Signals Signals `yaml:"signals"`
	// Clusters are where requests arrive; each is served by one or more data planes.
	Clusters []Cluster `yaml:"clusters"`
	// Regions say where regions are, for distances that nobody has measured or written
	// down.
	Regions []Region `yaml:"regions"`
	// Engines are the model servers.
	Engines []Engine `yaml:"engines"`
	// Discover are the sources of engines that are found rather than configured.
	Discover []Source `yaml:"discover"`
	// Models say what the requests of a model ask of an engine, where they are not all
	// alike.
	Models []Model `yaml:"models"`
	// Aliases are names of models that stand for others.
	Aliases []Alias `yaml:"aliases"`
	// Demand is the expected demand: used until a cluster's data planes have
	// measured it, by `wardrop solve`, and as the load of `wardrop up --load`.
	Demand []Demand `yaml:"demand"`

	positions map[string]position
	file      string
	data      []byte // what was read
}

// Policies are the names of those that may make the plans.
var Policies = []string{"optimal", "static", "proportional"}

// Policy configures how plans are made.
type Policy struct {
	// Name is "optimal", "static" or "proportional". Default optimal.
	Name string `yaml:"name"`
	// Tick is the time between two plans. Default 2s.
	Tick Duration `yaml:"tick"`
	// Churn is the price of moving a request to another engine. Default 70ms.
	Churn Duration `yaml:"churn"`
	// Gain is the proportional policy's: by which part of a score's relative error a
	// weight is nudged each tick, 0 to 10. Default 0.1.
	Gain float64 `yaml:"gain"`
	// Smoothing is the proportional policy's: the weight of a score's past, 0 up to
	// but not 1. Default 0.
	Smoothing float64 `yaml:"smoothing"`
	// Delay is the proportional policy's: ticks by which scores come late, 0 to 100.
	// Default 0.
	Delay int `yaml:"delay"`
	// Shed is what refusing a request costs beyond the dearest admitted one, per
	// priority; it orders who is shed when demand exceeds capacity.
	Shed ShedValues `yaml:"shed"`
}

// ShedValues is what refusing one request of each priority costs.
type ShedValues struct {
	// Critical defaults to 200s.
	Critical Duration `yaml:"critical"`
	// Standard defaults to 20s.
	Standard Duration `yaml:"standard"`
	// Batch defaults to 2s.
	Batch Duration `yaml:"batch"`
}

// Proxy configures the request path.
type Proxy struct {
	// MaxBody is the largest request body; beyond it the answer is 413. Default 16MiB.
	MaxBody Size `yaml:"max_body"`
	// Bound is how far an engine's work in flight may exceed its share before its
	// requests go to the next engine of their order, 0.05 to 10. Default 0.5.
	Bound float64 `yaml:"bound"`
	// RetryBudget is the most retries per admitted request, 0 to 1. Default 0.2.
	RetryBudget float64 `yaml:"retry_budget"`
	// UploadTimeout is how long a request's body may go on without bringing 16 KiB or
	// its end; 0 has no bound. Default 10s.
	UploadTimeout Duration `yaml:"upload_timeout"`
	// FirstByteTimeout bounds the wait for an engine's first byte; 0 waits as
	// long as the client does. Default 0.
	FirstByteTimeout Duration `yaml:"first_byte_timeout"`
	// IdleTimeout bounds the wait for the next byte of an answer, and for the client
	// to take it; 0 has no bound. Default 0.
	IdleTimeout Duration `yaml:"idle_timeout"`
	// TotalTimeout bounds a request as a whole; 0 has no bound. Default 0.
	TotalTimeout Duration `yaml:"total_timeout"`
	// StallAfter is how long an engine with work in flight may give no sign of life
	// before its requests go elsewhere; it is longer for slow models and long
	// prompts. 0 never gives up. Default 10s.
	StallAfter Duration `yaml:"stall_after"`
	// HedgeAfter sends a second attempt to another engine when the first has given
	// no byte for so long; it spends retry budget. 0 never hedges. Default 0.
	HedgeAfter Duration `yaml:"hedge_after"`
	// QueueTime is how long a request may wait when every engine of its model is
	// full, before it is refused. Default 500ms.
	QueueTime Duration `yaml:"queue_time"`
	// QueueBytes bounds the bodies that wait. Default 64MiB.
	QueueBytes Size `yaml:"queue_bytes"`
	// MaxConnections bounds the connections to one engine over HTTP/1.1; 0 has no
	// bound. Default 0.
	MaxConnections int `yaml:"max_connections"`
	// EngineTLS says how engines reached by https are recognised.
	EngineTLS EngineTLS `yaml:"engine_tls"`
	// Paths are further paths to pass through by POST: their JSON bodies name a
	// model, like those of the paths that are known.
	Paths []string `yaml:"paths"`
	// Drain is how long requests in flight may finish after SIGTERM. Default 30s.
	Drain Duration `yaml:"drain"`
	// Data is the directory of the saved snapshots. Default wardrop-data/proxy.
	Data string `yaml:"data"`
	// RecordRate is how many decisions a second are recorded, 0 to 100,000, besides those of
	// errors, retries and slow requests, which always are. Default 100.
	RecordRate float64 `yaml:"record_rate"`
	// AccessLog is a file that gets a line of JSON for every request, "-" for the standard
	// output. Default none.
	AccessLog string `yaml:"access_log"`
	// Tracing says where spans of requests go. Default nowhere.
	Tracing Tracing `yaml:"tracing"`
	// Control holds the gRPC addresses of all members of the control plane, or of
	// relays. Default: those of control.
	Control []string `yaml:"control"`
}

// Tracing says where spans of requests go, and of how many. What it leaves open, such as headers and
// certificates, is taken from OpenTelemetry's own environment variables.
type Tracing struct {
	// Endpoint is the URL of a collector that takes OTLP over gRPC, http:// for one without TLS.
	Endpoint string `yaml:"endpoint"`
	// Sample is the part of the requests without a trace of their own that get one, 0 to 1; those
	// with one are sampled as that says. Default 0.01.
	Sample float64 `yaml:"sample"`
}

// EngineTLS says how engines reached by https are recognised, and how they
// recognise data planes. Its files are PEM.
type EngineTLS struct {
	// CAFile holds the certificates that sign engines'; the system's are then not
	// trusted. Default: the system's.
	CAFile string `yaml:"ca_file"`
	// CertFile and KeyFile are the certificate that data planes show to engines and
	// its key; each new connection shows what they hold then. Default none.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	// ServerName is the name that engines' certificates must be made out to.
	// Default: the host of the engine's URL.
	ServerName string `yaml:"server_name"`
}

// Signals configures the signal path.
type Signals struct {
	// Interval is the time between two reads of an engine. Default 1s.
	Interval Duration `yaml:"interval"`
	// Timeout bounds one read. Default 2s.
	Timeout Duration `yaml:"timeout"`
	// Report is the time between two reports to the control plane. Default 500ms.
	Report Duration `yaml:"report"`
	// ModelsInterval is the time between two looks of the control plane at the models
	// of an engine for which none are configured, at least 1s. Default 15s.
	ModelsInterval Duration `yaml:"models_interval"`
}

// Cluster is a CPU cluster.
type Cluster struct {
	// Name is unique among clusters. Required.
	Name string `yaml:"name"`
	// Region is where the cluster lies. Required.
	Region string `yaml:"region"`
	// Listen is the HTTP address that serves OpenAI requests. Default 127.0.0.1:0 (any free port).
	Listen string `yaml:"listen"`
	// Admin is the HTTP address of the admin API and /metrics. Default 127.0.0.1:0.
	Admin string `yaml:"admin"`
	// Distances is the expected network round trip to each region that holds
	// engines; measured ones replace it. Required for each such region, unless both
	// regions have coordinates.
	Distances map[string]Duration `yaml:"distances"`
	// EngineDistances is the same to single engines, where it is not their region's.
	EngineDistances map[string]Duration `yaml:"engine_distances"`
}

// Model is what the requests of a model ask of an engine on average.
type Model struct {
	// Name names a model. Required.
	Name string `yaml:"name"`
	// Work is how much a request counts beside the requests that the engines' profiles
	// speak of, above 0. Default 1.
	Work float64 `yaml:"work"`
	// TokenSeconds is what it holds of an engine's tokens: KV-cache tokens times the
	// seconds they stay. Default 0.
	TokenSeconds float64 `yaml:"token_seconds"`
	// SlotSeconds is what it holds of an engine's slots: the seconds in one. Default 0.
	SlotSeconds float64 `yaml:"slot_seconds"`
	// Worth is what its time is worth.
	Worth Worth `yaml:"worth"`
}

// Worth is what seconds of an answer are worth beside seconds of network. Default: 1
// and 1, end-to-end time.
type Worth struct {
	// FirstToken is of a second until the first token, 0 or more.
	FirstToken float64 `yaml:"first_token"`
	// Decode is of a second after it, 0 or more.
	Decode float64 `yaml:"decode"`
}

// Alias is a name that clients may ask for in place of a model's.
type Alias struct {
	// Name is what clients ask for. Required.
	Name string `yaml:"name"`
	// To says which models answer, and in which parts: {new: 0.1, old: 0.9}. A
	// session stays with one of them. Required.
	To map[string]float64 `yaml:"to"`
}

// Demand is the expected rate of one (cluster, model, priority).
type Demand struct {
	// Cluster names a cluster. Required.
	Cluster string `yaml:"cluster"`
	// Model names a model. Required.
	Model string `yaml:"model"`
	// Priority is critical, standard or batch. Default standard.
	Priority string `yaml:"priority"`
	// Rate is requests/s. Required.
	Rate float64 `yaml:"rate"`
}

// Duration is a time.Duration written as 250ms, 2s, 1m30s.
type Duration time.Duration

// Seconds gives the duration in seconds.
func (d Duration) Seconds() float64 { return time.Duration(d).Seconds() }

// MarshalText writes a duration as UnmarshalText reads it.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads a duration of at least 0.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil || v < 0 {
		return fmt.Errorf("%q is not a duration: write it like 250ms, 2s or 1m30s", b)
	}
	*d = Duration(v)
	return nil
}

// Size is a number of bytes written as 4096, 64KiB, 16MiB or 1GiB.
type Size int64

var sizeUnits = []struct {
	suffix string
	factor int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"", 1}}

// UnmarshalText reads a size.
func (s *Size) UnmarshalText(b []byte) error {
	for _, u := range sizeUnits {
		digits, ok := strings.CutSuffix(string(b), u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n <= 0 || n > (1<<62)/u.factor {
			break
		}
		*s = Size(n * u.factor)
		return nil
	}
	return fmt.Errorf("%q is not a size: write it like 4096, 64KiB or 16MiB", b)
}

// Load reads and validates a file. The error is a Problems when the content is
// wrong and an *fs.PathError when the file cannot be read.
func Load(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// Parse decodes and validates a configuration; name stands in its errors. The
// error is a Problems.
func Parse(name string, data []byte) (*Config, error) {
	c := &Config{file: name, data: data, positions: map[string]position{}}
	d := decoder{file: name, positions: c.positions}
	d.decode(data, c)
	if len(d.problems) == 0 {
		d.problems = c.validate()
	}
	if len(d.problems) > 0 {
		return nil, d.problems.sorted()
	}
	c.setDefaults()
	return c, nil
}

// View gives the configured fleet as a view: the expected demand and distances. An
// engine whose models are not known is not in it: nothing can be sent there.
func (c *Config) View() *fleet.View {
	v := &fleet.View{}
	for _, cl := range c.Clusters {
		v.Clusters = append(v.Clusters, fleet.Cluster{Name: cl.Name, Region: cl.Region})
		for _, region := range slices.Sorted(maps.Keys(cl.Distances)) {
			v.Distances = append(v.Distances, fleet.Distance{Cluster: cl.Name, Region: region, Seconds: cl.Distances[region].Seconds()})
		}
		for _, e := range c.Engines {
			if d, ok := cl.EngineDistances[e.Name]; ok && len(e.Models) > 0 {
				v.Distances = append(v.Distances, fleet.Distance{Cluster: cl.Name, Region: e.Region, Engine: e.Name, Seconds: d.Seconds()})
			}
		}
	}
	for _, m := range c.Models {
		v.Models = append(v.Models, fleet.Model{
			Name: m.Name, Work: m.Work, TokenSeconds: m.TokenSeconds, SlotSeconds: m.SlotSeconds,
			FirstToken: m.Worth.FirstToken, Decode: m.Worth.Decode,
		})
	}
	for _, e := range c.Engines {
		if len(e.Models) > 0 {
			v.Engines = append(v.Engines, e.Fleet())
		}
	}
	for _, d := range c.Demand {
		p, _ := fleet.ParsePriority(d.Priority)
		v.Demands = append(v.Demands, fleet.Demand{Cluster: d.Cluster, Model: d.Model, Priority: p, Rate: d.Rate})
	}
	return v
}

// ClusterByName finds a cluster; nil when there is none.
func (c *Config) ClusterByName(name string) *Cluster {
	for i := range c.Clusters {
		if c.Clusters[i].Name == name {
			return &c.Clusters[i]
		}
	}
	return nil
}

// DataPlaneAdmins are the admin addresses of data planes that are fixed: of each cluster one at most.
func (c *Config) DataPlaneAdmins() (out []string) {
	for i := range c.Clusters {
		if a := c.Clusters[i].Admin; !strings.HasSuffix(a, ":0") {
			out = append(out, a)
		}
	}
	return out
}

func (c *Config) setDefaults() {
	c.Control.setDefaults()
	if !c.has("control.guard.fresh") {
		c.Control.Guard.Fresh = 0.5
	}
	set(&c.Policy.Name, "optimal")
	set(&c.Policy.Gain, 0.1)
	set(&c.Policy.Tick, Duration(2*time.Second))
	set(&c.Policy.Churn, Duration(70*time.Millisecond))
	set(&c.Policy.Shed.Critical, Duration(200*time.Second))
	set(&c.Policy.Shed.Standard, Duration(20*time.Second))
	set(&c.Policy.Shed.Batch, Duration(2*time.Second))
	set(&c.Proxy.MaxBody, 16<<20)
	set(&c.Proxy.Bound, 0.5)
	if !c.has("proxy.retry_budget") {
		c.Proxy.RetryBudget = 0.2
	}
	if !c.has("proxy.tracing.sample") {
		c.Proxy.Tracing.Sample = 0.01
	}
	if !c.has("proxy.record_rate") {
		c.Proxy.RecordRate = 100
	}
	if !c.has("proxy.upload_timeout") {
		c.Proxy.UploadTimeout = Duration(10 * time.Second)
	}
	if !c.has("proxy.stall_after") {
		c.Proxy.StallAfter = Duration(10 * time.Second)
	}
	if !c.has("proxy.queue_time") {
		c.Proxy.QueueTime = Duration(500 * time.Millisecond)
	}
	set(&c.Proxy.QueueBytes, 64<<20)
	set(&c.Proxy.Drain, Duration(30*time.Second))
	set(&c.Proxy.Data, "wardrop-data/proxy")
	if len(c.Proxy.Control) == 0 {
		c.Proxy.Control = c.Control.addresses()
	}
	set(&c.Signals.Interval, Duration(time.Second))
	set(&c.Signals.Timeout, Duration(2*time.Second))
	set(&c.Signals.Report, Duration(500*time.Millisecond))
	set(&c.Signals.ModelsInterval, Duration(15*time.Second))
	for i := range c.Clusters {
		set(&c.Clusters[i].Listen, "127.0.0.1:0")
		set(&c.Clusters[i].Admin, "127.0.0.1:0")
	}
	c.setGeography()
	for i := range c.Engines {
		c.Engines[i].setDefaults()
	}
	for i := range c.Discover {
		s := &c.Discover[i]
		set(&s.Name, s.Of())
		set(&s.Scheme, "http")
		switch s.Of() {
		case "dns":
			set(&s.DNS.Records, "a")
		case "file":
			set(&s.Interval, Duration(time.Second))
		}
		set(&s.Interval, Duration(10*time.Second))
	}
	for i := range c.Demand {
		set(&c.Demand[i].Priority, "standard")
	}
}

// set gives a field its default where the file left it out.
func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
