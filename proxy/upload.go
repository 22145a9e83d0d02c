package proxy

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// uploadLeast is how many bytes of a body must come in each upload_timeout, unless
// it ends sooner. What came before earns no rest: a large part of a body would
// otherwise pay for hours of holding it.
const uploadLeast = 16 << 10

// errSlow is why a body's reading ends that did not go on.
var errSlow = errors.New("the body came too slowly")

// upload reads a request's body and ends the reading when the body does not go
// on. It looks only now and then, so that a body which is there costs one timer.
type upload struct {
	body    io.Reader
	chunked bool
	window  time.Duration
	end     func(time.Time) error // sets the deadline of the connection's reads

	mu    sync.Mutex
	timer *time.Timer
	got   int  // bytes since the last look
	over  bool // the reading is done
	slow  bool
}

// newUpload begins to watch a body; a window of 0 watches nothing. done must be
// called when the reading is over.
func newUpload(w http.ResponseWriter, r *http.Request, window time.Duration) *upload {
	u := &upload{body: r.Body, chunked: r.ContentLength < 0, window: window}
	if window > 0 {
		u.end = http.NewResponseController(w).SetReadDeadline
		u.mu.Lock()
		u.timer = time.AfterFunc(window, u.look)
		u.mu.Unlock()
	}
	return u
}

// look ends the reading if too little has come since the last look. The deadline
// stays in force: the connection is closed behind the refusal.
func (u *upload) look() {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.over:
	case u.got >= uploadLeast:
		u.got = 0
		u.timer.Reset(u.window)
	default:
		u.slow = true
		_ = u.end(time.Unix(1, 0))
	}
}

// Read implements io.Reader.
func (u *upload) Read(b []byte) (int, error) {
	if u.window == 0 {
		return u.body.Read(b)
	}
	if u.chunked { // net/http comes back with a chunk only when b is full
		b = b[:min(len(b), uploadLeast/4)]
	}
	n, err := u.body.Read(b)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.got += n; u.slow && err != nil && !errors.Is(err, io.EOF) {
		err = errSlow
	}
	return n, err
}

// done ends the watch. From a connection whose deadline has passed nothing more
// can be read, even if the last bytes just made it: it tells so by errSlow.
func (u *upload) done() error {
	if u.window == 0 {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.timer.Stop()
	if u.over = true; u.slow {
		return errSlow
	}
	return nil
}
