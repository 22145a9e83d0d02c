package discover

import (
	"slices"
	"strings"

	"github.com/wardrop-lb/wardrop/config"
)

// refusal is an engine that was found and is not taken.
type refusal struct{ source, url, reason string }

// merged is what a configuration and what was found come to.
type merged struct {
	base    *config.Config // without what was found
	config  *config.Config
	taken   map[string]int // engines, by source
	refused []refusal
	read    map[string]bool // URLs of the engines whose models must be read
}

// merge joins a configuration's own engines with those that its sources found, by
// the sources' names, and gives those for which nobody says models the ones that
// were read, by URL. It is a function of its arguments alone, whatever the order in
// which engines were found.
//
// An engine at an address that the configuration or an earlier source has already is
// passed over: what is written down counts more. Names are the found ones, else
// host:port; one that is taken gets its source's name before it, and if that is taken
// too its address. What CheckEngine does not pass is refused.
func merge(c *config.Config, found map[string][]config.Engine, models map[string][]string) merged {
	m := merger{merged: merged{base: c, taken: map[string]int{}, read: map[string]bool{}}, names: map[string]bool{}, addresses: map[string]bool{}}
	for _, e := range c.Engines {
		m.names[e.Name] = true
		if at, err := address(e.URL); err == nil {
			m.addresses[at] = true
		}
		m.add(e, models)
	}
	for _, s := range c.Discover {
		m.taken[s.Name] = 0
		engines := slices.Clone(found[s.Name])
		slices.SortStableFunc(engines, byAddress)
		for _, e := range engines {
			if reason := m.found(s, e, models); reason != "" {
				m.refused = append(m.refused, refusal{s.Name, e.URL, reason})
			}
		}
	}
	m.config = c.WithEngines(m.engines)
	return m.merged
}

type merger struct {
	merged
	names     map[string]bool
	addresses map[string]bool
	engines   []config.Engine
}

func (m *merger) add(e config.Engine, models map[string][]string) {
	if len(e.Models) == 0 && e.URL != "" {
		m.read[e.URL] = true
		e.Models = models[e.URL]
	}
	m.engines = append(m.engines, e)
}

// found takes an engine of a source and says why not if it does not.
func (m *merger) found(s config.Source, e config.Engine, models map[string][]string) string {
	at, err := address(e.URL)
	if err != nil {
		return err.Error()
	}
	if m.addresses[at] {
		return ""
	}
	e = s.Fill(e)
	host := strings.TrimPrefix(at, "unix:")
	if e.Name == "" {
		e.Name = host
	}
	for _, name := range []string{e.Name, s.Name + "/" + e.Name, s.Name + "/" + host} {
		if e.Name = name; !m.names[name] {
			break
		}
	}
	if m.names[e.Name] {
		return "its name is taken: " + e.Name
	}
	if err := m.base.CheckEngine(e); err != nil {
		return err.Error()
	}
	m.names[e.Name], m.addresses[at] = true, true
	m.taken[s.Name]++
	m.add(e, models)
	return ""
}
