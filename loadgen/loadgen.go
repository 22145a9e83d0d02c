package loadgen

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Flow is requests of one kind.
type Flow struct {
	URL       string // of the data plane, without a path
	Model     string
	Priority  string
	Rate      float64 // requests/s; 0 sends nothing
	MaxTokens int     // of each answer; 0 leaves it to the engine
}

// Counts is what became of the requests.
type Counts struct {
	Sent      uint64 `json:"sent"`
	Succeeded uint64 `json:"succeeded"`
	Shed      uint64 `json:"shed"`   // answered 429
	Failed    uint64 `json:"failed"` // anything else
	LastError string `json:"last_error,omitempty"`
}

// Generator sends flows. Safe for concurrent use.
type Generator struct {
	flows  []Flow
	seed   uint64
	client *http.Client

	sent, succeeded, shed, failed atomic.Uint64
	lastError                     atomic.Pointer[string]
}

// turnSeconds is how long a conversation takes from one request to the next, in
// the mean: it gives the number of conversations behind a rate.
const turnSeconds = 60

// New makes a generator; seed decides instants and sessions.
func New(flows []Flow, seed uint64) *Generator {
	return &Generator{flows: flows, seed: seed, client: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 2048, IdleConnTimeout: 30 * time.Second, DisableCompression: true},
	}}
}

// Run sends until ctx is done, then waits for the answers that are under way,
// at most for grace.
func (g *Generator) Run(ctx context.Context, grace time.Duration) {
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var flows, answers sync.WaitGroup
	for i, f := range g.flows {
		if f.Rate > 0 {
			flows.Go(func() { g.run(ctx, requests, f, rand.New(rand.NewPCG(g.seed, uint64(i))), &answers) })
		}
	}
	flows.Wait()
	late := time.AfterFunc(grace, cancel)
	answers.Wait()
	late.Stop()
	g.client.CloseIdleConnections()
}

func (g *Generator) run(ctx, requests context.Context, f Flow, rng *rand.Rand, answers *sync.WaitGroup) {
	sessions := max(1, int(turnSeconds*f.Rate))
	next := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for n := 0; ; n++ {
		next = next.Add(time.Duration(rng.ExpFloat64() / f.Rate * float64(time.Second)))
		timer.Reset(time.Until(next))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		session := fmt.Sprintf("%s-%s-%d", f.Model, f.Priority, rng.IntN(sessions))
		stream := n%2 == 0
		answers.Go(func() { g.send(requests, f, session, stream) })
	}
}

// send makes one request and reads the whole answer.
func (g *Generator) send(ctx context.Context, f Flow, session string, stream bool) {
	g.sent.Add(1)
	limit := ""
	if f.MaxTokens > 0 {
		limit = fmt.Sprintf(`,"max_tokens":%d`, f.MaxTokens)
	}
	body := fmt.Appendf(nil, `{"model":%q,"stream":%t%s,"messages":[{"role":"user","content":"This is session %s."}]}`, f.Model, stream, limit, session)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.URL+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		g.fail(err)
		return
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Session-Id", session)
	req.Header.Set("X-Priority", f.Priority)
	resp, err := g.client.Do(req)
	if err != nil {
		g.fail(err)
		return
	}
	answer, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	switch {
	case err != nil:
		g.fail(err)
	case resp.StatusCode == http.StatusTooManyRequests:
		g.shed.Add(1)
	case resp.StatusCode != http.StatusOK:
		g.fail(fmt.Errorf("%s: %.200s", resp.Status, answer))
	case stream && !bytes.HasSuffix(bytes.TrimSpace(answer), []byte("data: [DONE]")):
		g.fail(fmt.Errorf("the stream ends without [DONE]"))
	default:
		g.succeeded.Add(1)
	}
}

func (g *Generator) fail(err error) {
	text := err.Error()
	g.lastError.Store(&text)
	g.failed.Add(1)
}

// Counts is what became of the requests so far.
func (g *Generator) Counts() Counts {
	c := Counts{Sent: g.sent.Load(), Succeeded: g.succeeded.Load(), Shed: g.shed.Load(), Failed: g.failed.Load()}
	if e := g.lastError.Load(); e != nil {
		c.LastError = *e
	}
	return c
}
