package fleet

import (
	"fmt"
	"time"
)

// Priority is the class of a request; it decides who is shed first. The zero
// value is Critical, so that a forgotten priority is never the first to go.
type Priority uint8

// The priorities, most important first.
const (
	Critical Priority = iota
	Standard
	Batch

	// NumPriorities is the number of priorities; arrays are indexed by Priority.
	NumPriorities = 3
)

var priorityNames = [NumPriorities]string{"critical", "standard", "batch"}

func (p Priority) String() string {
	if int(p) < len(priorityNames) {
		return priorityNames[p]
	}
	return fmt.Sprintf("priority(%d)", uint8(p))
}

// ParsePriority reads a priority's name, as String writes it.
func ParsePriority(s string) (Priority, error) {
	for i, n := range priorityNames {
		if n == s {
			return Priority(i), nil
		}
	}
	return 0, fmt.Errorf("unknown priority %q: want critical, standard or batch", s)
}

// MarshalText writes the priority's name.
func (p Priority) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads the priority's name.
func (p *Priority) UnmarshalText(b []byte) error {
	v, err := ParsePriority(string(b))
	if err == nil {
		*p = v
	}
	return err
}

// Cluster is a CPU cluster where requests arrive and data planes run.
type Cluster struct {
	Name   string
	Region string
}

// Engine is one model server endpoint. Penalty is seconds added to its latency
// because it misbehaves, 0 or more. Weight is used by the static policy alone.
type Engine struct {
	Name    string
	Region  string
	URL     string // base URL, without a path
	Kind    string // how its signals are read: "vllm", "auto", "none", ...
	Models  []string
	Profile Profile
	Offset  float64 // seconds of network time beyond the region's distance
	Penalty float64
	Weight  float64
	// Busy is the requests in the engine over those that fit at once, as its signals
	// last said; negative when unknown. Only the proportional policy looks at it.
	Busy float64
	// Ramp limits the load of an engine that is still cold (no KV cache, no
	// compiled graphs) to this fraction of its capacity, in (0, 1]; 0 is no limit.
	// It is waived where keeping it would refuse requests.
	Ramp float64
	// Slowdown is how many times slower than it should be the engine is just now; Profile
	// is that of the slow engine. 0 is 1, not slow.
	Slowdown float64
	// Learn says that Profile is a guess, to be replaced by what the engine turns out to
	// be, Learned that it has been, and Doubt how uncertain that still is: the relative standard
	// error of T0, from 1 down towards 0. Engines of the same Hardware and Models are
	// expected to be alike.
	Learn    bool
	Learned  bool
	Doubt    float64
	Hardware string
}

// Profile is an engine's capacity and how its latency grows with load, by the
// model of package latency.
type Profile struct {
	T0    float64 // seconds: latency of a request alone in the engine; > 0
	UMax  float64 // requests/s at which compute saturates; > 0
	Batch float64 // requests that fit at once (slots or KV cache); > 0
	Kappa float64 // the hard cap as a fraction of saturation, in (0, 0.95]

	// FirstToken is the part of T0 until the first token, in seconds: 0 to T0; 0 is
	// unknown.
	FirstToken float64
	// Spread scales the wait near saturation by how unevenly requests stay: (1+cv^2)/2
	// of the time that they hold their place, cv its coefficient of variation. It is
	// above 0, at most MaxSpread; 0 is 1, times that vary as much as their mean. Where
	// it is learned it also says how rarely such an engine is full, and is mostly
	// below 1.
	Spread float64

	// Tokens and Slots are hard limits of their own, beside Kappa: KV-cache tokens,
	// and requests, that the engine may hold on average; 0 is no limit. What a
	// request holds stands in View.Models.
	Tokens float64
	Slots  float64
}

// MaxSpread is the largest Profile.Spread: a cv above 4 is no profile of one engine.
const MaxSpread = 10

// Model says what a request of a model asks of an engine on average, and what its
// time is worth. A model that is not listed is that of the zero values.
type Model struct {
	Name string
	// Work is how much a request counts beside the requests that the engines'
	// profiles speak of: as much of their load, and as many times their latency.
	// >= 0; 0 is 1.
	Work float64
	// TokenSeconds and SlotSeconds count against the engines' limits on Tokens and
	// Slots: KV-cache tokens times the seconds they stay, and seconds in a slot; >= 0.
	TokenSeconds float64
	SlotSeconds  float64
	// FirstToken and Decode are what a second until the first token, and one after
	// it, is worth in seconds of network; >= 0. Both 0 is both 1: end-to-end time.
	FirstToken float64
	Decode     float64
}

// Load is Work, with 1 for 0.
func (m Model) Load() float64 {
	if m.Work == 0 {
		return 1
	}
	return m.Work
}

// Worth gives FirstToken and Decode, with 1 and 1 for 0 and 0.
func (m Model) Worth() (first, decode float64) {
	if m.FirstToken == 0 && m.Decode == 0 {
		return 1, 1
	}
	return m.FirstToken, m.Decode
}

// Demand is what arrives at a cluster for a model at a priority: first attempts
// only, shed ones included.
type Demand struct {
	Cluster  string
	Model    string
	Priority Priority
	Rate     float64 // requests/s, >= 0
}

// Distance is the expected network time of one round trip from a cluster to the
// engines of a region, or to one of them alone, which overrides its region's.
type Distance struct {
	Cluster string
	Region  string
	Engine  string  // the one engine of the region that is meant; empty: all of them
	Seconds float64 // >= 0
}

// View is the fleet at one instant, as the control plane knows it. The order of
// its slices carries no meaning: a policy gives the same plan for any order.
type View struct {
	Time      time.Time
	Clusters  []Cluster
	Engines   []Engine // those that may be given traffic; dead and drained ones are left out
	Demands   []Demand // at most one per (cluster, model, priority)
	Distances []Distance
	Models    []Model // those whose requests are not of the zero values
}
