package testengine

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// Faults is what is wrong with an engine. The zero value is a sound one.
// Inference means chat, completions and embeddings. They may be combined; Help
// describes each in a line.
type Faults struct {
	// Hang makes a black hole: inference is accepted and never answered, streams
	// stand still, health stays good and the gauges keep their last values.
	Hang bool `json:"hang,omitempty"`
	// Livelock has requests join the batch and get no token ever: the counter of
	// preemptions grows, a hundred a second, that of tokens does not.
	Livelock bool `json:"livelock,omitempty"`
	// DeadStreams sends nothing after the headers of every stream of so many, counted
	// from the engine's beginning: 1 is all, 2 every second. What they would get is
	// generated and counted. Those that stand still when the fault ends go on.
	DeadStreams int `json:"dead_streams,omitempty"`
	// State is what the engine is doing instead of its work: one of states.
	State string `json:"state,omitempty"`
	// Fail answers inference with this status, an error's. RetryAfter adds the
	// header of that name, in seconds.
	Fail       int `json:"fail,omitempty"`
	RetryAfter int `json:"retry_after,omitempty"`
	// Health answers /health with this status; HealthBusy does while a request waits
	// for its first token, as engines do that ask themselves.
	Health     int `json:"health,omitempty"`
	HealthBusy int `json:"health_busy,omitempty"`
	// Slow makes steps take this many times as long.
	Slow float64 `json:"slow,omitempty"`
	// AbortAfter resets the connection of every inference request that has this
	// many tokens. 0 resets after the headers.
	AbortAfter *int `json:"abort_after,omitempty"`
	// Refuse resets every connection at its first request; only /faults answers.
	Refuse bool `json:"refuse,omitempty"`
	// Break ends answers early, but cleanly.
	Break *Break `json:"break,omitempty"`
	// Shape makes streams unusual, but right: any of shapes.
	Shape []string `json:"shape,omitempty"`
	// Page is what is wrong with the page of metrics.
	Page *Page `json:"page,omitempty"`
	// For ends all of these after so many seconds; 0 lasts until others are set.
	For float64 `json:"for,omitempty"`
}

// What State may be.
const (
	// Loading answers 503 to everything: the model is not there yet.
	Loading = "loading"
	// Draining answers 503 to new inference, or with Fail's status, and finishes what
	// is in the engine. Health stays good unless Health says otherwise.
	Draining = "draining"
	// Asleep ends what is in the engine with the finish reason "abort", and has what
	// comes wait until it wakes. Health stays good.
	Asleep = "asleep"
)

var states = []string{"", Loading, Draining, Asleep}

// oneOf names what is wrong with a value that must be one of some.
func oneOf(name, value string, of []string) error {
	if !slices.Contains(of, value) {
		return fmt.Errorf("%s: %q is not one of %q", name, value, of)
	}
	return nil
}

// errorStatus names what is wrong with a status that must be an error's, or 0.
func errorStatus(name string, code int) error {
	if code != 0 && (code < 400 || code > 599) {
		return fmt.Errorf("%s: %d is not an error's status", name, code)
	}
	return nil
}

func (f Faults) validate() error {
	for _, c := range []struct {
		name string
		code int
	}{{"fail", f.Fail}, {"health", f.Health}, {"health_busy", f.HealthBusy}} {
		if err := errorStatus(c.name, c.code); err != nil {
			return err
		}
	}
	if !(f.Slow >= 0 && f.Slow <= 1e6) {
		return fmt.Errorf("slow: %v is not in [0, 1e6]", f.Slow)
	}
	if !(f.For >= 0 && f.For <= 1e6) {
		return fmt.Errorf("for: %v is not in [0, 1e6]", f.For)
	}
	if f.DeadStreams < 0 {
		return fmt.Errorf("dead_streams: %d is negative", f.DeadStreams)
	}
	if err := oneOf("state", f.State, states); err != nil {
		return err
	}
	for _, s := range f.Shape {
		if err := oneOf("shape", s, shapes); err != nil {
			return err
		}
	}
	if err := f.Break.validate(); err != nil {
		return err
	}
	return f.Page.validate()
}

