package history

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"

	"github.com/wardrop-lb/wardrop/fleet"
	"github.com/wardrop-lb/wardrop/suppose"
)

const (
	// Keep is how long records are kept.
	Keep = 24 * time.Hour
	// inMemory is how many are kept without a directory.
	inMemory = 64
)

// Entry is a record that there is.
type Entry struct {
	Epoch   uint64 `json:"epoch"`
	Version uint64 `json:"version"`
	// Revision counts how often it was made anew; the highest is the one that is kept.
	Revision int       `json:"revision,omitempty"`
	Time     time.Time `json:"time"`
	Bytes    int64     `json:"bytes,omitempty"` // on disk

	record *suppose.Record // without a directory
}

func (e *Entry) name() string {
	name := fmt.Sprintf("%d-%d-%d", e.Epoch, e.Version, e.Time.UnixMilli())
	if e.Revision > 0 {
		name += fmt.Sprintf("-%d", e.Revision)
	}
	return name + ".json.gz"
}

// named reads the name of a file; false when it is not ours.
func named(name string) (e Entry, ok bool) {
	var milli int64
	_, _ = fmt.Sscanf(name, "%d-%d-%d-%d", &e.Epoch, &e.Version, &milli, &e.Revision) // the last is not always there
	e.Time = time.UnixMilli(milli)
	return e, e.name() == name
}

func (e *Entry) compare(epoch, version uint64) int {
	a, b := [2]uint64{e.Epoch, e.Version}, [2]uint64{epoch, version}
	return slices.Compare(a[:], b[:])
}

// History is the records there are. Safe for concurrent use.
type History struct {
	dir   string
	limit int64 // bytes

	mu      sync.Mutex
	entries []Entry // by epoch and version
	bytes   int64
}

// Open finds what a directory holds, which is created if need be; limit bounds it, in bytes. An
// empty dir keeps the newest few in memory.
func Open(dir string, limit int64) (*History, error) {
	h := &History{dir: dir, limit: limit}
	if dir == "" {
		return h, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	for _, f := range files {
		info, err := f.Info()
		e, ours := named(f.Name())
		if err != nil || !ours {
			continue
		}
		e.Bytes = info.Size()
		if err := h.insert(e); err != nil {
			return nil, fmt.Errorf("history: %w", err)
		}
	}
	return h, nil
}

// find is where the record of a plan is, or would be.
func (h *History) find(epoch, version uint64) (i int, found bool) {
	return slices.BinarySearchFunc(h.entries, [2]uint64{epoch, version}, func(e Entry, at [2]uint64) int { return e.compare(at[0], at[1]) })
}

// insert puts an entry in its place, and forgets the one of a lower revision that was there.
func (h *History) insert(e Entry) error {
	i, found := h.find(e.Epoch, e.Version)
	if !found {
		h.entries = slices.Insert(h.entries, i, e)
		h.bytes += e.Bytes
		return nil
	}
	old := h.entries[i]
	if old.Revision > e.Revision {
		old, e = e, old
	}
	h.bytes += e.Bytes - h.entries[i].Bytes
	h.entries[i] = e
	if old.name() == e.name() {
		return nil
	}
	return h.remove(&old)
}

// remove takes a record from the disk.
func (h *History) remove(e *Entry) error {
	if h.dir == "" {
		return nil
	}
	if err := os.Remove(filepath.Join(h.dir, e.name())); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func entryOf(r *suppose.Record) Entry {
	return Entry{Epoch: r.Epoch, Version: r.Version, Revision: r.Revision, Time: r.Time.Truncate(time.Millisecond).Round(0)}
}

// Add keeps a record, and forgets the oldest beyond a day and the limit. The record is not
// to be changed afterwards.
func (h *History) Add(r *suppose.Record) error {
	e := entryOf(r)
	if h.dir == "" {
		e.record = r
	} else {
		var err error
		if e.Bytes, err = write(filepath.Join(h.dir, e.name()), r); err != nil {
			return fmt.Errorf("history: %w", err)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return errors.Join(h.insert(e), h.forget(r.Time))
}

func (h *History) forget(now time.Time) error {
	var errs []error
	for len(h.entries) > 1 {
		e := &h.entries[0]
		if now.Sub(e.Time) <= Keep && h.bytes <= h.limit && (h.dir != "" || len(h.entries) <= inMemory) {
			break
		}
		errs = append(errs, h.remove(e))
		h.bytes -= e.Bytes
		h.entries = slices.Delete(h.entries, 0, 1)
	}
	return errors.Join(errs...)
}

func write(path string, r *suppose.Record) (int64, error) {
	f, err := renameio.NewPendingFile(path, renameio.WithPermissions(0o644))
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Cleanup() }()
	buffered := bufio.NewWriterSize(f, 1<<16)
	if err := errors.Join(pack(buffered, r), buffered.Flush()); err != nil {
		return 0, err
	}
	size, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, err
	}
	return size, f.CloseAtomicallyReplace()
}

// slim leaves out what of a plan nobody is sent.
func slim(r *suppose.Record) *suppose.Record {
	out, plan := *r, *r.Plan
	plan.Rows = slices.Clone(plan.Rows)
	for i := range plan.Rows {
		plan.Rows[i].Arcs = slices.DeleteFunc(slices.Clone(plan.Rows[i].Arcs), func(a fleet.Arc) bool { return a.Weight == 0 })
	}
	out.Plan = &plan
	return &out
}

// Entries lists the records, the oldest first.
func (h *History) Entries() []Entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.entries)
}

