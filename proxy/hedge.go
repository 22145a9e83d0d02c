package proxy

import (
	"context"
	"time"

	"github.com/wardrop-lb/wardrop/protect"
	"github.com/wardrop-lb/wardrop/route"
)

// hedged makes an attempt and, if no byte has come for a while and the budget
// allows, a second one at another engine: the first to begin an answer wins, the
// other is cancelled. Cancelling says nothing about an engine. both tells that there
// was a second one.
func (p *DataPlane) hedged(q *request, target int, charge route.Charge) (first *attempt, both bool) {
	results := make(chan *attempt, 2)
	var cancels [2]context.CancelFunc
	launch := func(i, target int, charge route.Charge) (at time.Time) {
		ctx, cancel := context.WithCancel(q.ctx)
		cancels[i] = cancel
		body := q.body
		body.refs.Add(1) // the loser may still send it when the request has ended
		at = time.Now()  // else of two that the scheduler turns round the second would seem to be the first
		go func() {
			defer body.release()
			results <- p.attempt(ctx, q, target, charge, at)
		}()
		return at
	}
	begun := launch(0, target, charge)
	timer := time.NewTimer(time.Duration(p.config.HedgeAfter))
	defer timer.Stop()
	select {
	case a := <-results:
		return a, false
	case <-timer.C:
	}
	second, charge, ok := q.row.TakeNext(&q.pick, q.work, time.Now().UnixNano())
	if !ok || !q.row.model.budget.Spend(q.row.Utilisation) {
		charge.Release()
		q.row.model.queue.wake()
		return <-results, false
	}
	p.metrics.retries.WithLabelValues("hedge").Inc()
	hedgedAt := launch(1, second, charge)
	first = <-results
	if first.outcome != protect.Success {
		// The other may still win; if it does not, this is the failure to tell.
		other := <-results
		if other.outcome == protect.Success {
			first, other = other, first
		}
		// What the client's leaving ended says nothing about an engine.
		q.note(other)
		p.discard(q, other, q.ctx.Err() == nil || other.resp != nil)
		return first, true
	}
	for i, t := range [2]int{target, second} {
		if t != first.target {
			cancels[i]()
			loser := q.tried(t, [2]time.Time{begun, hedgedAt}[i])
			loser.Outcome = outrun
			q.record.attempt(loser)
		}
	}
	p.background.Go(func() { p.discard(q, <-results, false) })
	return first, true
}

// discard ends an attempt that nobody needs; judged tells that its failure was
// its own.
func (p *DataPlane) discard(q *request, a *attempt, judged bool) {
	if judged {
		p.judge(q, a)
	}
	p.end(q, a)
}
