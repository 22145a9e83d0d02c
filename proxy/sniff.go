package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/wardrop-lb/wardrop/route"
)

// Fields is what routing needs of a request's body.
type Fields struct {
	Model     string
	Stream    bool
	MaxTokens int64 // 0 when the body does not say

	// KeySource and Key are the explicit affinity key, KeyNone without one. Key
	// points into memory of its own.
	KeySource route.KeySource
	Key       []byte
	// Prefix is the chain of the prompt's leading blocks; it makes the key where
	// there is no explicit one.
	Prefix route.Prefix

	// Previous is the previous_response_id.
	Previous string

	// modelAt is where the model's value stands in the body, quotes included.
	modelAt [2]int
}

var errNotObject = errors.New("the body is not a JSON object")

// Sniff walks a JSON body strictly: duplicate keys, bad UTF-8, wrong types and
// trailing bytes are errors, because an engine could read such a body in another
// way than we do. It makes one pass and decodes only what it needs.
//
// The explicit key is prompt_cache_key, else conversation or
// previous_response_id. The prefix is made of system, messages, input and prompt,
// in the order in which they stand.
func Sniff(body []byte) (Fields, error) {
	var f Fields
	err := f.sniff(body, nil)
	return f, err
}

// stopper may end a walk as soon as it knows the model.
type stopper interface{ stops(model string) bool }

// errStopped is the error of a walk that its stopper ended.
var errStopped = errors.New("the walk was ended")

// walker is a decoder over bytes that are there already.
type walker struct {
	jsontext.Decoder
	buf bytes.Buffer
}

var walkers = sync.Pool{New: func() any { return new(walker) }}

func (f *Fields) sniff(body []byte, s stopper) error {
	w := walkers.Get().(*walker)
	defer walkers.Put(w)
	w.buf = *bytes.NewBuffer(body)
	w.Reset(&w.buf)
	err := f.walk(&w.Decoder, s)
	w.buf = bytes.Buffer{} // the pool keeps no body
	return err
}

func (f *Fields) walk(d *jsontext.Decoder, s stopper) error {
	t, err := d.ReadToken()
	if err != nil || t.Kind() != '{' {
		return errNotObject
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadValue()
		if err != nil {
			return tidy(err)
		}
		key := fieldName(name)
		if err := f.field(d, key); err != nil {
			return tidy(err)
		}
		if s != nil && key == "model" && s.stops(f.Model) {
			return errStopped
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return tidy(err)
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the JSON object")
	}
	if f.Model == "" {
		return errors.New("no model: name one in \"model\"")
	}
	return nil
}

// fieldNames are those of the fields that are looked at, by how they are usually written.
var fieldNames = func() map[string]string {
	m := map[string]string{}
	for _, name := range []string{
		"model", "stream", "max_tokens", "max_completion_tokens", "max_output_tokens", "prompt_cache_key", "conversation",
		"previous_response_id", "messages", "input", "prompt", "system",
	} {
		m[`"`+name+`"`] = name
	}
	return m
}()

// fieldName is the name of a field as it is written, "" of one that is not looked at.
func fieldName(v jsontext.Value) string {
	if bytes.IndexByte(v, '\\') < 0 {
		return fieldNames[string(v)]
	}
	name, _ := jsontext.AppendUnquote(nil, v) // it was checked
	return string(name)
}

// tidy shortens a decoder's error to what a client can use.
func tidy(err error) error {
	var syntactic *jsontext.SyntacticError
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return errors.New("a key is there twice")
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return errors.New("the JSON ends too early")
	case errors.As(err, &syntactic):
		return fmt.Errorf("not JSON at byte %d: %w", syntactic.ByteOffset, syntactic.Err)
	}
	return err
}

func (f *Fields) field(d *jsontext.Decoder, key string) (err error) {
	switch key {
	case "model":
		err = f.model(d)
	case "stream":
		f.Stream, err = boolean(d, key)
	case "max_tokens", "max_completion_tokens", "max_output_tokens":
		f.MaxTokens, err = number(d, key)
	case "prompt_cache_key":
		err = f.explicit(d, route.KeyPromptCache)
	case "conversation":
		err = f.explicit(d, route.KeyConversation)
	case "previous_response_id":
		err = f.previous(d)
	case "messages", "input":
		err = f.parts(d)
	case "prompt", "system":
		err = f.part(d)
	default:
		err = d.SkipValue()
	}
	return err
}

// maxName bounds a model's name as it is written, in bytes.
const maxName = 1 << 10

func (f *Fields) model(d *jsontext.Decoder) error {
	if d.PeekKind() != '"' {
		return wrongType(d, "model", "a string")
	}
	v, err := d.ReadValue()
	if err != nil {
		return err
	}
	if len(v) > maxName {
		return errors.New("\"model\" is too long") // it would be remembered and echoed
	}
	end := int(d.InputOffset())
	f.modelAt = [2]int{end - len(v), end}
	name, err := jsontext.AppendUnquote(nil, v)
	f.Model = string(name)
	return err
}

// explicit takes a value as key, unless it is empty.
func (f *Fields) explicit(d *jsontext.Decoder, source route.KeySource) error {
	v, err := d.ReadValue()
	if err != nil || v.Kind() == 'n' || string(v) == `""` {
		return err
	}
	f.offer(source, v)
	return nil
}

// previous takes the response that this one goes on from.
func (f *Fields) previous(d *jsontext.Decoder) error {
	v, err := d.ReadValue()
	if err != nil || v.Kind() != '"' || string(v) == `""` {
		return err
	}
	f.offer(route.KeyConversation, v)
	id, err := jsontext.AppendUnquote(nil, v)
	f.Previous = string(id)
	return err
}

// offer takes a key unless a better source has given one.
func (f *Fields) offer(source route.KeySource, v jsontext.Value) {
	if f.KeySource == route.KeyNone || source < f.KeySource {
		f.KeySource, f.Key = source, bytes.Clone(v)
	}
}

// parts adds the elements of a list to the prefix, each a part of its own: a
// conversation's chain begins alike from turn to turn.
func (f *Fields) parts(d *jsontext.Decoder) error {
	if d.PeekKind() != '[' {
		return f.part(d)
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() != ']' {
		if err := f.part(d); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}

// part adds one value to the prefix. A string counts without its quotes, so that
// a prompt that grew still begins alike.
func (f *Fields) part(d *jsontext.Decoder) error {
	if f.Prefix.Full() {
		return d.SkipValue()
	}
	v, err := d.ReadValue()
	if err != nil {
		return err
	}
	if v.Kind() == '"' {
		v = v[1 : len(v)-1]
	}
	f.Prefix.Add(v)
	return nil
}

func boolean(d *jsontext.Decoder, key string) (bool, error) {
	switch d.PeekKind() {
	case 't', 'f':
		t, err := d.ReadToken()
		return t.Kind() == 't', err
	case 'n':
		return false, d.SkipValue()
	}
	return false, wrongType(d, key, "true or false")
}

func number(d *jsontext.Decoder, key string) (int64, error) {
	switch d.PeekKind() {
	case '0':
		t, err := d.ReadToken()
		if err != nil {
			return 0, err
		}
		x, err := t.Float()
		return int64(min(max(x, 0), 1<<40)), err
	case 'n':
		return 0, d.SkipValue()
	}
	return 0, wrongType(d, key, "a number")
}

// wrongType reports a value of the wrong type, or the syntax error it hides.
func wrongType(d *jsontext.Decoder, key, want string) error {
	if err := d.SkipValue(); err != nil {
		return err
	}
	return fmt.Errorf("%q must be %s", key, want)
}
