package signals

import (
	"errors"
	"regexp"
	"strings"
)

// Names says under which names a metrics page has what Values holds. Of a list
// the first that the page has counts, so that old names can follow new ones. A
// name may pick series by one label: `requests{state="waiting"}`. What a page
// has in several series is added up, except KVUsage, of which the largest
// counts. An empty list leaves the value absent.
type Names struct {
	Running, Waiting, KVUsage      []string
	Slots, KVTokens                []string
	PromptTokens, GenerationTokens []string
	Preemptions, PrefixHits        []string
	PrefixQueries                  []string
	Progress                       []string // default: the tokens, if the page has both counts
	Start                          []string // differs after a restart
}

// lists gives the names in the order of the constants below.
func (n *Names) lists() [numNames][]string {
	return [...][]string{n.Running, n.Waiting, n.KVUsage, n.Slots, n.KVTokens, n.PromptTokens, n.GenerationTokens,
		n.Preemptions, n.PrefixHits, n.PrefixQueries, n.Progress, n.Start}
}

const (
	nRunning = iota
	nWaiting
	nKVUsage
	nSlots
	nKVTokens
	nPromptTokens
	nGenerationTokens
	nPreemptions
	nPrefixHits
	nPrefixQueries
	nProgress
	nStart
	numNames
)

// Validate reports every name that is none, and a set of names that says
// nothing.
func (n *Names) Validate() error {
	_, err := newTable(*n, rule{})
	return err
}

// empty says that there is no name at all.
func (n *Names) empty() bool {
	for _, l := range n.lists() {
		if len(l) > 0 {
			return false
		}
	}
	return true
}

// rule says which of a family's series say the same thing.
type rule struct {
	// copies are labels by which series of one count differ: of such series the
	// largest counts, since those who do not know write 0.
	copies []string
	// parts is a label that splits a count which is also there whole, with the
	// label empty or left out. Then the parts do not count.
	parts string
}

// term is one name of a table, with the label that picks series if there is one.
type term struct {
	name         int
	label, value string
}

// table is what is looked for in the pages of one kind of engine.
type table struct {
	vocabulary vocabulary
	rule       rule
	terms      [numNames][]term
	extra      [][]term // what an adapter looks for beyond the values
}

var termForm = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"?([^"{}]*?)"?\s*\})?$`)

// newTable makes a table. Each of extra is a list of names for one thing.
func newTable(names Names, r rule, extra ...[]string) (*table, error) {
	t := &table{vocabulary: vocabulary{}, rule: r, extra: make([][]term, len(extra))}
	var errs []error
	add := func(list []string) (out []term) {
		for _, n := range list {
			if err := CheckName(n); err != nil {
				errs = append(errs, err)
				continue
			}
			m := termForm.FindStringSubmatch(strings.TrimSpace(n))
			id, there := t.vocabulary[m[1]]
			if !there {
				id = len(t.vocabulary)
				t.vocabulary[m[1]] = id
			}
			out = append(out, term{id, m[2], m[3]})
		}
		return out
	}
	for i, l := range names.lists() {
		t.terms[i] = add(l)
	}
	for i, l := range extra {
		t.extra[i] = add(l)
	}
	if names.empty() {
		errs = append(errs, errors.New("no names"))
	}
	return t, errors.Join(errs...)
}

// mustTable makes a table of names that stand in this package.
func mustTable(names Names, r rule, extra ...[]string) *table {
	t, err := newTable(names, r, extra...)
	if err != nil {
		panic(err)
	}
	return t
}

// found is what a page has of a table.
type found struct {
	*table
	samples []sample
	scratch []series
	spoilt  int // series looked for that could not be read
}

// series is what several copies of one series say together.
type series struct {
	key   uint64
	value float64
}

// find looks a page through.
func (t *table) find(page Page) *found {
	f := &found{table: t, samples: t.vocabulary.scan(page), scratch: make([]series, 0, 16)}
	for _, s := range f.samples {
		if s.spoilt {
			f.spoilt++
		}
	}
	return f
}

// reading makes what can be made of a page without knowing the kind of engine.
func (f *found) reading() Reading {
	r := Reading{Start: f.start(), Spoilt: f.spoilt}
	r.Running, r.Waiting = f.sum(f.terms[nRunning]), f.sum(f.terms[nWaiting])
	r.KVUsage = fraction(f.greatest(f.terms[nKVUsage]))
	r.Slots, r.KVTokens = f.sum(f.terms[nSlots]), f.sum(f.terms[nKVTokens])
	r.PromptTokens, r.GenerationTokens = f.sum(f.terms[nPromptTokens]), f.sum(f.terms[nGenerationTokens])
	r.Preemptions = f.sum(f.terms[nPreemptions])
	r.PrefixHits, r.PrefixQueries = f.sum(f.terms[nPrefixHits]), f.sum(f.terms[nPrefixQueries])
	r.Progress = f.sum(f.terms[nProgress])
	if len(f.terms[nProgress]) == 0 {
		r.Progress = plus(r.PromptTokens, r.GenerationTokens)
	}
	return r
}

