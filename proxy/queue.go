package proxy

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// queue holds the requests of one model that wait because every engine is full:
// first come, first served, bounded in bytes and time. Safe for concurrent use.
type queue struct {
	mu      sync.Mutex
	waiting []chan struct{}
	length  atomic.Int64
}

// waitingBytes bounds what all queues of a data plane hold.
type waitingBytes struct {
	mu    sync.Mutex
	used  int64
	limit int64
}

func (w *waitingBytes) take(n int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.used+n > w.limit {
		return false
	}
	w.used += n
	return true
}

func (w *waitingBytes) give(n int64) {
	w.mu.Lock()
	w.used -= n
	w.mu.Unlock()
}

// wait blocks until try succeeds, asking it whenever a request has ended. It
// gives up after limit, or when ctx is done.
func (q *queue) wait(ctx context.Context, limit time.Duration, try func() bool) bool {
	if limit <= 0 {
		return false
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		turn := make(chan struct{})
		q.mu.Lock()
		q.waiting = append(q.waiting, turn)
		q.length.Store(int64(len(q.waiting)))
		q.mu.Unlock()
		// Room may have come between the last look and the queueing.
		if try() {
			q.leave(turn)
			return true
		}
		select {
		case <-turn:
			if try() {
				return true
			}
		case <-timer.C:
			q.leave(turn)
			return false
		case <-ctx.Done():
			q.leave(turn)
			return false
		}
	}
}

// leave takes a waiter out; one that was woken meanwhile passes its turn on.
func (q *queue) leave(turn chan struct{}) {
	q.mu.Lock()
	for i, w := range q.waiting {
		if w == turn {
			q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
			q.length.Store(int64(len(q.waiting)))
			q.mu.Unlock()
			return
		}
	}
	q.mu.Unlock()
	q.wake()
}

// wake gives the first waiter its turn.
func (q *queue) wake() {
	if q.length.Load() == 0 {
		return // the usual case takes no lock
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) > 0 {
		close(q.waiting[0])
		q.waiting = q.waiting[1:]
		q.length.Store(int64(len(q.waiting)))
	}
}
