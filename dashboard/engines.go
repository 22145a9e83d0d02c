package dashboard

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wardrop-lb/wardrop/control"
	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/latency"
)

// Found is a part of the engines that fit a search: the answer of /v1/search.
type Found struct {
	Total   int            `json:"total"`  // that fit
	Offset  int            `json:"offset"` // of the first that is listed
	States  map[string]int `json:"states"` // how many of those that fit but for their state are in each
	Regions []string       `json:"regions"`
	Models  []string       `json:"models"`
	Engines []FoundEngine  `json:"engines"`
	// Clusters and ModelNames are those whose names fit the words that are searched for.
	Clusters   []string `json:"clusters"`
	ModelNames []string `json:"model_names"`
}

// FoundEngine is an engine in a list.
type FoundEngine struct {
	Name     string   `json:"name"`
	Region   string   `json:"region"`
	Models   []string `json:"models"`
	State    string   `json:"state"`
	Load     number   `json:"load"`     // requests/s
	Capacity number   `json:"capacity"` // requests/s; 0 if the plan does not know it
	Price    number   `json:"price"`    // seconds
	Penalty  number   `json:"penalty"`  // seconds
	Running  *number  `json:"running,omitempty"`
	Waiting  *number  `json:"waiting,omitempty"`
}

const (
	pageEngines = 50
	mostEngines = 200
	mostNames   = 12
)

// search is what is asked of a list of engines.
type search struct {
	words                []string
	region, model, state string
	sort                 string
	offset, limit        int
}

func newSearch(r *http.Request) search {
	q := r.URL.Query()
	s := search{
		words: strings.Fields(strings.ToLower(q.Get("q"))), region: q.Get("region"), model: q.Get("model"), state: q.Get("state"),
		sort: q.Get("sort"), limit: pageEngines,
	}
	if n, err := strconv.Atoi(q.Get("offset")); err == nil && n > 0 {
		s.offset = n
	}
	if n, err := strconv.Atoi(q.Get("limit")); err == nil && n > 0 {
		s.limit = min(n, mostEngines)
	}
	return s
}

// fits tells whether each word is part of the name, the region, the address or a model.
func (s *search) fits(e *control.Engine) bool {
	if s.region != "" && e.Region != s.region || s.model != "" && !slices.Contains(e.Models, s.model) {
		return false
	}
	for _, w := range s.words {
		if !contains(e.Name, w) && !contains(e.Region, w) && !contains(e.URL, w) && !slices.ContainsFunc(e.Models, func(m string) bool { return contains(m, w) }) {
			return false
		}
	}
	return true
}

func contains(s, lower string) bool { return strings.Contains(strings.ToLower(s), lower) }

