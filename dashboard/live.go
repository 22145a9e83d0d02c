package dashboard

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"time"
)

// quiet is how long a live stream says nothing while no tick ends: long enough for any tick, and
// short enough to notice that the other side has gone.
const quiet = 5 * time.Second

// serveLive sends a map now and after every tick, as server-sent events, until the client or
// the control plane is gone. Browsers come again by themselves.
func (b *Board) serveLive(w http.ResponseWriter, r *http.Request) {
	select {
	case b.streams <- struct{}{}:
		defer func() { <-b.streams }()
	default:
		refuse(w, http.StatusServiceUnavailable, "too many pages are live already")
		return
	}
	out := newStream(w, r)
	defer out.close()
	model := r.URL.Query().Get("model")
	alive := time.NewTicker(quiet)
	defer alive.Stop()
	for {
		changed := b.control.Changed()
		if out.event("map", b.drawn(model, time.Now())) != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-b.ended:
			return
		case <-changed:
		case <-alive.C:
		}
	}
}

// stream writes server-sent events, packed where the client takes that.
type stream struct {
	w      io.Writer
	packed *gzip.Writer // nil if it is not packed
	flush  *http.ResponseController
}

// eventTimeout bounds the time that a client may take for one event.
const eventTimeout = 30 * time.Second

func newStream(w http.ResponseWriter, r *http.Request) *stream {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	s := &stream{w: w, flush: http.NewResponseController(w)}
	if packs(r) {
		h.Set("Content-Encoding", "gzip")
		s.packed, _ = gzip.NewWriterLevel(w, gzip.BestSpeed) // the level exists
		s.w = s.packed
	}
	return s
}

// event sends one; its data has no line ends.
func (s *stream) event(name string, data []byte) error {
	_ = s.flush.SetWriteDeadline(time.Now().Add(eventTimeout))
	_, _ = io.WriteString(s.w, "event: "+name+"\ndata: ")
	_, _ = s.w.Write(data)
	if _, err := io.WriteString(s.w, "\n\n"); err != nil {
		return err
	}
	if s.packed != nil {
		if err := s.packed.Flush(); err != nil {
			return err
		}
	}
	return s.flush.Flush()
}

func (s *stream) close() {
	_ = s.flush.SetWriteDeadline(time.Time{}) // what comes on this connection next has its own time
	if s.packed != nil {
		_ = s.packed.Close()
	}
}

// packs tells whether a client takes gzip.
func packs(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, quality, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.TrimSpace(name) == "gzip" {
			q := strings.ReplaceAll(quality, " ", "")
			return q != "q=0" && !strings.HasPrefix(q, "q=0.0")
		}
	}
	return false
}

// worthPacking is from how many bytes on an answer is packed.
const worthPacking = 1400

// send answers with JSON.
func send(w http.ResponseWriter, r *http.Request, data []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Accept-Encoding")
	if len(data) < worthPacking || !packs(r) {
		_, _ = w.Write(data)
		return
	}
	h.Set("Content-Encoding", "gzip")
	packed, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
	_, _ = packed.Write(data)
	_ = packed.Close()
}