// ErrGone reports plans that are not recorded.
var ErrGone = errors.New("there is no record of that plan")

// Span reads the records from one to another, both included, the oldest first. The error
// wraps ErrGone if one of the two is not there.
func (h *History) Span(from, to [2]uint64) ([]*suppose.Record, error) {
	entries := h.Entries()
	find := func(at [2]uint64) (int, error) {
		i, found := slices.BinarySearchFunc(entries, at, func(e Entry, at [2]uint64) int { return e.compare(at[0], at[1]) })
		if !found {
			return 0, fmt.Errorf("%w: %d.%d; %s", ErrGone, at[0], at[1], span(entries))
		}
		return i, nil
	}
	first, err := find(from)
	if err != nil {
		return nil, err
	}
	last, err := find(to)
	if err != nil {
		return nil, err
	}
	if first > last {
		return nil, fmt.Errorf("%d.%d is after %d.%d", from[0], from[1], to[0], to[1])
	}
	out := make([]*suppose.Record, 0, last-first+1)
	for i := first; i <= last; i++ {
		r, err := h.read(&entries[i])
		if err != nil {
			return nil, fmt.Errorf("plan %d.%d: %w", entries[i].Epoch, entries[i].Version, err)
		}
		out = append(out, r)
	}
	return out, nil
}

func span(entries []Entry) string {
	if len(entries) == 0 {
		return "none is recorded yet"
	}
	a, b := &entries[0], &entries[len(entries)-1]
	return fmt.Sprintf("there are %d.%d to %d.%d", a.Epoch, a.Version, b.Epoch, b.Version)
}

// Read gives the record of an entry, not to be changed. The error says that it is gone, or what is
// wrong with it.
func (h *History) Read(e Entry) (*suppose.Record, error) { return h.read(&e) }

func (h *History) read(e *Entry) (*suppose.Record, error) {
	if e.record != nil {
		return e.record, nil
	}
	f, err := os.Open(filepath.Join(h.dir, e.name()))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	packed, err := gzip.NewReader(bufio.NewReaderSize(f, 1<<16))
	if err != nil {
		return nil, err
	}
	return decode(packed)
}

// maxRecord bounds what a record unpacks to, in bytes.
const maxRecord = 1 << 30

func decode(r io.Reader) (*suppose.Record, error) {
	out := &suppose.Record{}
	if err := json.NewDecoder(io.LimitReader(r, maxRecord)).Decode(out); err != nil {
		return nil, err
	}
	if out.View == nil || out.Plan == nil {
		return nil, errors.New("it holds no plan")
	}
	for _, row := range out.Plan.Rows {
		for _, a := range row.Arcs {
			if a.Engine < 0 || int(a.Engine) >= len(out.Plan.Engines) {
				return nil, errors.New("it names an engine that it does not describe")
			}
		}
	}
	return out, out.View.Validate()
}

// Parse reads a plan's number as people write it: EPOCH.VERSION.
func Parse(s string) ([2]uint64, error) {
	var at [2]uint64
	var rest string
	if n, _ := fmt.Sscanf(s+" ", "%d.%d%s", &at[0], &at[1], &rest); n != 2 || strings.TrimSpace(s) != fmt.Sprintf("%d.%d", at[0], at[1]) {
		return at, fmt.Errorf("%q is no plan: write it EPOCH.VERSION, like 3.17", s)
	}
	return at, nil
}
