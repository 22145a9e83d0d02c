package sim

import (
	"math/rand/v2"
	"time"

	"github.com/wardrop-lb/wardrop/enginemodel"
	"github.com/wardrop-lb/wardrop/fleet"
)

// Request is one request on its way through the simulated fleet. Times are since
// the run's start, as the request's cluster sees them.
type Request struct {
	ID       uint64
	Cluster  int // index into Fleet.Clusters
	Model    int // index into Fleet.Models
	Priority fleet.Priority
	Session  uint64              // of its conversation; 0: it has none
	Prompt   int                 // tokens
	Output   int                 // tokens that will be generated; no router may look at it before Done
	Prefix   []enginemodel.Block // of the prompt, from its beginning; shared, not to be modified

	Arrived    time.Duration
	Engine     int // of the attempt under way, or of the last; -1 before the first
	Sent       time.Duration
	Attempts   int
	FirstToken time.Duration // 0 until it is there
	Finished   time.Duration // 0 until it is done
	Cached     int           // prompt tokens that the engine had in its cache; set with FirstToken

	State any // the router's own, from Route until Done

	source  int32
	slot    int32  // while placed: in world.inside
	placed  bool   // it is in an engine
	attempt uint32 // which attempt news must be of
	tries   uint8  // how often the client has come again
}

// Outcome is how an attempt ended.
type Outcome uint8

// The outcomes.
const (
	Answered    Outcome = iota // all of the output came
	Failed                     // the engine broke off, or refused
	Unreachable                // no connection could be made: nothing was sent
	Cancelled                  // the client left, or its time was up
)

// Engine is what everybody knows of an engine.
type Engine struct {
	Name    string
	Region  string
	Models  []int         // indices into Fleet.Models
	Profile fleet.Profile // its capacity, as an operator would have measured it
	Slots   int           // requests that fit in its batch
	Tokens  int           // tokens that its KV cache holds
	Prefill float64       // seconds that a prompt token takes
}

// Fleet is what does not change in a run. Serving lists each model's engines,
// ascending.
type Fleet struct {
	Clusters []fleet.Cluster
	Models   []string
	Engines  []Engine
	Serving  [][]int
	Distance [][]float64 // seconds of one round trip, by cluster and engine
}

// Reading is what an engine said of itself at a time.
type Reading struct {
	At      time.Duration
	Running int
	Waiting int
	KVUsage float64
	Tokens  uint64 // computed and generated since it started

	Incarnation uint64 // another one after a restart
}

// Env is what a router may know and use. Each router has one of its own, with a
// random stream of its own.
type Env interface {
	// Now is the time since the run's start.
	Now() time.Duration
	// Fleet does not change.
	Fleet() *Fleet
	// Random is the router's stream.
	Random() *rand.Rand
	// Reading is the newest reading of an engine that has reached the cluster, as
	// the scenario delays and loses them; false when there is none.
	Reading(cluster, engine int) (Reading, bool)
	// Up says whether a connection from the cluster to the engine could be made when
	// last tried.
	Up(cluster, engine int) bool
	// Probe asks an engine for a reading, which arrives a round trip later, or never.
	Probe(cluster, engine int, answer func(Reading))
	// Drained says whether the operator wants nothing new sent to an engine.
	Drained(engine int) bool
	// Abort gives up an attempt that has no first token yet: Done follows, and Route.
	Abort(r *Request)
	// After calls back after a time.
	After(d time.Duration, call func())
}

// Router decides for all clusters of a fleet; one that decides for each alone keeps
// a state for each. It is called by one goroutine.
type Router interface {
	// Route names the engine for a request that has just arrived at its cluster, or
	// that a client sends again; ok false refuses it. It is called again, with
	// r.Attempts grown, after an attempt that failed before its first token: then
	// ok false gives up.
	Route(r *Request) (engine int, ok bool)
	// FirstToken tells that the first token has reached the cluster.
	FirstToken(r *Request)
	// Done tells how an attempt ended; every Route that named an engine is followed by
	// one Done.
	Done(r *Request, o Outcome)
}

// Maker makes a router for a run.
type Maker func(Env) Router
