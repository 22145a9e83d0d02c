package history

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"

	"github.com/wardrop-lb/wardrop/suppose"
)

// Source is the history of another member of the control plane.
type Source interface {
	// PlansFrom lists its records from a plan on, that included, the oldest first.
	PlansFrom(ctx context.Context, from [2]uint64) ([]Entry, error)
	// Record writes one of them to w, packed as it is kept.
	Record(ctx context.Context, epoch, version uint64, w io.Writer) error
}

// Packed reads a record as it is kept. The error wraps ErrGone if it is not there.
func (h *History) Packed(epoch, version uint64) (io.ReadCloser, error) {
	h.mu.Lock()
	i, found := h.find(epoch, version)
	var e Entry
	if found {
		e = h.entries[i]
	}
	h.mu.Unlock()
	switch {
	case !found:
		return nil, fmt.Errorf("%w: %d.%d", ErrGone, epoch, version)
	case e.record == nil:
		return os.Open(filepath.Join(h.dir, e.name()))
	}
	var b bytes.Buffer
	if err := pack(&b, e.record); err != nil {
		return nil, err
	}
	return io.NopCloser(&b), nil
}

// pack writes a record as it is kept.
func pack(w io.Writer, r *suppose.Record) error {
	packed, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(packed).Encode(slim(r)), packed.Close())
}

// From lists the records from a plan on, that included, the oldest first.
func (h *History) From(from [2]uint64) []Entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	i, _ := h.find(from[0], from[1])
	return append([]Entry{}, h.entries[i:]...)
}

// Follow takes in what another member has, from a plan on, and is missing here, and gives the
// newest plan that it has: where to go on from. What would only be forgotten again is left where it
// is. It goes on after a record that cannot be had; the error says which.
func (h *History) Follow(ctx context.Context, from [2]uint64, source Source) (newest [2]uint64, err error) {
	list, err := source.PlansFrom(ctx, from)
	if err != nil {
		return from, err
	}
	if len(list) == 0 {
		return from, nil
	}
	last := &list[len(list)-1]
	var errs []error
	for i := len(list) - 1; i >= 0 && ctx.Err() == nil; i-- { // the newest is worth most
		if e := &list[i]; h.wants(e, last.Time) {
			if err := h.fetch(ctx, e, source); err != nil {
				errs = append(errs, fmt.Errorf("plan %d.%d: %w", e.Epoch, e.Version, err))
			}
		}
	}
	if ctx.Err() != nil {
		return from, ctx.Err()
	}
	return [2]uint64{last.Epoch, last.Version}, errors.Join(errs...)
}

// wants tells whether a record is missing and there is room for it, or it is newer than what
// would have to go.
func (h *History) wants(e *Entry, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	i, found := h.find(e.Epoch, e.Version)
	if found {
		return h.entries[i].Revision < e.Revision
	}
	full := h.bytes+e.Bytes > h.limit
	if h.dir == "" {
		full = len(h.entries) >= inMemory
	}
	return now.Sub(e.Time) <= Keep && (!full || i > 0)
}

// fetch takes one record in, if it is one.
func (h *History) fetch(ctx context.Context, e *Entry, source Source) error {
	var raw limited
	if err := source.Record(ctx, e.Epoch, e.Version, &raw); err != nil {
		return err
	}
	return h.take(raw.Bytes())
}

// maxPacked bounds what a record of another member may have, packed, in bytes.
const maxPacked = 64 << 20

// limited is a buffer of at most maxPacked bytes.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > maxPacked {
		return 0, fmt.Errorf("it has more than %d bytes", maxPacked)
	}
	return l.Buffer.Write(p)
}

// take keeps a record that another member has packed.
func (h *History) take(raw []byte) error {
	packed, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	r, err := decode(packed)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, io.LimitReader(packed, maxRecord)); err != nil { // the checksum stands at the end
		return err
	}
	e := entryOf(r)
	if h.dir == "" {
		e.record = r
	} else {
		e.Bytes = int64(len(raw))
		if err := renameio.WriteFile(filepath.Join(h.dir, e.name()), raw, 0o644); err != nil {
			return err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return errors.Join(h.insert(e), h.forget(h.entries[len(h.entries)-1].Time))
}
