package discover

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wardrop-lb/wardrop/config"
)

// loop is the state of a run; one goroutine owns it.
type loop struct {
	*Discovery
	ctx    context.Context
	wg     sync.WaitGroup
	config *config.Config
	before map[string][]config.Engine // saved, and not yet taken over by a source
	reader *reader

	sources  map[string]*source
	readers  map[string]context.CancelFunc // by URL
	readings map[string]reading            // by URL

	dirty   bool // something changed since apply
	stale   bool // engines may have come that nobody reads yet
	begun   bool // Settled
	applied time.Time
	last    merged
	said    map[refusal]bool
}

// source is one source at work.
type source struct {
	config  config.Source
	stop    context.CancelFunc
	keeper  keeper
	entries []string // refused by the source itself
	asked   bool
	good    time.Time
	trouble string // of the last refresh
}

func newLoop(d *Discovery, ctx context.Context) *loop { //nolint:revive // the context is a part of it
	return &loop{
		Discovery: d, ctx: ctx, applied: time.Now(), said: map[refusal]bool{},
		sources: map[string]*source{}, readers: map[string]context.CancelFunc{}, readings: map[string]reading{},
	}
}

// restore begins with what was found before.
func (l *loop) restore() {
	s, err := load(l.o.Path)
	if err != nil {
		l.o.Log.Warn("starting without what was found before", "error", err)
	}
	l.before = s.Sources
	for url, models := range s.Models {
		l.readings[url] = reading{models: models}
	}
}

// configure starts and stops sources so that they are those of c.
func (l *loop) configure(c *config.Config) {
	if l.reader == nil || l.config.Signals.ModelsInterval != c.Signals.ModelsInterval {
		for _, stop := range l.readers {
			stop()
		}
		clear(l.readers)
		l.reader = newReader(time.Duration(c.Signals.ModelsInterval), l.o.Transport)
	}
	l.config, l.dirty, l.stale = c, true, true
	wanted := map[string]bool{}
	for _, s := range c.Discover {
		wanted[s.Name] = true
		old := l.sources[s.Name]
		if old != nil && reflect.DeepEqual(old.config, s) {
			continue
		}
		next := &source{config: s}
		if old != nil { // what it knows counts until it has looked again
			old.stop()
			next.keeper = old.keeper
		} else {
			next.keeper.kept = byAddresses(l.before[s.Name])
		}
		l.sources[s.Name] = next
		l.start(next)
	}
	for name, s := range l.sources {
		if !wanted[name] {
			s.stop()
			delete(l.sources, name)
			l.metrics.refreshes.DeletePartialMatch(prometheus.Labels{"source": name})
		}
	}
	l.before = nil
}

func (l *loop) start(s *source) {
	ctx, cancel := context.WithCancel(l.ctx)
	s.stop = cancel
	report := func(f Found) {
		l.post(ctx, func(l *loop, now time.Time) {
			if ctx.Err() == nil {
				l.found(s, f, now)
			}
		})
	}
	log := l.o.Log.With("source", s.config.Name)
	l.wg.Go(func() {
		// A source that ends, because it could not even begin, is tried again.
		_ = every(ctx, time.Duration(s.config.Interval), func() {
			run, err := l.o.Open(s.config, log)
			if err == nil {
				err = run.Run(ctx, report)
			}
			if err != nil {
				report(Found{Err: err})
			}
		})
	})
}

// found takes what a source reports.
func (l *loop) found(s *source, f Found, now time.Time) {
	name, outcome := s.config.Name, outcomeFailed
	if f.Err == nil && len(f.Engines) > maxEngines {
		f.Err = fmt.Errorf("%d engines are more than the %d that a source may have", len(f.Engines), maxEngines)
	}
	before := s.keeper.engines()
	if f.Err != nil {
		s.keeper.fail()
		if text := f.Err.Error(); text != s.trouble {
			s.trouble = text
			l.o.Log.Error("a source of engines fails; what it found before stays", "source", name, "error", f.Err)
		}
	} else {
		outcome = l.taken(s, f, now)
	}
	l.metrics.refreshes.WithLabelValues(name, outcome).Inc()
	if !s.asked || !reflect.DeepEqual(before, s.keeper.engines()) {
		s.asked, l.dirty, l.stale = true, true, true
	}
	l.observe()
}

// taken takes a refresh that did not fail.
func (l *loop) taken(s *source, f Found, now time.Time) string {
	name, held := s.config.Name, s.keeper.held()
	outcome := s.keeper.take(f.Engines, now)
	if s.trouble != "" {
		s.trouble = ""
		l.o.Log.Info("a source of engines answers again", "source", name)
	}
	if outcome == outcomeHeld && held == 0 {
		l.o.Log.Warn("more than half of a source's engines have vanished at once; they are kept for a while",
			"source", name, "vanished", s.keeper.held(), "of", len(s.keeper.kept), "for", Grace)
	}
	if len(f.Refused) > 0 && !slices.Equal(f.Refused, s.entries) {
		l.o.Log.Warn("a source names what cannot be an engine", "source", name, "refused", len(f.Refused), "first", f.Refused[0])
	}
	s.good, s.entries = now, f.Refused
	return outcome
}

