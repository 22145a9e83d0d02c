package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/wardrop-lb/wardrop/route"
)

// Fields is what routing needs of a request's body.
type Fields struct {
	Model     string
	Stream    bool
	MaxTokens int64 // 0 when the body does not say
	KeySource route.KeySource
	Key       []byte // the affinity key; it points into the body
}

// prefixBytes is how much of a completion's prompt makes its affinity key.
const prefixBytes = 1024

var errNotObject = errors.New("the body is not a JSON object")

// Sniff walks a JSON body strictly: duplicate keys, bad UTF-8, wrong types and
// trailing bytes are errors, because an engine could read such a body in another
// way than we do. It makes one pass and decodes only what it needs.
//
// The affinity key is, in this order: prompt_cache_key, conversation or
// previous_response_id, the messages up to and including the first of the user,
// the leading bytes of the prompt.
func Sniff(body []byte) (Fields, error) {
	var f Fields
	d := jsontext.NewDecoder(bytes.NewBuffer(body))
	t, err := d.ReadToken()
	if err != nil || t.Kind() != '{' {
		return f, errNotObject
	}
	for d.PeekKind() != '}' {
		t, err := d.ReadToken()
		if err != nil {
			return f, tidy(err)
		}
		if err := f.field(d, t.String()); err != nil {
			return f, tidy(err)
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return f, tidy(err)
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return f, errors.New("there is more after the JSON object")
	}
	if f.Model == "" {
		return f, errors.New("no model: name one in \"model\"")
	}
	return f, nil
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
		f.Model, err = text(d, key)
	case "stream":
		f.Stream, err = boolean(d, key)
	case "max_tokens", "max_completion_tokens", "max_output_tokens":
		f.MaxTokens, err = number(d, key)
	case "prompt_cache_key":
		err = f.explicit(d, route.KeyPromptCache)
	case "conversation", "previous_response_id":
		err = f.explicit(d, route.KeyConversation)
	case "messages":
		err = f.messages(d)
	case "prompt":
		err = f.prompt(d)
	default:
		err = d.SkipValue()
	}
	return err
}

// offer takes a key unless a better source has given one: lower is better, but
// none.
func (f *Fields) offer(source route.KeySource, key []byte) {
	if f.KeySource == route.KeyNone || source < f.KeySource {
		f.KeySource, f.Key = source, key
	}
}

func (f *Fields) explicit(d *jsontext.Decoder, source route.KeySource) error {
	v, err := d.ReadValue()
	if err == nil && v.Kind() != 'n' && string(v) != `""` {
		f.offer(source, bytes.Clone(v))
	}
	return err
}

// messages takes the conversation's beginning: it stays the same from turn to
// turn, so that a conversation stays with its cache.
func (f *Fields) messages(d *jsontext.Decoder) error {
	if d.PeekKind() != '[' {
		return d.SkipValue()
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	var key []byte
	for open := true; d.PeekKind() != ']'; {
		if !open {
			if err := d.SkipValue(); err != nil {
				return err
			}
			continue
		}
		v, err := d.ReadValue()
		if err != nil {
			return err
		}
		key = append(key, v...)
		open = role(v) != "user"
	}
	if len(key) > 0 {
		f.offer(route.KeyPrefix, key)
	}
	_, err := d.ReadToken()
	return err
}

// role finds a message's role; empty when it has none.
func role(message jsontext.Value) string {
	d := jsontext.NewDecoder(bytes.NewBuffer(message))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return ""
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return ""
		}
		if name.String() == "role" && d.PeekKind() == '"' {
			t, _ := d.ReadToken()
			return t.String()
		}
		if d.SkipValue() != nil {
			return ""
		}
	}
	return ""
}

func (f *Fields) prompt(d *jsontext.Decoder) error {
	v, err := d.ReadValue()
	if err == nil && len(v) > 0 {
		f.offer(route.KeyPrefix, bytes.Clone(v[:min(len(v), prefixBytes)]))
	}
	return err
}

func text(d *jsontext.Decoder, key string) (string, error) {
	if d.PeekKind() != '"' {
		return "", wrongType(d, key, "a string")
	}
	t, err := d.ReadToken()
	return t.String(), err
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
