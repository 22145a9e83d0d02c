package proxy

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// accessQueue is how many requests may wait to be written, 1 MiB of them.
	accessQueue = 1024
	// accessFlush is how long a line may wait for others to be written with.
	accessFlush = time.Second
)

// AccessLog writes a line of JSON for every request, beside the request path: what cannot be written in
// time is dropped and counted. Data planes may share one. Safe for concurrent use.
type AccessLog struct {
	queue   chan accessed
	dropped atomic.Uint64
	end     sync.Once
	ending  chan struct{}
	done    chan struct{}
	err     error
}

type accessed struct {
	by *records
	r  record
}

// NewAccessLog begins to write to w, until Close.
func NewAccessLog(w io.Writer) *AccessLog {
	l := &AccessLog{queue: make(chan accessed, accessQueue), ending: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(l.done)
		l.err = l.write(w)
	}()
	return l
}

// Close writes what is queued; what comes later is dropped. It gives the error that ended the
// writing, if one did.
func (l *AccessLog) Close() error {
	l.end.Do(func() { close(l.ending) })
	<-l.done
	return l.err
}

// Dropped is how many requests were not written.
func (l *AccessLog) Dropped() uint64 { return l.dropped.Load() }

func (l *AccessLog) put(by *records, r *record) {
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

func (l *AccessLog) write(w io.Writer) error {
	out := bufio.NewWriterSize(w, 64<<10)
	e := json.NewEncoder(out)
	flush := time.NewTicker(accessFlush)
	defer flush.Stop()
	for {
		var err error
		select {
		case x := <-l.queue:
			err = e.Encode(x.line())
		case <-flush.C:
			err = out.Flush()
		case <-l.ending:
			for len(l.queue) > 0 && err == nil {
				x := <-l.queue
				err = e.Encode(x.line())
			}
			return errors.Join(err, out.Flush())
		}
		if err != nil {
			return err
		}
	}
}

func (x *accessed) line() accessLine {
	return accessLine{Decision: x.r.decision(x.by.id(x.r.sequence), x.by.cluster)}
}
