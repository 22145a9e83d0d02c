package signals

import (
	"math"
	"time"
)

// Opt is a number that may be absent. The zero value is absent.
type Opt struct {
	Value float64
	Known bool
}

// Some is a number that is there. One that is not finite is absent.
func Some(v float64) Opt {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return Opt{}
	}
	return Opt{v, true}
}

// Or gives the number, or what to take in its absence.
func (o Opt) Or(absent float64) float64 {
	if o.Known {
		return o.Value
	}
	return absent
}

// Values is what one engine says of itself. Counters grow from 0 within an
// incarnation. Everything may be absent.
type Values struct {
	Running Opt // requests in the batch
	Waiting Opt // requests in the engine's queue
	KVUsage Opt // fraction of the KV cache in use, 0..1; of several ranks the fullest

	Slots    Opt // requests that fit in the batch
	KVTokens Opt // tokens that fit in the KV cache

	PromptTokens     Opt // counter, tokens
	GenerationTokens Opt // counter, tokens; some engines add a request's at its end
	Preemptions      Opt // counter
	PrefixHits       Opt // counter, prompt tokens found in the cache
	PrefixQueries    Opt // counter, prompt tokens looked up in the cache

	// Progress is a counter that grows whenever the engine does work on any
	// request. Work in flight while it stands still is a black hole.
	Progress Opt
	// Emitted is a counter that grows with every token of an answer, as it comes; absent
	// where engines count tokens when requests end. Not in counters, for it is made of them.
	Emitted Opt
}

// counters gives the values that fall only when the engine starts anew.
func (v *Values) counters() [6]Opt {
	return [...]Opt{v.PromptTokens, v.GenerationTokens, v.Preemptions, v.PrefixHits, v.PrefixQueries, v.Progress}
}

// Signal is one reading of one engine.
type Signal struct {
	Engine string
	// Incarnation changes when the engine starts anew and its counters begin
	// from 0; a later one is larger. It is the engine's start in microseconds
	// since 1970 where the engine says so, and else when the reader noticed.
	Incarnation uint64
	Sequence    uint64    // grows by 1 with every reading by one reader
	Time        time.Time // when the engine answered
	InBand      time.Time // of the newest report in an answer that was taken in; zero if none was
	Values
}

// State is what a reader knows of one engine.
type State struct {
	Engine    string
	Kind      string    // what the engine is read as; KindAuto while that is not known
	Ranks     int       // copies of the model that the engine's page speaks of; 0 if it does not say
	Reachable bool      // the last attempt got an answer, whatever it said
	Refused   bool      // the last attempt found nobody who takes connections
	Status    int       // of the answer, not 200, for which the last attempt gave no signal; 0 if there was none
	Err       string    // why the last attempt gave no signal; "" if it gave one
	Failures  int       // attempts without a signal since the last one
	Attempt   time.Time // when the last attempt ended
	LastGood  time.Time // the time of Signal; zero if there never was one
	Signal    *Signal   // the newest; nil if there never was one. Not to be changed
	Faults    Faults
}

// Faults counts what was wrong with an engine's answers since it is read.
type Faults struct {
	Failed    uint64 // attempts without a signal
	Redirects uint64 // answers that pointed elsewhere; they are not followed
	Truncated uint64 // pages cut off: too long, broken off or out of time
	Spoilt    uint64 // series looked for that came without a finite number
}
