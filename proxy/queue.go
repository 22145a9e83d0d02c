package proxy

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardrop-lb/wardrop/fleet"
)

// queue holds the requests of one model that wait because every engine is full.
// The most important goes first; among equals, who came first. Safe for concurrent
// use.
type queue struct {
	mu      sync.Mutex
	waiting [fleet.NumPriorities]list.List // of *waiter
	length  atomic.Int64
}

// waiter is one request in a queue.
type waiter struct {
	priority fleet.Priority
	size     int64         // bytes that it holds
	turn     chan struct{} // tells that it may try
	ousted   chan struct{} // closed when a more important one takes its place

	inQueue, inRoom *list.Element // nil when it is not there
}

func newWaiter(priority fleet.Priority, size int64) *waiter {
	return &waiter{priority: priority, size: size, turn: make(chan struct{}, 1), ousted: make(chan struct{})}
}

// The reasons for which a wait ends without success; else it is the context's.
var (
	errOusted = errors.New("more important requests came")
	errWaited = errors.New("it waited for too long")
)

// waitingRoom bounds the bytes that the queues of a data plane hold together. Safe
// for concurrent use.
type waitingRoom struct {
	limit int64

	mu   sync.Mutex
	used [fleet.NumPriorities]int64
	all  [fleet.NumPriorities]list.List // of *waiter, oldest first
}

// enter makes place for a request. If there is none, the newest of the least
// important requests lose theirs, as long as they are less important; none loses
// it in vain.
func (r *waitingRoom) enter(w *waiter) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	free := r.limit
	for _, used := range r.used {
		free -= used
	}
	within := free
	for p := int(w.priority) + 1; p < len(r.used); p++ {
		within += r.used[p]
	}
	if w.size > within {
		return false
	}
	for p := len(r.all) - 1; free < w.size; {
		last := r.all[p].Back()
		if last == nil {
			p--
			continue
		}
		o := last.Value.(*waiter)
		free += o.size
		r.remove(o)
		close(o.ousted)
	}
	w.inRoom = r.all[w.priority].PushBack(w)
	r.used[w.priority] += w.size
	return true
}

// remove takes a request out; r.mu is held.
func (r *waitingRoom) remove(w *waiter) {
	r.all[w.priority].Remove(w.inRoom)
	r.used[w.priority] -= w.size
	w.inRoom = nil
}

// leave gives a request's place back, unless another has it already.
func (r *waitingRoom) leave(w *waiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.inRoom != nil {
		r.remove(w)
	}
}

func (q *queue) empty() bool { return q.length.Load() == 0 }

// wait blocks until try succeeds. Only the first in the queue tries, and tries
// again whenever a request has ended. It gives up after limit, when ctx is done,
// or when its place in the room went to a more important request.
func (q *queue) wait(ctx context.Context, w *waiter, limit time.Duration, try func() bool) error {
	if limit <= 0 {
		return errWaited
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	q.enter(w)
	defer q.leave(w)
	// Room may have come between the last look and the queueing.
	for !q.first(w) || !try() {
		select {
		case <-w.turn:
		case <-w.ousted:
			return errOusted
		case <-timer.C:
			return errWaited
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (q *queue) enter(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.inQueue = q.waiting[w.priority].PushBack(w)
	q.length.Add(1)
}

// head is the waiter whose turn it is; nil in an empty queue. q.mu is held.
func (q *queue) head() *waiter {
	for p := range q.waiting {
		if front := q.waiting[p].Front(); front != nil {
			return front.Value.(*waiter)
		}
	}
	return nil
}

func (q *queue) first(w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.head() == w
}

// leave takes a waiter out and lets the next one try: what woke this one may have
// been meant for both, or have come too late for it.
func (q *queue) leave(w *waiter) {
	q.mu.Lock()
	q.waiting[w.priority].Remove(w.inQueue)
	q.length.Add(-1)
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
	if w := q.head(); w != nil {
		select {
		case w.turn <- struct{}{}:
		default: // it has been told
		}
	}
}
