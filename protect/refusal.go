package protect

import (
	"bytes"
	"time"
)

// An engine is taken for draining when that many requests in a row were refused, and that
// many readings in a row found room between refusals: after a burst one finds some too.
const refusedToDrain, roomToDrain = 3, 2

// refusal is what is known of the requests that an engine refuses. The zero value is
// none.
type refusal struct {
	count   int
	since   int64   // when the first one was, nanoseconds
	running float64 // requests in the engine then, NaN when not known
	fresh   bool    // there was one since the last reading
	room    int     // readings in a row between which it refused, and had room
	unready int64   // when its page of metrics answered 503 and has not answered since, nanoseconds
	unwell  int64   // when its health page answered 503, nanoseconds
}

var (
	saysLoading  = [][]byte{[]byte("loading model"), []byte("model is loading"), []byte("still loading"), []byte("loading the model")}
	saysDraining = [][]byte{[]byte("shutting down"), []byte("draining"), []byte("shutdown")}
	saysFull     = [][]byte{[]byte("queue"), []byte("overload"), []byte("too many"), []byte("busy"), []byte("pending")}
)

func says(text []byte, any [][]byte) bool {
	for _, s := range any {
		if bytes.Contains(text, s) {
			return true
		}
	}
	return false
}

// Refused takes a 503 to a request at time now, with the beginning of its body. When it
// means that the engine drains or loads, the engine is marked and to be passed over for
// the lease that comes back: a second, then two, up to sixteen, and no penalty. 0 means
// that it may just be full.
func (l *Liveness) Refused(body []byte, now int64) (lease time.Duration) {
	text := bytes.ToLower(body)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refusal.count == 0 {
		l.refusal.since, l.refusal.running = now, l.last.Running
	}
	l.refusal.count++
	l.refusal.fresh = true
	l.suspect.Store(true)
	switch {
	case says(text, saysLoading):
		return l.refuses(Loading, "it says that its model is loading", now)
	case says(text, saysDraining):
		return l.refuses(Draining, "it says that it shuts down", now)
	case says(text, saysFull):
		l.refusal.count = 0
	case l.unready(now):
		return l.refuses(Loading, "it answers 503 to everything", now)
	case l.mark.State == Draining || l.mark.State == Loading:
		return l.refuses(l.mark.State, l.mark.Reason, now) // it has not answered since
	case l.refusal.count >= refusedToDrain && l.refusal.room >= roomToDrain && l.counted(now):
		return l.refuses(Draining, "it has room and takes nothing", now)
	}
	return 0
}

// findRoom looks, when it is read, whether the engine has room, or gets emptier while it
// refuses.
func (r *refusal) findRoom(c *Counts) {
	if r.fresh && c.Waiting == 0 && (c.Running == 0 || c.Running <= r.running/2) {
		r.room++
	} else {
		r.room = 0
	}
	r.fresh = false
}

func (l *Liveness) refuses(s State, reason string, now int64) time.Duration {
	if l.mark.State == s && l.mark.In(now) { // it was sent before
		return time.Duration(l.mark.Until - now)
	}
	l.lease = min(max(2*l.lease, leaseFirst), leaseMax)
	l.mark = Mark{State: s, Reason: reason, Since: now, Until: now + int64(l.lease)}
	return l.lease
}

// unready tells whether a vote says that the engine cannot serve yet. A health page may
// say so of an engine that is at work.
func (l *Liveness) unready(now int64) bool {
	recent := func(at int64) bool { return at != 0 && now-at < 2*watchedFor }
	return recent(l.refusal.unready) || recent(l.refusal.unwell) && l.idles(now)
}

// idles tells of an engine whose own counts say that it has no work.
func (l *Liveness) idles(now int64) bool {
	return l.counted(now) && l.last.Running == 0 && l.last.Waiting == 0
}

// Unready takes that the engine's page of metrics answered 503 at time now. It is a
// vote: alone it is nothing, but it says why requests are refused.
func (l *Liveness) Unready(now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusal.unready = now
}

// Unwell takes that the engine's health page answered 503 at time now, which engines do
// also while they work: a vote like Unready, of an engine without work alone.
func (l *Liveness) Unwell(now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusal.unwell = now
}

// Unexplained tells whether requests are refused at time now by an engine without work, so
// that its health page may be asked why.
func (l *Liveness) Unexplained(now int64) bool {
	if !l.suspect.Load() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refusal.count > 0 && l.idles(now)
}

// Away takes at time now that the engine refuses connections. One that was never there
// is not marked.
func (l *Liveness) Away(now int64, lease time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.read == 0 {
		return
	}
	l.suspect.Store(true)
	l.mark = Mark{State: Restarting, Reason: "it refuses connections", Since: now, Until: now + int64(lease)}
}