// orders are how engines may be sorted; by name otherwise.
var orders = map[string]func(a, b *control.Engine) int{
	"load":  func(a, b *control.Engine) int { return cmp.Compare(b.Load, a.Load) },
	"used":  func(a, b *control.Engine) int { return cmp.Compare(used(b), used(a)) },
	"price": func(a, b *control.Engine) int { return cmp.Compare(b.Price, a.Price) },
	"state": func(a, b *control.Engine) int {
		return cmp.Or(-compareBool(a.State != control.EngineLive, b.State != control.EngineLive), cmp.Compare(a.State, b.State))
	},
	"penalty": func(a, b *control.Engine) int { return cmp.Compare(b.Penalty, a.Penalty) },
	"region":  func(a, b *control.Engine) int { return cmp.Compare(a.Region, b.Region) },
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

func used(e *control.Engine) float64 {
	if e.Capacity <= 0 {
		return 0
	}
	return e.Load / e.Capacity
}

func (b *Board) serveSearch(w http.ResponseWriter, r *http.Request) {
	s, now := newSearch(r), time.Now()
	known := b.known(now)
	out := Found{States: map[string]int{}, Engines: []FoundEngine{}, Clusters: []string{}, ModelNames: []string{}}
	regions, models := map[string]bool{}, map[string]bool{}
	var fit []*control.Engine
	for i := range known {
		e := &known[i]
		regions[e.Region] = true
		for _, m := range e.Models {
			models[m] = true
		}
		if !s.fits(e) {
			continue
		}
		out.States[e.State]++
		if s.state == "" || s.state == e.State {
			fit = append(fit, e)
		}
	}
	if by := orders[s.sort]; by != nil {
		slices.SortStableFunc(fit, by)
	}
	out.Total, out.Offset = len(fit), min(s.offset, len(fit))
	for _, e := range fit[out.Offset:min(out.Offset+s.limit, len(fit))] {
		out.Engines = append(out.Engines, foundEngine(e))
	}
	out.Regions, out.Models = sortedKeys(regions), sortedKeys(models)
	out.names(&s, b.control)
	sendJSON(w, r, out)
}

// names finds clusters and models by the words.
func (f *Found) names(s *search, c *control.Control) {
	if len(s.words) == 0 {
		return
	}
	all := func(name string) bool {
		return !slices.ContainsFunc(s.words, func(w string) bool { return !contains(name, w) })
	}
	for _, cl := range c.Config().Clusters {
		if all(cl.Name) && len(f.Clusters) < mostNames {
			f.Clusters = append(f.Clusters, cl.Name)
		}
	}
	for _, m := range f.Models {
		if all(m) && len(f.ModelNames) < mostNames {
			f.ModelNames = append(f.ModelNames, m)
		}
	}
}

func foundEngine(e *control.Engine) FoundEngine {
	out := FoundEngine{
		Name: e.Name, Region: e.Region, Models: e.Models, State: e.State,
		Load: number(e.Load), Capacity: number(e.Capacity), Price: number(e.Price), Penalty: number(e.Penalty),
	}
	if e.Reading != nil {
		out.Running, out.Waiting = maybe(e.Reading.Running), maybe(e.Reading.Waiting)
	}
	return out
}

func maybe(x *float64) *number {
	if x == nil {
		return nil
	}
	n := number(*x)
	return &n
}

func sortedKeys(m map[string]bool) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// EnginePage is all there is to say of one engine: the answer of /v1/engine.
type EnginePage struct {
	Engine control.Engine `json:"engine"`
	Plan   string         `json:"plan"` // EPOCH.VERSION; empty before the first
	// Seconds is what the plan expects a request of work 1 to spend in the engine.
	Seconds float64 `json:"seconds,omitempty"`
	// Terms are the engine's own part of every request's price, in seconds.
	Terms *fleet.Terms `json:"terms,omitempty"`
	Curve *CurvePage   `json:"curve,omitempty"`
	Rows  []RowPage    `json:"rows"` // the heaviest first, then the nearest that send nothing
	// Silent is how many rows could send something and do not.
	Silent   int                `json:"silent"`
	Observed []control.Observed `json:"observed"`
}

// CurvePage is an engine's profile.
type CurvePage struct {
	Saturation number      `json:"saturation"` // requests/s
	Capacity   number      `json:"capacity"`
	Points     [][2]number `json:"points"` // load in requests/s, latency in seconds
	FirstToken [][2]number `json:"first_token,omitempty"`
	Batch      number      `json:"batch"` // requests that fit at once
}

// RowPage is what one (cluster, model) makes of an engine.
type RowPage struct {
	Cluster string      `json:"cluster"`
	Model   string      `json:"model"`
	Weight  float64     `json:"weight"`
	Rate    float64     `json:"rate"` // requests/s
	Terms   fleet.Terms `json:"terms"`
	Dearer  float64     `json:"dearer"`  // seconds, beside those that are used
	Seconds float64     `json:"seconds"` // that a request is predicted to take, network included
	Words   string      `json:"words"`
}

const (
	curvePoints = 80
	// silentRows is how many rows without weight are listed.
	silentRows = 8
	mostRows   = 60
)

func (b *Board) serveEngine(w http.ResponseWriter, r *http.Request) {
	name, now := r.URL.Query().Get("name"), time.Now()
	known := b.known(now)
	i, ok := slices.BinarySearchFunc(known, name, func(e control.Engine, name string) int { return cmp.Compare(e.Name, name) })
	if !ok {
		refuse(w, http.StatusNotFound, fmt.Sprintf("there is no engine %q", name))
		return
	}
	out := EnginePage{Engine: known[i], Rows: []RowPage{}, Observed: b.control.Observed(name, now)}
	if s := b.control.State(); s != nil {
		out.planned(s)
	}
	sendJSON(w, r, out)
}

// planned adds what a plan makes of the engine.
func (e *EnginePage) planned(s *control.State) {
	e.Plan = fmt.Sprintf("%d.%d", s.Plan.Epoch, s.Plan.Version)
	name := e.Engine.Name
	if i := slices.IndexFunc(s.View.Engines, func(x fleet.Engine) bool { return x.Name == name }); i >= 0 {
		e.Curve = curve(s.View.Engines[i].Profile, e.Engine.Capacity)
	}
	at, ok := slices.BinarySearchFunc(s.Plan.Engines, name, func(x fleet.EngineLoad, name string) int { return cmp.Compare(x.Name, name) })
	if !ok {
		return
	}
	load := &s.Plan.Engines[at]
	e.Seconds = load.Seconds
	e.Engine.Load, e.Engine.Capacity, e.Engine.Price = load.Load, load.Capacity, load.Price() // the list may be of the plan before
	if e.Curve != nil {
		e.Curve.Capacity = number(load.Capacity)
	}
	e.Terms = &fleet.Terms{Latency: load.Latency, Congestion: load.Congestion, Cap: load.Cap, Penalty: load.Penalty, Total: load.Price()}
	for i := range s.Plan.Rows {
		if row := rowPage(s.Plan, &s.Plan.Rows[i], at); row != nil {
			e.Rows = append(e.Rows, *row)
		}
	}
	e.cut(s)
}

// cut sorts the rows, leaves out what is too much, and says the others in words.
func (e *EnginePage) cut(s *control.State) {
	slices.SortStableFunc(e.Rows, func(a, b RowPage) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(b.Weight, a.Weight), cmp.Compare(a.Dearer, b.Dearer))
	})
	weighty := 0
	for i := range e.Rows {
		if e.Rows[i].Weight > 0 {
			weighty++
		}
	}
	e.Silent = len(e.Rows) - weighty
	e.Rows = e.Rows[:min(len(e.Rows), mostRows, weighty+silentRows)]
	for i := range e.Rows {
		r := &e.Rows[i]
		if why, err := s.Known().Weight(s.Plan, r.Cluster, r.Model, e.Engine.Name); err == nil {
			r.Words = strings.Join(why.Words, " ")
		}
	}
}

