package proxy

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// bodyBuffer is a request's body, read whole; each attempt reads it through a
// reader of its own.
//
// A small body is plain memory: http.Transport then knows that the whole request
// is there and sends it with one write; it is used again only if it was never sent,
// as that of a refused request. A large one is pooled. The transport may
// still be writing an attempt's body after the response arrived, so its memory
// returns to the pool when the last reader is closed.
type bodyBuffer struct {
	data   []byte
	pooled *bytes.Buffer // what data lies in; nil for a small body
	small  *[]byte       // what data lies in; nil if that is not ours alone
	sent   atomic.Bool   // an attempt has read it
	refs   atomic.Int32
}

const (
	smallBody = 64 << 10
	// pooledMax keeps the pool from hoarding the memory of a few huge bodies.
	pooledMax = 4 << 20
	// promisedMax is the memory that a client gets for what it only says it will send.
	promisedMax = 1 << 20
	// drainFactor is how many times the limit of a body is read of one that exceeds
	// it.
	drainFactor = 8
)

var (
	bodies      = sync.Pool{New: func() any { return new(bytes.Buffer) }}
	smallBodies = sync.Pool{New: func() any { return new([]byte) }}
)

var errTooLarge = errors.New("the body is too large")

// read reads a request's body of at most limit bytes; the caller holds one
// reference. The error is errTooLarge, errSlow, or why the body could not be read.
func (l *uploads) read(u *upload, r *http.Request, limit int64, now time.Time) (*bodyBuffer, error) {
	if r.ContentLength == 0 {
		return newBody(nil), nil
	}
	u.body, u.chunked = r.Body, r.ContentLength < 0
	l.begin(u, now)
	b, err := u.all(r, limit)
	if slow := l.done(u); slow != nil && !errors.Is(err, errTooLarge) {
		if err == nil {
			b.release()
		}
		return nil, slow
	}
	return b, err
}

// all reads the body.
func (u *upload) all(r *http.Request, limit int64) (*bodyBuffer, error) {
	switch n := r.ContentLength; {
	case n > limit:
		return nil, u.drain(r, limit)
	case n > 0 && n <= smallBody:
		b := newSmallBody(int(n))
		if _, err := io.ReadFull(u, b.data); err != nil {
			b.release()
			return nil, err
		}
		return b, nil
	}
	buf := bodies.Get().(*bytes.Buffer)
	buf.Reset()
	if r.ContentLength > 0 {
		buf.Grow(int(min(r.ContentLength, promisedMax)) + bytes.MinRead)
	}
	b := &bodyBuffer{pooled: buf}
	b.refs.Store(1)
	_, err := buf.ReadFrom(io.LimitReader(u, limit+1))
	if b.data = buf.Bytes(); err == nil && int64(len(b.data)) > limit {
		err = u.drain(r, limit)
	}
	if err != nil {
		b.release()
		return nil, err
	}
	return b, nil
}

// drain reads on for a while past the limit: to a client that writes its whole
// body before it reads, an answer with the connection closed behind it looks like
// a reset. What it reads is not kept. It gives errTooLarge.
func (u *upload) drain(r *http.Request, limit int64) error {
	if r.Header.Get("Expect") == "" { // else the client waits to be told to send it
		_, _ = io.CopyN(io.Discard, u, drainFactor*limit)
	}
	return errTooLarge
}

// newBody makes a body of memory that nobody else writes to.
func newBody(data []byte) *bodyBuffer {
	b := &bodyBuffer{data: data}
	b.refs.Store(1)
	return b
}

// newSmallBody makes a body of n bytes to be read.
func newSmallBody(n int) *bodyBuffer {
	memory := smallBodies.Get().(*[]byte)
	if cap(*memory) < n {
		*memory = make([]byte, n)
	}
	b := newBody((*memory)[:n])
	b.small = memory
	return b
}

func (b *bodyBuffer) release() {
	switch {
	case b.refs.Add(-1) > 0:
	case b.small != nil && !b.sent.Load():
		smallBodies.Put(b.small)
	case b.pooled != nil && b.pooled.Cap() <= pooledMax:
		bodies.Put(b.pooled)
	}
}

// reader opens the body for one attempt; closing it releases its reference.
func (b *bodyBuffer) reader() io.ReadCloser {
	r := bytes.NewReader(b.data)
	if b.pooled == nil {
		b.sent.Store(true)
		return io.NopCloser(r)
	}
	b.refs.Add(1)
	return &bodyReader{Reader: r, body: b}
}

type bodyReader struct {
	*bytes.Reader
	body   *bodyBuffer
	closed atomic.Bool
}

func (r *bodyReader) Close() error {
	if r.closed.CompareAndSwap(false, true) {
		r.body.release()
	}
	return nil
}
