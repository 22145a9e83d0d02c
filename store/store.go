package store

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// Term is a time of leadership.
type Term struct {
	// Epoch is higher than that of every term before.
	Epoch uint64
	// Lost is closed when another may lead; never, if nobody else can.
	Lost <-chan struct{}
}

// Store decides who leads and keeps what operators override. Safe for concurrent use.
type Store interface {
	// Lead blocks until this process leads. The epoch is higher than above, too: one that
	// somebody has seen though the store, having lost its data, knows nothing of it. Called
	// again within a term it gives a higher epoch at once. It fails only when ctx ends or
	// the store can never be used again.
	Lead(ctx context.Context, above uint64) (Term, error)
	// Leader is the name of who leads; empty while nobody does, or it is not known.
	Leader() string
	// Watch calls f with all overrides, sorted by key, now and after every change, until
	// ctx is done. f is called from one goroutine.
	Watch(ctx context.Context, f func([]Override))
	// Put keeps an override in place of the one with its key.
	Put(ctx context.Context, o Override) error
	// Remove forgets an override; false when there is none with that key.
	Remove(ctx context.Context, key string) (bool, error)
	// Close gives leadership up and releases everything.
	Close() error
}

// Override is something that an operator has pinned, against what the configuration and
// the policy say.
type Override struct {
	Kind    string `json:"kind"`
	Subject string `json:"subject,omitempty"` // what it is about; empty for all
	Value   string `json:"value,omitempty"`
	// Reason, if given, is why; By is who said so.
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
	// Set is since when; Until, if not zero, is when it ends by itself.
	Set   time.Time `json:"set"`
	Until time.Time `json:"until,omitzero"`
}

// Key names an override: of one kind there is one by subject.
func (o Override) Key() string {
	if o.Subject == "" {
		return o.Kind
	}
	return o.Kind + "/" + o.Subject
}

func sorted(list []Override) []Override {
	slices.SortFunc(list, func(a, b Override) int { return cmp.Compare(a.Key(), b.Key()) })
	return list
}

// Memory is a store of one process that forgets. The zero value is ready.
type Memory struct {
	// Last is the last epoch that counts as taken.
	Last uint64

	mu        sync.Mutex
	overrides map[string]Override
	changed   chan struct{} // closed at the next change
}

var _ Store = (*Memory)(nil)

// Lead returns the next epoch at once.
func (m *Memory) Lead(_ context.Context, above uint64) (Term, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Last = max(m.Last, above) + 1
	return Term{Epoch: m.Last}, nil
}

// Leader says nothing: there is nobody else.
func (m *Memory) Leader() string { return "" }

// Watch implements Store.
func (m *Memory) Watch(ctx context.Context, f func([]Override)) {
	for {
		list, changed := m.list()
		f(list)
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

func (m *Memory) list() ([]Override, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changed == nil {
		m.changed = make(chan struct{})
	}
	list := make([]Override, 0, len(m.overrides))
	for _, o := range m.overrides {
		list = append(list, o)
	}
	return sorted(list), m.changed
}

// Put implements Store.
func (m *Memory) Put(_ context.Context, o Override) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.overrides == nil {
		m.overrides = map[string]Override{}
	}
	m.overrides[o.Key()] = o
	m.wake()
	return nil
}

// Remove implements Store.
func (m *Memory) Remove(_ context.Context, key string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.overrides[key]
	delete(m.overrides, key)
	m.wake()
	return ok, nil
}

func (m *Memory) wake() {
	if m.changed != nil {
		close(m.changed)
	}
	m.changed = nil
}

// Close does nothing.
func (m *Memory) Close() error { return nil }
