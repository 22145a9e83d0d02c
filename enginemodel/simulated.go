package enginemodel

import "time"

// Simulated is an engine under virtual time: Stepped goes step by step, Fast jumps
// from one thing that happens to the next.
//
// Time never goes back. Before any call with a time later than Next, Run is called
// with a time between the two; whatever happens at the time of Next itself may be
// told before or after it.
//
//	for each thing that happens, by time:
//		events = e.Run(now, events[:0])
//		// hand out the events; Add, Cancel ...
//		// wake up at e.Next(), which every call may have changed
//
// None is safe for concurrent use.
type Simulated interface {
	// Add puts a request into the engine at now. It fails with ErrTooLong,
	// ErrDuplicate, ErrEmpty or ErrPrefix and then changes nothing.
	Add(r Request, now time.Duration) error

	// Cancel takes a request out of the engine, wherever it is; no event of it
	// follows. It reports whether the request was there. The step under way takes as
	// long as it would have.
	Cancel(id uint64, now time.Duration) bool

	// SetSlowdown makes every step from the next on take factor times as long.
	// Factors that are not above 0 and finite are taken as 1.
	SetSlowdown(factor float64, now time.Duration)

	// Next is the time at which the engine does something next, if nobody calls until
	// then; Never when it is empty. It need not be something that gives an event.
	Next() time.Duration

	// Run lets everything happen that happens up to and including now, and appends
	// the first and the last token of every request that gets it, by time and then in
	// the order in which the requests joined the batch.
	Run(now time.Duration, events []Event) []Event

	// Gauges gives the engine's state as its latest step left it.
	Gauges(now time.Duration) Gauges
}

// Stepped is a Simulated that takes every step of an Engine.
type Stepped struct {
	engine *Engine
	next   time.Duration
}

// NewStepped makes an engine; the error is that of Params.Validate.
func NewStepped(p Params) (*Stepped, error) {
	e, err := New(p)
	if err != nil {
		return nil, err
	}
	return &Stepped{engine: e, next: Never}, nil
}

// Add is Simulated's.
func (s *Stepped) Add(r Request, now time.Duration) error {
	if err := s.engine.Add(r, now); err != nil {
		return err
	}
	if !s.engine.stepping {
		s.next = min(s.next, now+seconds(s.engine.params.Frontend))
	}
	return nil
}

// Cancel is Simulated's.
func (s *Stepped) Cancel(id uint64, _ time.Duration) bool { return s.engine.Cancel(id) }

// SetSlowdown is Simulated's.
func (s *Stepped) SetSlowdown(factor float64, _ time.Duration) { s.engine.SetSlowdown(factor) }

// Next is Simulated's.
func (s *Stepped) Next() time.Duration { return s.next }

// Run is Simulated's.
func (s *Stepped) Run(now time.Duration, events []Event) []Event {
	for s.next <= now {
		before := len(events)
		events = s.engine.End(events)
		kept := events[:before]
		for _, e := range events[before:] {
			if e.First() || e.Last {
				kept = append(kept, e)
			}
		}
		events = kept
		s.next, _ = s.engine.Begin(s.next)
	}
	return events
}

// Gauges is Simulated's.
func (s *Stepped) Gauges(time.Duration) Gauges { return s.engine.Gauges() }

var _ Simulated = (*Stepped)(nil)
