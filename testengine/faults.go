package testengine

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// Faults is what is wrong with an engine. The zero value is a sound one.
// Inference means chat, completions and embeddings.
type Faults struct {
	// Hang makes a black hole: inference is accepted and never answered, streams
	// stand still, health stays good and the gauges keep their last values.
	Hang bool `json:"hang,omitempty"`
	// Fail answers inference with this status, an error's. RetryAfter adds the
	// header of that name, in seconds.
	Fail       int `json:"fail,omitempty"`
	RetryAfter int `json:"retry_after,omitempty"`
	// Health answers /health with this status.
	Health int `json:"health,omitempty"`
	// Slow makes steps take this many times as long.
	Slow float64 `json:"slow,omitempty"`
	// AbortAfter resets the connection of every inference request that has this
	// many tokens. 0 resets after the headers.
	AbortAfter *int `json:"abort_after,omitempty"`
	// Refuse resets every connection at its first request; only /faults answers.
	Refuse bool `json:"refuse,omitempty"`
}

func (f Faults) validate() error {
	status := func(name string, code int) error {
		if code != 0 && (code < 400 || code > 599) {
			return fmt.Errorf("%s: %d is not an error's status", name, code)
		}
		return nil
	}
	if err := status("fail", f.Fail); err != nil {
		return err
	}
	if err := status("health", f.Health); err != nil {
		return err
	}
	if !(f.Slow >= 0 && f.Slow <= 1e6) {
		return fmt.Errorf("slow: %v is not in [0, 1e6]", f.Slow)
	}
	return nil
}

// Faults gives the faults in force.
func (s *Server) Faults() Faults { return *s.faults.Load() }

// SetFaults replaces the faults, at once and for requests in the engine too.
func (s *Server) SetFaults(f Faults) error {
	if err := f.validate(); err != nil {
		return err
	}
	s.mu.Lock()
	s.faults.Store(&f)
	s.engine.SetSlowdown(f.Slow)
	close(s.changed)
	s.changed = make(chan struct{})
	for _, c := range s.calls { // let the handlers look at the new faults
		select {
		case c.notify <- struct{}{}:
		default:
		}
	}
	s.mu.Unlock()
	s.kick()
	return nil
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
		case f.Fail != 0:
			if f.RetryAfter > 0 {
				w.Header().Set("Retry-After", fmt.Sprint(f.RetryAfter))
			}
			writeError(w, f.Fail, "InternalServerError", "the engine was told to fail", "")
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
