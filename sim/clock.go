package sim

import "time"

// event is something that happens at a time. Those of one time happen in the order
// in which they were made.
type event struct {
	at     time.Duration
	order  uint64
	kind   kind
	index  int32 // of the source or the engine
	stamp  uint32
	sender *Request
	call   func()
}

type kind uint8

const (
	arrival  kind = iota // of a source's next request
	delivery             // of a request at its engine
	wake                 // of an engine that has something to do
	answer               // of an engine's news about a request at its cluster
	broken               // of an attempt that ended without an answer
	calling              // of a function
)

// clock orders events: a heap of four children a node, for its nodes are large and
// its depth is what a run pays for.
type clock struct {
	now   time.Duration
	next  uint64
	queue []event
}

func (c *clock) add(e event) {
	e.order = c.next
	c.next++
	c.queue = append(c.queue, e)
	i := len(c.queue) - 1
	for i > 0 {
		up := (i - 1) / 4
		if !before(&c.queue[i], &c.queue[up]) {
			break
		}
		c.queue[i], c.queue[up] = c.queue[up], c.queue[i]
		i = up
	}
}

// take removes the first event; false when there is none.
func (c *clock) take() (event, bool) {
	if len(c.queue) == 0 {
		return event{}, false
	}
	first := c.queue[0]
	last := len(c.queue) - 1
	moved := c.queue[last]
	c.queue[last] = event{}
	c.queue = c.queue[:last]
	if last > 0 {
		c.sink(moved)
	}
	c.now = first.at
	return first, true
}

func (c *clock) sink(e event) {
	i, n := 0, len(c.queue)
	for {
		least := 4*i + 1
		if least >= n {
			break
		}
		for j := least + 1; j < min(4*i+5, n); j++ {
			if before(&c.queue[j], &c.queue[least]) {
				least = j
			}
		}
		if !before(&c.queue[least], &e) {
			break
		}
		c.queue[i] = c.queue[least]
		i = least
	}
	c.queue[i] = e
}

func before(a, b *event) bool { return a.at < b.at || a.at == b.at && a.order < b.order }