// first gives the first of the terms that the page has.
func (f *found) first(terms []term) (term, bool) {
	for _, t := range terms {
		for i := range f.samples {
			if f.samples[i].of(t) {
				return t, true
			}
		}
	}
	return term{}, false
}

func (s *sample) of(t term) bool {
	return s.name == t.name && (t.label == "" || string(s.raw(t.label)) == t.value)
}

// collect gives one value per series, what is to be left aside by the table's
// rule left aside. whole says that no series had to be left out. The list is
// good until the next call.
func (f *found) collect(terms []term) (list []series, whole bool) {
	t, ok := f.first(terms)
	if !ok {
		return nil, true
	}
	skip := f.rule.parts != "" && f.hasTotal(t)
	list, whole = f.scratch[:0], true
	var index map[uint64]int // for many series only
	for i := range f.samples {
		s := &f.samples[i]
		if !s.of(t) || skip && len(s.raw(f.rule.parts)) > 0 {
			continue
		}
		if s.spoilt {
			whole = false
			continue
		}
		key := s.key(f.rule.copies)
		at, there := position(list, key, index)
		if there {
			list[at].value = max(list[at].value, s.value)
			continue
		}
		list = append(list, series{key, s.value})
		switch {
		case index != nil:
			index[key] = len(list) - 1
		case len(list) == cap(f.scratch):
			index = make(map[uint64]int, 2*len(list))
			for j := range list {
				index[list[j].key] = j
			}
		}
	}
	return list, whole
}

func position(list []series, key uint64, index map[uint64]int) (int, bool) {
	if index != nil {
		at, there := index[key]
		return at, there
	}
	for i := range list {
		if list[i].key == key {
			return i, true
		}
	}
	return 0, false
}

// hasTotal says whether one of the series is a whole.
func (f *found) hasTotal(t term) bool {
	for i := range f.samples {
		if s := &f.samples[i]; s.of(t) && len(s.raw(f.rule.parts)) == 0 {
			return true
		}
	}
	return false
}

// sum adds up the series of the first of the terms that the page has. It is
// absent when there is none or one of the numbers is missing: a sum without one
// of its terms is wrong.
func (f *found) sum(terms []term) Opt {
	list, whole := f.collect(terms)
	if len(list) == 0 || !whole {
		return Opt{}
	}
	total := 0.0
	for _, s := range list {
		total += s.value
	}
	return atLeastZero(total)
}

// greatest gives the largest of the series.
func (f *found) greatest(terms []term) Opt {
	list, _ := f.collect(terms)
	if len(list) == 0 {
		return Opt{}
	}
	top := list[0].value
	for _, s := range list[1:] {
		top = max(top, s.value)
	}
	return atLeastZero(top)
}

// start names the run by the first of the series that the page has.
func (f *found) start() string {
	t, ok := f.first(f.terms[nStart])
	if !ok {
		return ""
	}
	for i := range f.samples {
		if s := &f.samples[i]; s.of(t) && !s.spoilt {
			return formatStart(s.value)
		}
	}
	return ""
}

// atLeastZero makes what cannot be a count or a fraction absent.
func atLeastZero(v float64) Opt {
	if v < 0 {
		return Opt{}
	}
	return Some(v)
}

// fraction bounds to 1 what rounding may bring above it, and makes absent what
// is no fraction.
func fraction(o Opt) Opt {
	if o.Value > 1.01 {
		return Opt{}
	}
	o.Value = min(o.Value, 1)
	return o
}

// plus adds two numbers; it is absent if one of them is.
func plus(a, b Opt) Opt {
	if !a.Known || !b.Known {
		return Opt{}
	}
	return Some(a.Value + b.Value)
}

// together adds those of the numbers that are there; absent if none is.
func together(list ...Opt) Opt {
	total, known := 0.0, false
	for _, o := range list {
		total, known = total+o.Value, known || o.Known
	}
	if !known {
		return Opt{}
	}
	return Some(total)
}

// times multiplies two counts; it is absent if one of them is.
func times(a, b Opt) Opt {
	if !a.Known || !b.Known {
		return Opt{}
	}
	return Some(a.Value * b.Value)
}
