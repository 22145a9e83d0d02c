package store

import (
	"context"
	"sync"
)

// Store decides who leads. Safe for concurrent use.
type Store interface {
	// Lead blocks until this process leads and returns the new leader's epoch,
	// higher than every epoch before it and
	// than above: an epoch that somebody has seen though the store, having lost its
	// data, knows nothing of it.
	Lead(ctx context.Context, above uint64) (epoch uint64, err error)
	// Close gives leadership up and releases everything.
	Close() error
}

// Memory is a store of one process that forgets. The zero value is ready.
type Memory struct {
	// Last is the last epoch that counts as taken.
	Last uint64

	mu sync.Mutex
}

// Lead returns the next epoch at once.
func (m *Memory) Lead(_ context.Context, above uint64) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Last = max(m.Last, above) + 1
	return m.Last, nil
}

// Close does nothing.
func (m *Memory) Close() error { return nil }
