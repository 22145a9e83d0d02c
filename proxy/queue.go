package proxy

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// queue holds the requests of one model that wait because every engine is full:
// first come, first served, bounded in bytes and time. Safe for concurrent use.
type queue struct {
	mu      sync.Mutex
	waiting list.List // of waiter
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

// waiter is one request in a queue; turn is told when it may try.
type waiter struct{ turn chan struct{} }

func (q *queue) empty() bool { return q.length.Load() == 0 }

// wait blocks until try succeeds. Only the first in the queue tries, and tries
// again whenever a request has ended. It gives up after limit, or when ctx is done.
func (q *queue) wait(ctx context.Context, limit time.Duration, try func() bool) bool {
	if limit <= 0 {
		return false
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	w := waiter{turn: make(chan struct{}, 1)}
	place := q.enter(w)
	defer q.leave(place)
	// Room may have come between the last look and the queueing.
	for !q.first(place) || !try() {
		select {
		case <-w.turn:
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func (q *queue) enter(w waiter) *list.Element {
	q.mu.Lock()
	defer q.mu.Unlock()
	place := q.waiting.PushBack(w)
	q.length.Store(int64(q.waiting.Len()))
	return place
}

func (q *queue) first(place *list.Element) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting.Front() == place
}

// leave takes a waiter out and lets the next one try: what woke this one may have
// been meant for both, or have come too late for it.
func (q *queue) leave(place *list.Element) {
	q.mu.Lock()
	q.waiting.Remove(place)
	q.length.Store(int64(q.waiting.Len()))
	q.mu.Unlock()
	q.wake()
}

// wake lets the first waiter try.
func (q *queue) wake() {
	if q.empty() {
		return // the usual case takes no lock
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if head := q.waiting.Front(); head != nil {
		select {
		case head.Value.(waiter).turn <- struct{}{}:
		default: // it has been told
		}
	}
}
