package proxy

import (
	"context"
	"time"

	"github.com/wardrop-lb/wardrop/protect"
)

// hedged makes an attempt and, if no byte has come for a while and the budget
// allows, a second one at another engine: the first to begin an answer wins, the
// other is cancelled. Cancelling says nothing about an engine.
func (p *DataPlane) hedged(q *request, target int) *attempt {
	results := make(chan *attempt, 2)
	var cancels [2]context.CancelFunc
	launch := func(i, target int) {
		ctx, cancel := context.WithCancel(q.ctx)
		cancels[i] = cancel
		go func() { results <- p.attemptIn(ctx, q, target) }()
	}
	launch(0, target)
	timer := time.NewTimer(time.Duration(p.config.HedgeAfter))
	defer timer.Stop()
	select {
	case a := <-results:
		return a
	case <-timer.C:
	}
	second, ok := q.row.Next(&q.pick)
	if !ok || !q.row.model.budget.Spend(q.row.Utilisation) {
		return <-results
	}
	p.metrics.retries.WithLabelValues("hedge").Inc()
	launch(1, second)
	first := <-results
	if first.outcome != protect.Success {
		// The other may still win; if it does not, this is the failure to tell.
		other := <-results
		if other.outcome == protect.Success {
			first, other = other, first
		}
		p.discard(q, other, true)
		return first
	}
	for i, t := range [2]int{target, second} {
		if t != first.target {
			cancels[i]()
		}
	}
	p.background.Go(func() { p.discard(q, <-results, false) })
	return first
}

// discard ends an attempt that nobody needs; judged tells that its failure was
// its own.
func (p *DataPlane) discard(q *request, a *attempt, judged bool) {
	if judged {
		p.judge(q, a)
	}
	p.end(q, a)
}