// Faults gives the faults in force. What it points to is not to be changed.
func (s *Server) Faults() Faults { return *s.faults.Load() }

// SetFaults replaces the faults, at once and for requests in the engine too. The
// error says what of them is wrong, and then nothing has changed.
func (s *Server) SetFaults(f Faults) error {
	if err := f.validate(); err != nil {
		return err
	}
	s.mu.Lock()
	s.replace(&f)
	s.mu.Unlock()
	s.kick()
	return nil
}

// replace puts faults in force. The lock is held.
func (s *Server) replace(f *Faults) {
	old := s.faults.Swap(f)
	if f.State == Asleep && old.State != Asleep {
		s.sleeps.Add(1)
	}
	s.storm.set(f.Livelock, time.Now())
	if f.Page != nil && f.Page.Reset {
		s.countAnew()
	}
	s.engine.SetSlowdown(f.Slow)
	close(s.changed)
	s.changed = make(chan struct{})
	for _, c := range s.calls { // let the handlers look at the new faults
		c.look()
	}
	if s.lifting != nil {
		s.lifting.Stop()
	}
	if f.For > 0 && !s.closed {
		s.lifting = time.AfterFunc(time.Duration(f.For*float64(time.Second)), func() { s.lift(f) })
	}
}

// lift ends faults whose time is up, unless others have replaced them.
func (s *Server) lift(f *Faults) {
	s.mu.Lock()
	if s.faults.Load() == f {
		s.replace(&Faults{})
	}
	s.mu.Unlock()
	s.kick()
}

// storm counts the preemptions of a livelock. The zero value is none.
type storm struct {
	since time.Time // zero while there is none
	count uint64
}

// stormEvery is the time of one preemption.
const stormEvery = 10 * time.Millisecond

func (s *storm) set(on bool, now time.Time) {
	s.count = s.preemptions(now)
	s.since = time.Time{}
	if on {
		s.since = now
	}
}

func (s *storm) preemptions(now time.Time) uint64 {
	if s.since.IsZero() {
		return s.count
	}
	return s.count + uint64(now.Sub(s.since)/stormEvery)
}

// broken applies the faults that come before a request is looked at and says
// whether one has answered it.
func (s *Server) broken(w http.ResponseWriter, r *http.Request) bool {
	for {
		s.mu.Lock()
		f, changed := s.faults.Load(), s.changed
		s.mu.Unlock()
		switch {
		case f.Refuse:
			reset(w)
		case f.State == Draining && f.Fail == 0:
			s.refuse(w, f, http.StatusServiceUnavailable, "The engine is shutting down.")
			return true
		case f.Fail != 0:
			s.refuse(w, f, f.Fail, "the engine was told to fail")
			return true
		case !f.Hang:
			return false
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return true
		case <-s.stop:
			panic(http.ErrAbortHandler)
		}
	}
}

func (s *Server) refuse(w http.ResponseWriter, f *Faults, code int, message string) {
	if f.RetryAfter > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(f.RetryAfter))
	}
	kind := "InternalServerError"
	if code == http.StatusServiceUnavailable {
		kind = "Service Unavailable"
	}
	writeError(w, code, kind, message, "")
}

// serveFaults shows the faults (GET) or replaces them (POST).
func (s *Server) serveFaults(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		var f Faults
		d := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16))
		d.DisallowUnknownFields()
		err := d.Decode(&f)
		if err == nil {
			err = s.SetFaults(f)
		}
		if err != nil {
			writeError(w, http.StatusBadRequest, "BadRequestError", err.Error(), "")
			return
		}
	}
	writeJSON(w, http.StatusOK, s.Faults())
}
