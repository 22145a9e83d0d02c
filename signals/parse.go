package signals

import (
	"bytes"
	"hash/maphash"
	"math/bits"
	"strconv"
	"strings"
)

// maxSamples bounds the samples taken from one page.
const maxSamples = 20000

// Page is a metrics page as it came. Truncated says that more would have
// followed: the page was too long, or its transfer broke off or ran out of time.
type Page struct {
	Body      []byte
	Truncated bool
}

// sample is one series. labels is the text between the braces and lies in the
// page: copying the labels of every series looked for would cost more than
// reading them.
type sample struct {
	name   int // its number in the vocabulary
	labels []byte
	value  float64
	spoilt bool // the line was there, its value was not a finite number
}

// vocabulary numbers the names that are looked for.
type vocabulary map[string]int

// scan reads a page in Prometheus' text format and keeps the series whose names
// are in the vocabulary. Lines it cannot read are passed over. Of a truncated
// page the last family is left out, since some of it may be missing, and a sum
// over half of an engine's ranks looks like a better engine.
func (v vocabulary) scan(page Page) []sample {
	out := make([]sample, 0, 48)
	var name []byte // of the line before
	id, wanted := 0, false
	for body := page.Body; len(body) > 0 && len(out) < maxSamples; {
		line := body
		if end := bytes.IndexByte(body, '\n'); end >= 0 {
			line, body = body[:end], body[end+1:]
		} else if body = nil; page.Truncated {
			break
		}
		line = trim(line)
		if len(line) == 0 {
			continue
		}
		if line[0] == '#' {
			name, wanted = nil, false // the next family has begun, the one before is whole
			continue
		}
		// Most lines are buckets of the histogram that the line before was of.
		if !startsWith(line, name) {
			name = line[:nameLen(line)]
			id, wanted = v[string(name)]
		}
		if wanted {
			s := parseRest(line[len(name):])
			s.name = id
			out = append(out, s)
		}
	}
	if wanted && (page.Truncated || len(out) == maxSamples) {
		out = without(out, id)
	}
	return out
}

func without(samples []sample, name int) []sample {
	kept := samples[:0]
	for _, s := range samples {
		if s.name != name {
			kept = append(kept, s)
		}
	}
	return kept
}

func blank(c byte) bool { return c == ' ' || c == '\t' }

func trim(line []byte) []byte {
	for len(line) > 0 && blank(line[0]) {
		line = line[1:]
	}
	for len(line) > 0 && (blank(line[len(line)-1]) || line[len(line)-1] == '\r') {
		line = line[:len(line)-1]
	}
	return line
}

// startsWith says whether the line is one of that name.
func startsWith(line, name []byte) bool {
	n := len(name)
	return n > 0 && bytes.HasPrefix(line, name) && (n == len(line) || line[n] == '{' || blank(line[n]))
}

func nameLen(line []byte) int {
	for i, c := range line {
		if c == '{' || blank(c) {
			return i
		}
	}
	return len(line)
}

// parseRest reads what follows the name: labels, the value, then perhaps a
// timestamp or an exemplar. What cannot be read is spoilt.
func parseRest(rest []byte) sample {
	var s sample
	rest = trim(rest)
	if len(rest) > 0 && rest[0] == '{' {
		shut := closing(rest)
		if shut < 0 {
			return sample{spoilt: true}
		}
		s.labels, rest = rest[1:shut], trim(rest[shut+1:])
	}
	end := 0
	for end < len(rest) && !blank(rest[end]) {
		end++
	}
	v, err := strconv.ParseFloat(string(rest[:end]), 64)
	finite := Some(v)
	s.value, s.spoilt = finite.Value, err != nil || !finite.Known
	return s
}

// closing finds the brace that ends the labels, those within quotes left aside.
func closing(text []byte) int {
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

// nextLabel takes the first label off the text. whole is the label as it
// stands, value what is between its quotes, escapes and all. Not ok: there is
// none, or it cannot be read.
func nextLabel(text []byte) (name, value, whole, rest []byte, ok bool) {
	for len(text) > 0 && (blank(text[0]) || text[0] == ',') {
		text = text[1:]
	}
	eq := bytes.IndexByte(text, '=')
	if eq < 0 {
		return nil, nil, nil, text, false
	}
	start := eq + 1
	for start < len(text) && blank(text[start]) {
		start++
	}
	if start >= len(text) || text[start] != '"' {
		return nil, nil, nil, text, false
	}
	end := start + 1
	for end < len(text) && text[end] != '"' {
		if text[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(text) {
		return nil, nil, nil, text, false
	}
	return trim(text[:eq]), text[start+1 : end], text[:end+1], text[end+1:], true
}

// raw gives a label's value as it stands; nil if there is none.
func (s sample) raw(label string) []byte {
	for text := s.labels; ; {
		name, value, _, rest, ok := nextLabel(text)
		if !ok {
			return nil
		}
		if string(name) == label {
			return value
		}
		text = rest
	}
}

var unescape = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n")

// label gives a label's value; "" if there is none.
func (s sample) label(name string) string { return unescape.Replace(string(s.raw(name))) }

// hashSeed makes the keys of series those of this process alone: they are never
// sent, and no page can aim at two that are equal.
var hashSeed = maphash.MakeSeed()

// key tells a series from its siblings by its labels, in whatever order they
// stand, those to be left aside not counted.
func (s sample) key(aside []string) uint64 {
	var key uint64
	for text := s.labels; ; {
		name, _, whole, rest, ok := nextLabel(text)
		if !ok {
			if len(rest) > 0 { // what cannot be read differs by its text
				key += bits.RotateLeft64(maphash.Bytes(hashSeed, rest), 1)
			}
			return key
		}
		if !among(name, aside) {
			key += maphash.Bytes(hashSeed, whole)
		}
		text = rest
	}
}

func among(name []byte, list []string) bool {
	for _, l := range list {
		if string(name) == l {
			return true
		}
	}
	return false
}
