package signals

import (
	"bytes"
	"strconv"
	"strings"
)

// maxSamples bounds the samples taken from one page.
const maxSamples = 20000

// Page is a metrics page as it came. Truncated says that more would have
// followed: the page was too long or its transfer broke off.
type Page struct {
	Body      []byte
	Truncated bool
}

// sample is one series of a family. labels is the text between the braces.
type sample struct {
	labels string
	value  float64
	spoilt bool // the line was there, its value was not a finite number
}

// families is the samples of the wanted names.
type families map[string][]sample

// parse reads a page in Prometheus' text format and keeps the families whose
// names are wanted. Lines it cannot read are passed over. Of a truncated page
// the last family is left out, since some of it may be missing, and a sum over
// half of an engine's ranks looks like a better engine.
func parse(page Page, wanted map[string]bool) families {
	out := families{}
	var last []byte
	count := 0
	for body := page.Body; len(body) > 0 && count < maxSamples; {
		line, rest, whole := bytes.Cut(body, []byte("\n"))
		body = rest
		if !whole && page.Truncated {
			break
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		if line[0] == '#' {
			last = nil // the next family has begun, the one before is whole
			continue
		}
		name := line
		if end := bytes.IndexAny(line, "{ \t"); end >= 0 {
			name = line[:end]
		}
		last = name
		if wanted[string(name)] {
			out[string(name)] = append(out[string(name)], parseRest(string(line[len(name):])))
			count++
		}
	}
	if page.Truncated || count == maxSamples {
		delete(out, string(last))
	}
	return out
}

// parseRest reads what follows the name: labels, the value, then perhaps a
// timestamp or an exemplar. What cannot be read is spoilt.
func parseRest(rest string) sample {
	var s sample
	if strings.HasPrefix(rest, "{") {
		shut := closing(rest)
		if shut < 0 {
			return sample{spoilt: true}
		}
		s.labels, rest = rest[1:shut], rest[shut+1:]
	}
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		s.spoilt = true
		return s
	}
	v, err := strconv.ParseFloat(fields[0], 64)
	finite := Some(v)
	s.value, s.spoilt = finite.Value, err != nil || !finite.Known
	return s
}

// closing finds the brace that ends the labels, those within quotes left aside.
func closing(text string) int {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == '}' && !quoted:
			return i
		}
	}
	return -1
}

// label is one label of a sample.
type label struct{ name, value string }

// parseLabels takes the labels apart as far as they can be read.
func parseLabels(text string) []label {
	var out []label
	for {
		text = strings.TrimLeft(text, ", \t")
		eq := strings.IndexByte(text, '=')
		if eq < 0 {
			return out
		}
		name := strings.TrimSpace(text[:eq])
		text = strings.TrimLeft(text[eq+1:], " \t")
		if text == "" || text[0] != '"' {
			return out
		}
		end := 1
		for end < len(text) && text[end] != '"' {
			if text[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(text) {
			return out
		}
		out = append(out, label{name, unescape.Replace(text[1:end])})
		text = text[end+1:]
	}
}

var unescape = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n")

func (s sample) label(name string) string {
	for _, l := range parseLabels(s.labels) {
		if l.name == name {
			return l.value
		}
	}
	return ""
}

// withoutPID is what tells a series from its siblings once they are counted per
// engine and not per process.
func (s sample) withoutPID() string {
	if !strings.Contains(s.labels, "pid") {
		return s.labels
	}
	var b strings.Builder
	for _, l := range parseLabels(s.labels) {
		if l.name != "pid" {
			b.WriteString(l.name + "\xff" + l.value + "\xff")
		}
	}
	return b.String()
}

// first gives the samples of the first of the names that the page has.
func (f families) first(names []string) []sample {
	for _, n := range names {
		if s := f[n]; len(s) > 0 {
			return s
		}
	}
	return nil
}

// series gives one value per engine: of the processes of one engine, each of
// which may export the series, most with a 0, the largest. whole says that no
// series had to be left out.
func series(samples []sample) (values []float64, whole bool) {
	whole = true
	index := map[string]int{}
	for _, s := range samples {
		if s.spoilt {
			whole = false
			continue
		}
		key := s.withoutPID()
		if i, there := index[key]; there {
			values[i] = max(values[i], s.value)
			continue
		}
		index[key] = len(values)
		values = append(values, s.value)
	}
	return values, whole
}

// sum adds up a family over its ranks. It is absent when the page does not have
// it or lacks one of the numbers: a sum without one of its terms is wrong.
func (f families) sum(names ...string) Opt {
	values, whole := series(f.first(names))
	if len(values) == 0 || !whole {
		return Opt{}
	}
	total := 0.0
	for _, v := range values {
		total += v
	}
	return atLeastZero(total)
}

// greatest gives the largest of a family over its ranks.
func (f families) greatest(names ...string) Opt {
	values, _ := series(f.first(names))
	if len(values) == 0 {
		return Opt{}
	}
	top := values[0]
	for _, v := range values[1:] {
		top = max(top, v)
	}
	return atLeastZero(top)
}

// atLeastZero makes what cannot be a count or a fraction absent.
func atLeastZero(v float64) Opt {
	if v < 0 {
		return Opt{}
	}
	return Some(v)
}
