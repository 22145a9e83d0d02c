package sim

import (
	"time"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/protect"
	"github.com/wardrop-lb/wardrop/route"
)

// Trip is how a data plane of one of Policies routed a request, and what became of it.
type Trip struct {
	Number   uint64        // of the request
	Arrived  time.Duration // since the run began
	Cluster  string
	Model    string
	Priority fleet.Priority
	Version  uint64 // of the plan that was routed by

	ShedPart float64 // of its priority that the plan refuses
	Refused  string  // shed or full; empty for one that was let in
	Source   route.KeySource
	Hash     uint64 // of the key
	Depth    int    // blocks of the prompt that make the key
	Work     int64
	// Looks are what the decision looked at; Targets the names of the engines that they are about.
	Looks       []route.Look
	Targets     []string
	Cut         bool // there were more looks
	Remembered  bool // the prefix went to the picked engine before
	Utilisation float64
	RetriesLeft float64 // in the budget, when it was let in
	Tries       []Try
	Ended       time.Duration // since it arrived
	Done        bool          // an answer came
}

// Try is one attempt at one engine.
type Try struct {
	Engine     string
	After      time.Duration // since the request arrived
	FirstToken time.Duration // since the try; 0 where none came
	Outcome    string        // as the data plane calls it
	Predicted  float64       // seconds for a usual request, by the plan
	Size       float64       // beside a usual one's, at least 1
}

// trip begins to note how a request is routed; nil where nobody wants to know.
func (w *wardrop) trip(r *Request, p *plane, row *route.Row) *Trip {
	if w.w.trips == nil || row == nil {
		return nil
	}
	return &Trip{
		Number: r.ID, Arrived: r.Arrived, Cluster: p.name, Model: row.Model, Priority: r.Priority, Version: p.version,
		ShedPart: row.Shed[r.Priority], Utilisation: row.Utilisation, Targets: row.Names(),
	}
}

// decided notes what a decision was made of.
func (t *Trip) decided(q *route.Query, c *carried, trace *route.Trace) {
	t.Source, t.Hash, t.Work, t.Remembered = q.Source, q.Hash, q.Work, c.pick.Remembered
	t.Looks, t.Cut = append([]route.Look(nil), trace.Looks()...), trace.Cut()
}

// try notes an attempt that begins.
func (w *wardrop) try(r *Request, c *carried) {
	if t := c.trip; t != nil {
		x := &c.row.Targets()[c.target]
		t.Tries = append(t.Tries, Try{Engine: x.Engine.Name, After: w.Now() - r.Arrived, Predicted: x.Predicted, Size: c.size})
	}
}

// outcomeNames are the data plane's for its attempts.
var outcomeNames = map[Outcome]string{Answered: "success", Failed: "failure", Unreachable: "unreachable", Cancelled: "canceled"}

// tried notes how an attempt ended.
func (c *carried) tried(r *Request, o Outcome) {
	if c.trip == nil {
		return
	}
	x := &c.trip.Tries[len(c.trip.Tries)-1]
	x.Outcome = outcomeNames[o]
	if c.stalled {
		x.Outcome = stalledName
	}
	if r.FirstToken > 0 {
		x.FirstToken = r.FirstToken - r.Sent
	}
	c.trip.Done = o == Answered
}

const stalledName = "stalled"

// told ends a trip; refused says why it never began.
func (w *wardrop) told(r *Request, t *Trip, refused string) {
	if t == nil {
		return
	}
	t.Refused, t.Ended = refused, w.Now()-r.Arrived
	w.w.trips(*t)
}

// shed says whether the plan has a request refused.
func shed(r *Request, row *route.Row) bool { return protect.Shed(mix(r.ID), row.Shed[r.Priority]) }