// rowPage is a row's arc to an engine; nil if there is none.
func rowPage(p *fleet.Plan, r *fleet.Row, engine int) *RowPage {
	i, ok := slices.BinarySearchFunc(r.Arcs, int32(engine), func(a fleet.Arc, n int32) int { return cmp.Compare(a.Engine, n) })
	if !ok {
		return nil
	}
	a := r.Arcs[i]
	out := &RowPage{
		Cluster: r.Cluster, Model: r.Model, Weight: a.Weight, Rate: a.Weight * r.Admitted(), Terms: p.Terms(r, a),
		Seconds: a.Network + fleet.Model{Work: r.Work}.Load()*p.Engines[engine].Seconds,
	}
	if a.Weight > 0 {
		return out
	}
	level := 0.0
	for _, x := range r.Arcs {
		if x.Weight > 0 {
			level += x.Weight * p.Terms(r, x).Total
		}
	}
	out.Dearer = max(0, out.Terms.Total-level)
	return out
}

// curve samples a profile from no load to just below saturation.
func curve(p fleet.Profile, capacity float64) *CurvePage {
	m := latency.New(p)
	out := &CurvePage{Saturation: number(m.Saturation()), Capacity: number(capacity), Batch: number(p.Batch)}
	for i := range curvePoints {
		u := 0.985 * m.Saturation() * float64(i) / (curvePoints - 1)
		out.Points = append(out.Points, [2]number{number(u), number(m.Latency(u))})
		if p.FirstToken > 0 {
			out.FirstToken = append(out.FirstToken, [2]number{number(u), number(m.FirstToken(u))})
		}
	}
	return out
}
