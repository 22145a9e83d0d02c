package dashboard

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	// pastFor is how far back weights are remembered.
	pastFor = time.Hour
	// pastShares bounds what is remembered, in weights: some 32 bytes each.
	pastShares = 400_000
	// topEngines is how many engines of a row are remembered one by one.
	topEngines = 6
	// leastMove is from which part of a row's requests on a change is remembered.
	leastMove = 0.0005
)

// past is how the weights of all rows changed, as far as there is room. Safe for concurrent
// use.
type past struct {
	mu     sync.Mutex
	frames []pastFrame // the oldest first
	shares int         // in all of them
	// base holds what each row was before the first frame.
	base map[[2]string]point
	last *summary
}

// pastFrame is one plan that differs from the one before.
type pastFrame struct {
	at     time.Time
	points map[[2]string]point // of the rows that changed
}

// point is a row from one moment on.
type point struct {
	at         time.Time
	plan, from string // EPOCH.VERSION, and that of the plan before
	moved      float64
	rate, shed float64 // requests/s
	regions    []share
	engines    []share
}

func newPast() *past { return &past{base: map[[2]string]point{}} }

func planName(s *summary) string {
	return fmt.Sprintf("%d.%d", s.state.Plan.Epoch, s.state.Plan.Version)
}

// add remembers what differs from the last plan.
func (p *past) add(s *summary) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == s {
		return
	}
	before := map[[2]string]*rowSummary{}
	if p.last != nil {
		for _, rows := range [][]rowSummary{p.last.rows, p.last.whole} {
			for i := range rows {
				before[rows[i].key] = &rows[i]
			}
		}
	}
	f := pastFrame{at: s.state.Published, points: map[[2]string]point{}}
	for _, rows := range [][]rowSummary{s.rows, s.whole} {
		for i := range rows {
			if x, ok := p.differs(s, before[rows[i].key], &rows[i]); ok {
				f.points[rows[i].key] = x
				p.shares += len(x.regions) + len(x.engines)
			}
		}
	}
	p.last = s
	if len(f.points) > 0 {
		p.frames = append(p.frames, f)
	}
	p.forget(f.at)
}

// differs gives a row as it is now, if that is another than before, where old is nil if there was
// none.
func (p *past) differs(s *summary, old, r *rowSummary) (point, bool) {
	x := point{at: s.state.Published, plan: planName(s), moved: 1, rate: r.rate, shed: r.shed}
	if old != nil {
		x.moved, x.from = moved(old.used, r.used), planName(p.last)
		if x.moved < leastMove && math.Abs(old.shed-r.shed) <= 0.01*(r.rate+1e-9) {
			return x, false
		}
	}
	for _, part := range r.regions {
		x.regions = append(x.regions, share{s.regions[part.region], part.weight})
	}
	x.engines = heaviest(r.used, topEngines)
	return x, true
}

// forget drops the oldest, and keeps what they came to.
func (p *past) forget(now time.Time) {
	for len(p.frames) > 0 && (p.shares > pastShares || now.Sub(p.frames[0].at) > pastFor) {
		for key, x := range p.frames[0].points {
			p.shares -= len(x.regions) + len(x.engines)
			p.base[key] = x
		}
		p.frames = p.frames[1:]
	}
}

// of lists a row's points after a time, the oldest first; of time zero all, with what was before
// them.
func (p *past) of(key [2]string, after time.Time) (points []point, since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if x, ok := p.base[key]; ok && after.IsZero() {
		x.moved = 0
		points = append(points, x)
	}
	if len(p.frames) > 0 {
		since = p.frames[0].at
	}
	for _, f := range p.frames {
		if x, ok := f.points[key]; ok && f.at.After(after) {
			points = append(points, x)
		}
	}
	return points, since
}

// Weights is how a row's weights changed, or where cluster is empty those of all clusters together:
// the answer of /v1/weights.
type Weights struct {
	Cluster string        `json:"cluster"`
	Model   string        `json:"model"`
	Now     int64         `json:"now"`   // milliseconds since 1970, as all times here
	Since   int64         `json:"since"` // from when on changes are remembered
	Points  []WeightPoint `json:"points"`
}

// WeightPoint is what a row's weights are from a time on.
type WeightPoint struct {
	Time int64  `json:"time"`
	Plan string `json:"plan"`
	// From is the plan before it; empty where there was none, or it is forgotten.
	From    string            `json:"from,omitempty"`
	Moved   number            `json:"moved"` // part of the row's requests that go elsewhere, 0 to 1
	Rate    number            `json:"rate"`
	Shed    number            `json:"shed"`
	Regions map[string]number `json:"regions"`
	// Engines are the heaviest ones.
	Engines map[string]number `json:"engines"`
}

func (b *Board) serveWeights(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	out := Weights{Cluster: q.Get("cluster"), Model: q.Get("model"), Now: time.Now().UnixMilli(), Points: []WeightPoint{}}
	var after time.Time
	if text := q.Get("after"); text != "" {
		ms, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			refuse(w, http.StatusBadRequest, "after: want milliseconds since 1970")
			return
		}
		after = time.UnixMilli(ms)
	}
	points, since := b.past.of([2]string{out.Cluster, out.Model}, after)
	if out.Since = since.UnixMilli(); since.IsZero() {
		out.Since = out.Now
	}
	for _, x := range points {
		if x.at.UnixMilli() == after.UnixMilli() && !after.IsZero() {
			continue // it is after by less than a millisecond
		}
		out.Points = append(out.Points, WeightPoint{
			Time: x.at.UnixMilli(), Plan: x.plan, From: x.from, Moved: number(x.moved), Rate: number(x.rate), Shed: number(x.shed),
			Regions: named(x.regions), Engines: named(x.engines),
		})
	}
	sendJSON(w, r, out)
}

func named(shares []share) map[string]number {
	out := make(map[string]number, len(shares))
	for _, x := range shares {
		out[x.name] = number(x.weight)
	}
	return out
}

// refuse answers with an error, as all of the admin API does.
func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": message})
}

// sendJSON answers with what marshals.
func sendJSON(w http.ResponseWriter, r *http.Request, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	send(w, r, data)
}
