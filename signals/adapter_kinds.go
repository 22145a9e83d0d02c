package signals

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Reading is what an adapter got out of an engine. Start names the run of the
// engine's process: it differs after a restart. It is "" where the engine does
// not tell.
type Reading struct {
	Values
	Start  string
	Ranks  int // copies of the model that the engine's page speaks of; 0 if it does not say
	Spoilt int // series looked for that the page has, but not with a finite number
	// At is when the engine said all this, if that was before it was asked; else zero.
	At time.Time
}

// Get fetches a path below the engine's URL, or a URL of its own. The answer has
// status 200, else the error is a *StatusError. Its page is bounded.
type Get func(ctx context.Context, path string) (Answer, error)

// Answer is what Get gives.
type Answer struct {
	Page
	Header http.Header
}

// StatusError is an answer that is not the one asked for.
type StatusError struct {
	Path string
	Code int
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("%s: %d %s", e.Path, e.Code, http.StatusText(e.Code))
	if e.redirect() {
		text += " is not followed"
	}
	return text
}

func (e *StatusError) redirect() bool { return e.Code >= 300 && e.Code < 400 }

// Adapter reads engines of one kind. An adapter belongs to one engine and is
// used by one goroutine at a time; it may remember what does not change. What it keeps
// open from the first Read on it closes in a method close, if it has one.
type Adapter interface {
	// Read makes one reading. The error says why there is none: the engine
	// cannot be reached, or its answer says nothing of what is looked for.
	Read(ctx context.Context, get Get) (Reading, error)
}

const (
	// KindNone is the kind of engines that export nothing. They are not scraped.
	KindNone = "none"
	// KindAuto is the kind of engines that are asked what they are. "" means the same.
	KindAuto = "auto"
	// KindGeneric is the kind of engines whose Target says what their metrics are called.
	KindGeneric = "generic"
)

// kinds makes the adapters that need no more than the place of the metrics page:
// a path below the engine's URL, or a URL of its own; "" for the kind's usual one.
var kinds = map[string]func(page string) Adapter{
	"vllm":     func(page string) Adapter { return vllm{at(page, "/metrics")} },
	"sglang":   func(page string) Adapter { return &sglang{page: at(page, "/metrics")} },
	"trtllm":   func(page string) Adapter { return &trtllm{page: at(page, "/prometheus/metrics")} },
	"triton":   func(page string) Adapter { return triton{at(page, "/metrics")} },
	"tgi":      func(page string) Adapter { return plain{tgiTable, at(page, "/metrics")} },
	"llamacpp": func(page string) Adapter { return &llamacpp{page: at(page, "/metrics")} },
	"lmdeploy": func(page string) Adapter { return lmdeploy{at(page, "/metrics")} },
	"nim":      func(page string) Adapter { return &nim{page: page} },
	"ollama":   func(string) Adapter { return ollama{} },
}

func at(page, usual string) string {
	if page == "" {
		return usual
	}
	return page
}

// Kinds gives the names of the engine kinds, sorted.
func Kinds() []string {
	names := []string{KindNone, KindAuto, KindGeneric, KindORCA}
	for k := range kinds {
		names = append(names, k)
	}
	slices.Sort(names)
	return names
}

// NewAdapter makes the adapter of one engine; nil for KindNone. The error says
// what of the target is wrong.
func NewAdapter(t Target) (Adapter, error) {
	if t.Kind == KindNone {
		return nil, nil
	}
	page, err := t.metricsPage()
	if err != nil {
		return nil, err
	}
	if t.Kind == KindGeneric {
		table, err := newTable(t.Names, rule{copies: []string{"pid"}})
		if err != nil {
			return nil, err
		}
		return plain{table, at(page, "/metrics")}, nil
	}
	if !t.Names.empty() {
		return nil, fmt.Errorf("names of metrics are for the kind %q", KindGeneric)
	}
	if t.Kind == "" || t.Kind == KindAuto {
		return &auto{page: page}, nil
	}
	if t.Kind == KindORCA {
		return newORCA(t)
	}
	fresh, ok := kinds[t.Kind]
	if !ok {
		return nil, fmt.Errorf("unknown engine kind %q: want one of %s", t.Kind, strings.Join(Kinds(), ", "))
	}
	return fresh(page), nil
}

// metricsPage checks where the target's metrics page is said to be.
func (t *Target) metricsPage() (string, error) {
	m := t.MetricsURL
	switch {
	case m == "" && t.Kind == "triton":
		return tritonPage(t.URL)
	}
	return m, CheckMetrics(t.Kind, m)
}

// plain reads a page that a table says all about.
type plain struct {
	table *table
	page  string
}

// Read implements Adapter.
func (p plain) Read(ctx context.Context, get Get) (Reading, error) {
	_, r, err := p.table.read(ctx, get, p.page)
	if err != nil {
		return Reading{}, err
	}
	return checked(r)
}

// read fetches a page and makes of it what the table says.
func (t *table) read(ctx context.Context, get Get, page string) (*found, Reading, error) {
	answer, err := get(ctx, page)
	if err != nil {
		return nil, Reading{}, err
	}
	f := t.find(answer.Page)
	return f, f.reading(), nil
}

// checked makes an error of a reading that says nothing: the page was not an
// engine's, or that of one that is told to keep no statistics.
func checked(r Reading) (Reading, error) {
	if r.Values == (Values{}) {
		return Reading{}, errNothing
	}
	return r, nil
}

func formatStart(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

var errNothing = errors.New("the page has none of the series looked for")

// maxLearn is how often an engine is asked, in one run of its process, for what
// does not change. It is optional, and an engine may be told not to say.
const maxLearn = 3

// once remembers what an engine need not be asked again in this run.
type once struct {
	start    string
	attempts int
	known    bool
	value    Opt
}

// learn gives what ask says, asked until it says something, at most maxLearn
// times a run.
func (o *once) learn(start string, ask func() Opt) Opt {
	if start != o.start {
		*o = once{start: start}
	}
	if o.known || o.attempts >= maxLearn {
		return o.value
	}
	o.attempts++
	o.value = ask()
	o.known = o.value.Known
	return o.value
}

// motion counts how often what an engine shows has changed from one reading to
// the next. It is evidence of work where an engine counts that only when a
// request ends.
type motion struct {
	seen  bool
	last  [4]Opt
	count float64
}

// note takes what a reading shows and gives the count.
func (m *motion) note(shown [4]Opt) Opt {
	if m.seen && shown != m.last {
		m.count++
	}
	m.seen, m.last = true, shown
	if shown == ([4]Opt{}) {
		return Opt{}
	}
	return Some(m.count)
}
