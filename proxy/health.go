package proxy

import (
	"context"
	"net/http"
	"time"
)

const (
	healthEvery   = int64(5 * time.Second)
	healthTimeout = 2 * time.Second
)

// askHealth asks the health pages of engines that have no work and refuse requests,
// each every five seconds at most. The answer is a vote and nothing else: health pages
// are good while the engine hangs, and bad while it works.
func (p *DataPlane) askHealth(ctx context.Context, now time.Time) {
	t := p.table.Load()
	if t == nil {
		return
	}
	at := now.UnixNano()
	for _, row := range t.rows {
		for i := range row.targets {
			own := &row.targets[i]
			if e := own.engine; e.life.Unexplained(at) && at-e.healthAsked >= healthEvery {
				e.healthAsked = at
				address := own.base.JoinPath("/health").String()
				p.background.Go(func() { p.healthVote(ctx, e, address) })
			}
		}
	}
}

func (p *DataPlane) healthVote(ctx context.Context, e *engineState, address string) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return
	}
	resp, err := p.pages.RoundTrip(req)
	if err != nil {
		return
	}
	_ = resp.Body.Close()
	if resp.StatusCode == http.StatusServiceUnavailable {
		e.life.Unwell(time.Now().UnixNano())
	}
}