// read takes what an engine says of its models.
func (l *loop) read(url string, models []string, refused int, err error) {
	r := l.readings[url]
	l.dirty = l.dirty || !r.asked
	if err != nil {
		l.metrics.reads.WithLabelValues(outcomeFailed).Inc()
		if !r.asked {
			l.o.Log.Warn("an engine does not say its models; it is asked again", "engine", url, "error", err)
		}
		r.asked = true
	} else {
		l.metrics.reads.WithLabelValues(outcomeOK).Inc()
		if refused > 0 && refused != r.refused {
			l.o.Log.Warn("names of models are refused", "engine", url, "refused", refused, "taken", len(models))
		}
		l.dirty = l.dirty || r.models == nil || !slices.Equal(models, r.models)
		r = reading{models: models, refused: refused, asked: true}
	}
	l.readings[url] = r
}

// step does what is due and says when to come again.
func (l *loop) step(now time.Time) time.Duration {
	next := time.Hour
	for name, s := range l.sources {
		if held := s.keeper.held(); s.keeper.expire(now) {
			l.o.Log.Warn("the engines that vanished did not come back; they are dropped", "source", name, "vanished", held)
			l.dirty, l.stale = true, true
			l.observe()
		}
		if s.keeper.next != nil {
			next = min(next, s.keeper.until.Sub(now))
		}
	}
	if !l.dirty {
		return next
	}
	begins := l.begins()
	if wait := coalesce - now.Sub(l.applied); wait > 0 && !begins {
		return min(next, wait)
	}
	l.apply(now)
	if begins {
		l.begun = true
		close(l.settled)
	}
	return next
}

// begins says whether everybody has just been asked for the first time. Engines that
// come until then are asked at once.
func (l *loop) begins() bool {
	if l.begun {
		return false
	}
	if l.stale {
		l.follow(l.merge().read)
	}
	for _, s := range l.sources {
		if !s.asked {
			return false
		}
	}
	for url := range l.readers {
		if !l.readings[url].asked {
			return false
		}
	}
	return true
}

func (l *loop) merge() merged {
	found := map[string][]config.Engine{}
	for name, s := range l.sources {
		found[name] = s.keeper.engines()
	}
	return merge(l.config, found, l.models())
}

func (l *loop) models() map[string][]string {
	models := map[string][]string{}
	for url, r := range l.readings {
		if r.models != nil {
			models[url] = r.models
		}
	}
	return models
}

// follow reads the models of those engines whose models nobody says.
func (l *loop) follow(wanted map[string]bool) {
	for url, stop := range l.readers {
		if !wanted[url] {
			stop()
			delete(l.readers, url)
		}
	}
	for url := range wanted {
		if l.readers[url] == nil {
			l.startReader(url)
		}
	}
	maps.DeleteFunc(l.readings, func(url string, _ reading) bool { return !wanted[url] })
	l.stale = false
}

func (l *loop) startReader(url string) {
	ctx, cancel := context.WithCancel(l.ctx)
	l.readers[url] = cancel
	reader := l.reader
	l.wg.Go(func() {
		reader.run(ctx, url, func(models []string, refused int, err error) {
			l.post(ctx, func(l *loop, _ time.Time) {
				if ctx.Err() == nil {
					l.read(url, models, refused, err)
				}
			})
		})
	})
}

// apply makes the configuration that is in force from now on.
func (l *loop) apply(now time.Time) {
	m := l.merge()
	l.follow(m.read)
	l.dirty, l.applied = false, now
	l.say(m)
	same := l.last.base == l.config && l.last.config != nil && reflect.DeepEqual(l.last.config.Engines, m.config.Engines)
	l.last = m
	l.observe()
	if same {
		return
	}
	l.o.Apply(m.config)
	found := map[string][]config.Engine{}
	for name, s := range l.sources {
		found[name] = s.keeper.engines()
	}
	if err := (saved{found, l.models()}).save(l.o.Path); err != nil {
		l.o.Log.Warn("what was found is not saved for the next start", "error", err)
	}
}

// say logs what is new.
func (l *loop) say(m merged) {
	said := map[refusal]bool{}
	for _, r := range m.refused {
		if said[r] = true; !l.said[r] {
			l.o.Log.Warn("an engine that was found is refused", "source", r.source, "engine", r.url, "reason", r.reason)
		}
	}
	l.said = said
	if !maps.Equal(l.last.taken, m.taken) {
		l.o.Log.Info("engines found", "by source", m.taken)
	}
}

// observe makes what metrics show.
func (l *loop) observe() {
	st := &status{}
	refused := map[string]int{}
	for _, r := range l.last.refused {
		refused[r.source]++
	}
	for _, name := range slices.Sorted(maps.Keys(l.sources)) {
		s := l.sources[name]
		st.sources = append(st.sources, sourceStatus{
			name: name, engines: l.last.taken[name], held: s.keeper.held(), refused: refused[name] + len(s.entries), good: s.good,
		})
	}
	if l.last.config != nil {
		for _, e := range l.last.config.Engines {
			if len(e.Models) == 0 {
				st.unread++
			}
		}
	}
	for _, r := range l.readings {
		st.refusedModels += r.refused
	}
	l.status.Store(st)
}
