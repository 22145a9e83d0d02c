package proxy

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

// bodyBuffer is a request's body, read whole. Each attempt reads it through a
// reader of its own. The transport may still be writing an attempt's body after
// the response arrived, so the memory returns to the pool when the last reader
// is closed.
type bodyBuffer struct {
	buf  bytes.Buffer
	refs atomic.Int32
}

// pooledMax keeps the pool from hoarding the memory of a few huge bodies.
const pooledMax = 1 << 20

var bodies = sync.Pool{New: func() any { return new(bodyBuffer) }}

var errTooLarge = errors.New("the body is too large")

// readBody reads at most limit bytes; the caller holds one reference.
func readBody(r *http.Request, limit int64) (*bodyBuffer, error) {
	if r.ContentLength > limit {
		return nil, errTooLarge
	}
	b := bodies.Get().(*bodyBuffer)
	b.buf.Reset()
	b.refs.Store(1)
	if r.ContentLength > 0 {
		b.buf.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	_, err := b.buf.ReadFrom(io.LimitReader(r.Body, limit+1))
	if err == nil && int64(b.buf.Len()) > limit {
		err = errTooLarge
	}
	if err != nil {
		b.release()
		return nil, err
	}
	return b, nil
}

func (b *bodyBuffer) release() {
	if b.refs.Add(-1) == 0 && b.buf.Cap() <= pooledMax {
		bodies.Put(b)
	}
}

// reader opens the body for one attempt; closing it releases its reference.
func (b *bodyBuffer) reader() io.ReadCloser {
	b.refs.Add(1)
	return &bodyReader{Reader: bytes.NewReader(b.buf.Bytes()), body: b}
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
