package proxy

import (
	"bytes"
	"encoding/json"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// accessQueue is how many requests may wait to be written, 1 MiB of them.
	accessQueue = 1024
	// accessFlush is how long a line may wait for others to be written with, accessBuffer how many bytes
	// may wait so.
	accessFlush  = time.Second
	accessBuffer = 64 << 10
)

// AccessLog writes a line of JSON for every request, beside the request path: what cannot be written in
// time, or at all, is dropped and counted; what comes later is tried again. Data planes may share one.
// Safe for concurrent use.
type AccessLog struct {
	queue   chan accessed
	dropped atomic.Uint64
	end     sync.Once
	ending  chan struct{}
	done    chan struct{}

	// Of the goroutine that writes:
	w      io.Writer
	buf    bytes.Buffer // whole lines
	lines  uint64       // in buf
	torn   bool         // what was written last does not end with a line
	failed func(error)
	err    error // of the last try to write
}

type accessed struct {
	by *records
	r  record
}

// NewAccessLog begins to write to w, until Close. failed is told when writing begins to fail, by a
// goroutine of its own.
func NewAccessLog(w io.Writer, failed func(error)) *AccessLog {
	l := &AccessLog{queue: make(chan accessed, accessQueue), ending: make(chan struct{}), done: make(chan struct{}), w: w, failed: failed}
	go l.write()
	return l
}

// Close writes what is queued; what comes later is dropped. It gives the error of the last try to
// write, if that failed.
func (l *AccessLog) Close() error {
	l.end.Do(func() { close(l.ending) })
	<-l.done
	return l.err
}

// Dropped is how many requests were not written.
func (l *AccessLog) Dropped() uint64 { return l.dropped.Load() }

func (l *AccessLog) put(by *records, r *record) {
	select {
	case <-l.ending:
		l.dropped.Add(1)
		return
	default:
	}
	select {
	case l.queue <- accessed{by, *r}:
	default:
		l.dropped.Add(1)
	}
}

// accessLine is a decision without what it looked at, which the admin address gives.
type accessLine struct {
	Decision
	Probes *struct{} `json:"probes,omitempty"`
}

func (l *AccessLog) write() {
	defer close(l.done)
	e := json.NewEncoder(&l.buf)
	flush := time.NewTicker(accessFlush)
	defer flush.Stop()
	for {
		select {
		case x := <-l.queue:
			l.line(e, &x)
		case <-flush.C:
			l.flush()
		case <-l.ending:
			for len(l.queue) > 0 {
				x := <-l.queue
				l.line(e, &x)
			}
			l.flush()
			return
		}
	}
}

func (l *AccessLog) line(e *json.Encoder, x *accessed) {
	before := l.buf.Len()
	if err := e.Encode(x.line()); err != nil { // no number of a decision is without a name in JSON
		l.buf.Truncate(before)
		l.dropped.Add(1)
		return
	}
	if l.lines++; l.buf.Len() >= accessBuffer {
		l.flush()
	}
}

// flush writes the lines. Those that a full disk does not take are dropped, one of which it took a part
// included, and the next ones begin a line of their own.
func (l *AccessLog) flush() {
	if l.lines == 0 {
		return
	}
	text := l.buf.Bytes()
	if l.torn {
		text = append([]byte{'\n'}, text...)
	}
	n, err := l.w.Write(text)
	if n > 0 {
		l.torn = text[n-1] != '\n'
	}
	if err != nil {
		l.dropped.Add(l.lines - uint64(bytes.Count(bytes.TrimPrefix(text[:n], newline), newline)))
		if l.err == nil {
			l.failed(err)
		}
	}
	l.err, l.lines = err, 0
	l.buf.Reset()
}

func (x *accessed) line() accessLine {
	return accessLine{Decision: x.r.decision(x.by.id(x.r.sequence), x.by.cluster)}
}
