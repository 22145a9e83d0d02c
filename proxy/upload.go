package proxy

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// uploadLeast is how many bytes of a body must come in each upload_timeout, unless
// it ends sooner. What came before earns no rest: a large part of a body would
// otherwise pay for hours of holding it.
const uploadLeast = 16 << 10

// looksPerWindow is how often in each upload_timeout bodies are looked at.
const looksPerWindow = 8

// errSlow is why a body's reading ends that did not go on.
var errSlow = errors.New("the body came too slowly")

// uploads watches the bodies that are being read and ends the reading of those that
// do not go on. One timer serves all, and runs only while there are any. Safe for
// concurrent use.
type uploads struct {
	window time.Duration // 0 watches nothing

	mu      sync.Mutex
	list    []*upload // each knows its place here
	looking bool
}

// upload is a request's body on its way in.
type upload struct {
	w       http.ResponseWriter
	body    io.Reader
	chunked bool
	got     atomic.Int64 // bytes since

	since time.Time // when its window began
	place int
	slow  bool // its reading was ended
}

// begin watches a body whose reading begins at time now; done must be called when it
// is over.
func (l *uploads) begin(u *upload, now time.Time) {
	if l.window == 0 {
		return
	}
	u.since = now
	l.mu.Lock()
	defer l.mu.Unlock()
	u.place = len(l.list)
	l.list = append(l.list, u)
	if !l.looking {
		l.looking = true
		time.AfterFunc(l.window/looksPerWindow, l.look)
	}
}

// done ends the watch. From a connection whose deadline has passed nothing more
// can be read, even if the last bytes just made it: it tells so by errSlow.
func (l *uploads) done(u *upload) error {
	if l.window == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.list) - 1
	last := l.list[n]
	l.list[u.place], last.place = last, u.place
	l.list[n] = nil
	l.list = l.list[:n]
	if u.slow {
		return errSlow
	}
	return nil
}

func (l *uploads) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, u := range l.list {
		u.look(now, l.window)
	}
	if l.looking = len(l.list) > 0; l.looking {
		time.AfterFunc(l.window/looksPerWindow, l.look)
	}
}

// look ends the reading if too little has come in a window. The deadline stays in
// force: the connection is closed behind the refusal.
func (u *upload) look(now time.Time, window time.Duration) {
	switch {
	case u.slow || now.Sub(u.since) < window:
	case u.got.Load() >= uploadLeast:
		u.got.Store(0)
		u.since = now
	default:
		u.slow = true
		_ = http.NewResponseController(u.w).SetReadDeadline(time.Unix(1, 0))
	}
}

// Read implements io.Reader.
func (u *upload) Read(b []byte) (int, error) {
	if u.chunked { // net/http comes back with a chunk only when b is full
		b = b[:min(len(b), uploadLeast/4)]
	}
	n, err := u.body.Read(b)
	u.got.Add(int64(n))
	return n, err
}
