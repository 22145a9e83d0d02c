package admin

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/wardrop-lb/wardrop/control"
	"github.com/wardrop-lb/wardrop/proxy"
)

// Request is how a request was routed, and the same in words: the answer of /v1/why/request.
type Request struct {
	DataPlane string          `json:"data_plane"` // the admin address of the one that routed it
	Decision  *proxy.Decision `json:"decision"`
	Words     []string        `json:"words"`
	// WhyNot says why an engine was not picked, where that is asked.
	WhyNot []string `json:"why_not,omitempty"`
}

// requestTimeout bounds the wait for all data planes.
const requestTimeout = 2 * time.Second

// requests serves how a request was routed. Only the data plane that made a decision knows
// it, so all are asked whose addresses are known; no other address ever is.
func requests(mux *http.ServeMux, c *control.Control, planes func() []string) {
	if planes == nil {
		planes = func() []string { return c.Config().DataPlaneAdmins() }
	}
	mux.HandleFunc("GET /v1/why/request", func(w http.ResponseWriter, r *http.Request) {
		addresses := planes()
		if len(addresses) == 0 {
			fail(w, http.StatusNotFound, "the configuration says no admin address of a cluster: there is nobody to ask")
			return
		}
		found, silent := ask(r.Context(), addresses, r.URL.Query().Get("id"))
		if found == nil {
			message := "no data plane made such a decision, or it is forgotten, or was not recorded"
			if len(silent) > 0 {
				message += fmt.Sprintf("; %d of %d did not answer: %s", len(silent), len(addresses), strings.Join(silent[:min(len(silent), 3)], ", "))
			}
			fail(w, http.StatusNotFound, message)
			return
		}
		if engine := r.URL.Query().Get("engine"); engine != "" {
			found.WhyNot = found.Decision.WhyNot(engine)
		}
		answer(w, http.StatusOK, found)
	})
}

// ask asks all at once. It gives the answer of the one that knows, and who did not answer.
func ask(ctx context.Context, addresses []string, id string) (found *Request, silent []string) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, a := range addresses {
		wg.Go(func() {
			d, err := Client{Base: a}.Decision(ctx, id)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && found == nil:
				found = &Request{DataPlane: a, Decision: d, Words: d.Words()}
				cancel()
			case err != nil && !Answered(err):
				silent = append(silent, a)
			}
		})
	}
	wg.Wait()
	return found, silent
}
