package dashboard

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/wardrop-lb/wardrop/control"
)

// Board is a control plane's dashboard. Safe for concurrent use.
type Board struct {
	control *control.Control
	past    *past
	ended   chan struct{} // closed when Run ends
	streams chan struct{} // turns of live streams

	mu      sync.Mutex
	summary *summary // of the newest plan that somebody asked about
	maps    map[string]event
	engines []control.Engine // as they were at enginesAt
	at      time.Time
}

// event is a map as it is sent: its JSON, and the plan it is of.
type event struct {
	state *control.State
	made  time.Time
	data  []byte
}

// mostStreams bounds the pages that are live at once.
const mostStreams = 64

// New makes the dashboard of a control plane. Its past begins with the plans that are recorded.
func New(c *control.Control) *Board {
	return &Board{control: c, past: newPast(), ended: make(chan struct{}), streams: make(chan struct{}, mostStreams), maps: map[string]event{}}
}

// Run remembers how weights change until ctx is done, and then ends all live streams. It is
// called once.
func (b *Board) Run(ctx context.Context) error {
	defer close(b.ended)
	b.remember(ctx, time.Now())
	for {
		changed := b.control.Changed()
		if s := b.summarised(); s != nil {
			b.past.add(s)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// mostRemembered bounds the plans that are read at the start: each takes up to a tenth of a second.
const mostRemembered = 200

// remember takes in the plans of the last hour that are recorded, the newest ones if there are many.
func (b *Board) remember(ctx context.Context, now time.Time) {
	entries := b.control.Plans([2]uint64{})
	entries = entries[max(0, len(entries)-mostRemembered):]
	for i := range entries {
		if ctx.Err() != nil {
			return
		}
		if now.Sub(entries[i].Time) > pastFor {
			continue
		}
		if r, err := b.control.Recorded(entries[i]); err == nil { // else it is gone, and the next one shows what it came to
			b.past.add(summarise(&control.State{Plan: r.Plan, View: r.View, Published: r.Time}))
		}
	}
}

// Register serves the page below /ui/ and what it asks for.
func (b *Board) Register(mux *http.ServeMux) {
	mux.Handle("GET /{$}", http.RedirectHandler("/ui/", http.StatusFound))
	mux.Handle("GET /ui/", http.StripPrefix("/ui/", pages()))
	mux.HandleFunc("GET /v1/map", b.serveMap)
	mux.HandleFunc("GET /v1/live", b.serveLive)
	mux.HandleFunc("GET /v1/weights", b.serveWeights)
	mux.HandleFunc("GET /v1/search", b.serveSearch)
	mux.HandleFunc("GET /v1/engine", b.serveEngine)
}

// summarised sums the newest plan up; nil before the first.
func (b *Board) summarised() *summary {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.newest()
}

func (b *Board) newest() *summary {
	if s := b.control.State(); s != nil && (b.summary == nil || b.summary.state != s) {
		b.summary = summarise(s)
	}
	return b.summary
}

// mapFor is how long a map without a new plan is as good as another.
const mapFor = 250 * time.Millisecond

// drawn gives a map as JSON. It is drawn once a tick, however many look.
func (b *Board) drawn(model string, now time.Time) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.newest()
	e, ok := b.maps[model]
	if ok && (s == nil || e.state == s.state) && now.Sub(e.made) < mapFor {
		return e.data
	}
	for name, old := range b.maps { // models that nobody looks at
		if now.Sub(old.made) > time.Minute {
			delete(b.maps, name)
		}
	}
	e = event{made: now}
	if s != nil {
		e.state = s.state
	}
	e.data, _ = json.Marshal(mapOf(b.control, s, model, now)) // it marshals: tests show it
	if len(b.maps) < mostStreams {
		b.maps[strings.Clone(model)] = e
	}
	return e.data
}

func (b *Board) serveMap(w http.ResponseWriter, r *http.Request) {
	send(w, r, b.drawn(r.URL.Query().Get("model"), time.Now()))
}

// enginesFor is how long a list of engines is as good as another.
const enginesFor = 500 * time.Millisecond

// known lists the engines, by name. The list is shared and not to be changed.
func (b *Board) known(now time.Time) []control.Engine {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.engines == nil || now.Sub(b.at) > enginesFor {
		b.engines, b.at = b.control.Engines(now), now
	}
	return b.engines
}
