package config

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

type position struct{ line, column int }

// Problem is one mistake in a file. Line and Column count from 1.
type Problem struct {
	File    string
	Line    int
	Column  int
	Message string
}

func (p Problem) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message)
}

// Problems is every mistake of a file, in the order of their lines.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].Error()
	}
	return strings.Join(lines, "\n")
}

func (p Problems) sorted() Problems {
	slices.SortStableFunc(p, func(a, b Problem) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return p
}

// decoder fills structs from YAML nodes, collecting every mistake and the
// position of every key.
type decoder struct {
	file      string
	positions map[string]position
	problems  Problems
}

func (d *decoder) fail(n *yaml.Node, format string, args ...any) {
	d.problems = append(d.problems, Problem{d.file, max(n.Line, 1), max(n.Column, 1), fmt.Sprintf(format, args...)})
}

// decode fills the struct behind into.
func (d *decoder) decode(data []byte, into any) {
	if root := d.root(data); root != nil {
		d.value(root, reflect.ValueOf(into).Elem(), "")
	}
}

// root reads YAML; nil, and a problem, when there is none.
func (d *decoder) root(data []byte) *yaml.Node {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		d.syntax(err)
		return nil
	}
	if len(doc.Content) == 0 {
		d.fail(&doc, "the file is empty: it needs at least clusters and engines")
		return nil
	}
	return doc.Content[0]
}

// syntax reports YAML's own error, whose text carries the line.
func (d *decoder) syntax(err error) {
	line, text := 1, strings.TrimPrefix(err.Error(), "yaml: ")
	if n, _ := fmt.Sscanf(text, "line %d:", &line); n == 1 {
		_, text, _ = strings.Cut(text, ": ")
	}
	d.problems = append(d.problems, Problem{d.file, line, 1, "not YAML: " + text})
}

func (d *decoder) value(n *yaml.Node, v reflect.Value, path string) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if path != "" {
		d.positions[path] = position{n.Line, n.Column}
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		d.text(n, u, path)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.mapping(n, path, func(key, value *yaml.Node) { d.field(key, value, v, path) })
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		d.mapping(n, path, func(key, value *yaml.Node) {
			e := reflect.New(v.Type().Elem()).Elem()
			d.value(value, e, join(path, key.Value))
			v.SetMapIndex(reflect.ValueOf(key.Value), e)
		})
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			d.fail(n, "%s: want a list, got %s", path, describe(n))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
		for i, item := range n.Content {
			d.value(item, v.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
	default:
		if n.Kind != yaml.ScalarNode || n.Tag == "!!null" || n.Decode(v.Addr().Interface()) != nil {
			d.fail(n, "%s: want %s, got %s", path, kindName(v.Kind()), describe(n))
		}
	}
}

func (d *decoder) text(n *yaml.Node, u encoding.TextUnmarshaler, path string) {
	if n.Kind != yaml.ScalarNode {
		d.fail(n, "%s: want a single value, got %s", path, describe(n))
	} else if err := u.UnmarshalText([]byte(n.Value)); err != nil {
		d.fail(n, "%s: %v", path, err)
	}
}

func (d *decoder) mapping(n *yaml.Node, path string, each func(key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		if path == "" {
			path = "the file"
		}
		d.fail(n, "%s: want keys and values, got %s", path, describe(n))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if line, ok := seen[key.Value]; ok {
			d.fail(key, "%s: already set on line %d", join(path, key.Value), line)
			continue
		}
		seen[key.Value] = key.Line
		each(key, n.Content[i+1])
	}
}

func (d *decoder) field(key, value *yaml.Node, v reflect.Value, path string) {
	known := keys(v.Type())
	i := slices.Index(known, key.Value)
	if i < 0 || key.Value == "" { // "" is what keys calls a field without one
		where := ""
		if path != "" {
			where = " in " + path
		}
		d.fail(key, "unknown key %q%s%s", key.Value, where, suggestion(key.Value, known))
		return
	}
	d.value(value, v.Field(i), join(path, key.Value))
}

// keys gives the YAML keys of a struct's fields, "" for those without one.
func keys(t reflect.Type) []string {
	out := make([]string, t.NumField())
	for i := range out {
		out[i] = t.Field(i).Tag.Get("yaml")
	}
	return out
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "keys and values"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		if n.Tag == "!!null" {
			return "nothing"
		}
		return fmt.Sprintf("%q", n.Value)
	}
	return "nothing"
}

func kindName(k reflect.Kind) string {
	switch k {
	case reflect.String:
		return "text"
	case reflect.Float64:
		return "a number"
	case reflect.Int:
		return "a whole number"
	case reflect.Bool:
		return "true or false"
	}
	return k.String()
}

// suggestion names the nearest known word if one is near, else all of them.
func suggestion(word string, known []string) string {
	best, distance := "", 3
	for _, k := range known {
		if k == "" {
			continue
		}
		if n := editDistance(word, k); n < distance && n < len(k) {
			best, distance = k, n
		}
	}
	if best != "" {
		return fmt.Sprintf(": did you mean %q?", best)
	}
	all := slices.DeleteFunc(slices.Clone(known), func(s string) bool { return s == "" })
	if len(all) == 0 || len(all) > 12 {
		return ""
	}
	return ": known are " + strings.Join(all, ", ")
}

// editDistance is Levenshtein's: insertions, deletions and substitutions.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
