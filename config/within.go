package config

import (
	"fmt"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Places knows where the keys of a file stand, for who checks their meaning. A path
// is written as errors show it: events[2].at.
type Places struct {
	file      string
	positions map[string]position
	problems  Problems
}

// Has says whether the file has a key.
func (p *Places) Has(path string) bool {
	_, ok := p.positions[path]
	return ok
}

// Fail records what is wrong with a key, at its place or its nearest parent's.
func (p *Places) Fail(path, format string, args ...any) {
	p.problems = append(p.problems, place(p.file, p.positions, path, fmt.Sprintf(format, args...)))
}

// Err is what Fail recorded, in the order of the file; nil when nothing.
func (p *Places) Err() error {
	if len(p.problems) == 0 {
		return nil
	}
	return p.problems.sorted()
}

// Within decodes a file that holds a configuration under one of its keys, and
// whatever else the struct behind rest has keys for. name stands in errors, which
// are Problems. Without the key the configuration is nil.
func Within(name string, data []byte, key string, rest any) (*Config, *Places, error) {
	outer := decoder{file: name, positions: map[string]position{}}
	root := outer.root(data)
	if root == nil {
		return nil, nil, outer.problems
	}
	inner := take(root, key)
	outer.value(root, reflect.ValueOf(rest).Elem(), "")
	var c *Config
	if inner != nil {
		c = &Config{file: name, data: data, positions: map[string]position{"": {inner.Line, inner.Column}}}
		d := decoder{file: name, positions: c.positions}
		d.value(inner, reflect.ValueOf(c).Elem(), "")
		if len(d.problems) == 0 {
			d.problems = c.validateFixed()
		}
		outer.problems = append(outer.problems, d.problems...)
		c.setDefaults()
	}
	if len(outer.problems) > 0 {
		return nil, nil, outer.problems.sorted()
	}
	return c, &Places{file: name, positions: outer.positions}, nil
}

// validateFixed is validate where nothing can be found: within another file.
func (c *Config) validateFixed() Problems {
	k := &checker{c: c}
	if len(c.Discover) > 0 {
		k.fail("discover", "nothing is found here: write the engines down")
	}
	for i, e := range c.Engines {
		if len(e.Models) == 0 && e.URL != "" {
			k.fail(fmt.Sprintf("engines[%d].models", i), "none: nothing is read from engines here, write them down")
		}
	}
	return append(k.problems, c.validate()...)
}

// take removes a key from a mapping and gives its value, nil when it is not there.
func take(n *yaml.Node, key string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			value := n.Content[i+1]
			n.Content = slices.Delete(n.Content, i, i+2)
			return value
		}
	}
	return nil
}
