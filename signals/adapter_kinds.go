package signals

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Reading is what an adapter got out of an engine. Start names the run of the
// engine's process: it differs after a restart. It is "" where the engine does
// not tell.
type Reading struct {
	Values
	Start string
}

// Get fetches a path below the engine's URL. The answer has status 200, else
// the error is a *StatusError. Its page is bounded.
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
	return fmt.Sprintf("%s: %d %s", e.Path, e.Code, http.StatusText(e.Code))
}

// Adapter reads engines of one kind. An adapter belongs to one engine and is
// used by one goroutine at a time; it may remember what does not change.
type Adapter interface {
	// Read makes one reading. The error says why there is none: the engine
	// cannot be reached, or its answer says nothing of what is looked for.
	Read(ctx context.Context, get Get) (Reading, error)
}

// KindNone is the kind of engines that export nothing. They are not scraped.
const KindNone = "none"

var kinds = map[string]func() Adapter{
	"vllm":     func() Adapter { return vllm{} },
	"llamacpp": func() Adapter { return &llamacpp{} },
}

// Kinds gives the names of the engine kinds, sorted.
func Kinds() []string {
	names := []string{KindNone}
	for k := range kinds {
		names = append(names, k)
	}
	slices.Sort(names)
	return names
}

// NewAdapter makes the adapter of one engine of that kind; nil for KindNone.
func NewAdapter(kind string) (Adapter, error) {
	if kind == KindNone {
		return nil, nil
	}
	fresh, ok := kinds[kind]
	if !ok {
		return nil, fmt.Errorf("unknown engine kind %q: want one of %s", kind, strings.Join(Kinds(), ", "))
	}
	return fresh(), nil
}

var errNothing = errors.New("the page has none of the series looked for")
