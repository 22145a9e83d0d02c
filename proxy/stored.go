package proxy

import (
	"bytes"
	"container/list"
	"net/http"
	"sync"
	"time"

	"github.com/wardrop-lb/wardrop/protect"
)

// maxStored is how many stored responses a data plane remembers the engine of.
const maxStored = 20_000

// stored remembers which engine holds a response, for later requests that name
// it. It is a hint: a data plane that does not know asks the engines in turn.
// Bounded; the least recently used goes first. Safe for concurrent use.
type stored struct {
	mu    sync.Mutex
	where map[string]*list.Element
	order *list.List
}

type storedAt struct{ id, model, engine string }

func newStored() *stored { return &stored{where: map[string]*list.Element{}, order: list.New()} }

func (s *stored) put(id, model, engine string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.where[id]; e != nil {
		e.Value = storedAt{id, model, engine}
		s.order.MoveToFront(e)
		return
	}
	s.where[id] = s.order.PushFront(storedAt{id, model, engine})
	if s.order.Len() > maxStored {
		last := s.order.Back()
		s.order.Remove(last)
		delete(s.where, last.Value.(storedAt).id)
	}
}

func (s *stored) get(id string) (at storedAt, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.where[id]
	if e == nil {
		return storedAt{}, false
	}
	s.order.MoveToFront(e)
	return e.Value.(storedAt), true
}

// responseID finds the id in the first bytes of a response object, or of the
// event that announces one.
func responseID(first []byte) string {
	_, rest, ok := bytes.Cut(first, []byte(`"id"`))
	rest = bytes.TrimLeft(rest, " :")
	if !ok || len(rest) == 0 || rest[0] != '"' {
		return ""
	}
	id, _, ok := bytes.Cut(rest[1:], []byte(`"`))
	if !ok || len(id) == 0 || len(id) > 200 {
		return ""
	}
	return string(id)
}

// maxAsked bounds how many engines are asked for a response that none is known
// to hold.
const maxAsked = 32

// candidate is an engine that may hold a response.
type candidate struct {
	row    *rowState
	target int
}

// storedPath is what decisions call the requests for stored responses.
const storedPath = "/v1/responses/{id}"

// serveStored passes a request for a stored response to the engine that holds it.
func (p *DataPlane) serveStored(w http.ResponseWriter, r *http.Request) {
	q := p.newRequest(w, r)
	defer p.done(q)
	q.endpoint.path, q.record.path, q.record.asked = storedPath, storedPath, true
	if err := p.readBody(q); err != nil {
		p.refuse(w, q, p.bodyError(r, err))
		return
	}
	if q.table = p.table.Load(); q.table == nil {
		p.refuse(w, q, noSnapshot())
		return
	}
	id := r.PathValue("id")
	holders := p.holders(q.table, id)
	for _, c := range holders {
		q.row = c.row
		now := time.Now()
		a := p.attempt(q.ctx, q, c.target, c.row.Targets()[c.target].Flight.Charge(q.work, now.UnixNano()), now)
		q.note(a)
		if a.outcome == protect.Success && a.resp.StatusCode != http.StatusNotFound {
			p.relay(q, a)
			return
		}
		if x := q.record.last(); a.outcome == protect.Success {
			x.Outcome, x.FirstByte, x.FailedAfter = notHere, 0, a.waited.Seconds()
		}
		if a.outcome != protect.Success && q.ctx.Err() == nil {
			p.judge(q, a)
			if len(holders) == 1 && a.resp != nil && a.err == nil {
				p.relay(q, a) // it holds the response, whatever is wrong with it
				return
			}
		}
		p.end(q, a)
		if q.ctx.Err() != nil {
			p.refuse(w, q, q.late())
			return
		}
	}
	p.refuse(w, q, refuse(http.StatusNotFound, "invalid_request_error", "response_not_found", "no engine holds the response %q", id))
}

// holders lists the engines to ask: the one that is known to hold the response,
// else all, each once.
func (p *DataPlane) holders(t *table, id string) []candidate {
	at, known := p.stored.get(id)
	asked := map[string]bool{}
	var out []candidate
	for _, model := range t.router.Models() {
		row := t.rows[model]
		for i := range row.targets {
			name := row.targets[i].seen.engine
			switch {
			case known && at.model == model && at.engine == name:
				return []candidate{{row, i}}
			case !asked[name] && len(out) < maxAsked:
				asked[name] = true
				out = append(out, candidate{row, i})
			}
		}
	}
	return out
}
