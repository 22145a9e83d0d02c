package proxy

import (
	"context"
	"math"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/wardrop-lb/wardrop/protect"
	"github.com/wardrop-lb/wardrop/signals"
)

const (
	sweepInterval = 500 * time.Millisecond
	// longOutput is the output, in tokens, that an answer may have whose request
	// sets no limit.
	longOutput = 4096
	// largePrompt is from how many tokens on a prompt is expected to take time by its
	// size, whatever requests are usual and predicted; slowPrefill is how many tokens a
	// second it is then taken to need at least.
	largePrompt, slowPrefill = 4096, 2500
	// tellsWhy is how much of a refusal's body is looked at, in bytes.
	tellsWhy = 1024
)

// long is by how much a request's prompt and its output may take longer than all of
// a usual request, for which a time is predicted; in seconds.
func (q *request) long(predicted float64) (prompt, output float64) {
	usual := max(q.row.model.usual.load(), 1)
	tokens := q.fields.MaxTokens
	if tokens == 0 {
		tokens = longOutput
	}
	size := float64(len(q.body.data) / bytesPerToken)
	prompt = predicted * max(size/usual-1, 0)
	if size > largePrompt {
		prompt = max(prompt, size/slowPrefill)
	}
	return prompt, predicted * max(float64(tokens)/usual-1, 0)
}

// sweep looks for engines with work in flight of which nothing comes for too long,
// whatever their health pages say. How long is too long grows with the time that the
// plan predicts and with the size of what is in flight, so that a long prefill is no
// alarm.
func (p *DataPlane) sweep(now time.Time) {
	t := p.table.Load()
	if t == nil || p.config.StallAfter <= 0 {
		return
	}
	for _, row := range t.rows {
		for i := range row.targets {
			if row.Targets()[i].Flight.Requests() == 0 {
				row.targets[i].seen.doubt = doubt{} // an idle engine owes no sign of life
				continue
			}
			p.sweepTarget(row, i, now.UnixNano())
		}
	}
}

func (p *DataPlane) sweepTarget(row *rowState, i int, now int64) {
	target, own := &row.Targets()[i], &row.targets[i]
	e, stallAfter := own.engine, time.Duration(p.config.StallAfter)
	e.pulse.listen(now)
	counted := e.life.Counted(now)
	work := e.pulse.work(now, target.Flight.BusySince(), target.Flight.Requests(), target.Predicted, counted, stallAfter)
	if n := e.pulse.endDead(now, stallAfter, &work); n > 0 {
		p.log.Warn("streams stand still while their engine works; they are given up", "engine", own.seen.engine, "model", row.Model, "streams", n)
	}
	switch v := e.life.Judge(&work, stallAfter, now); v.State {
	case protect.Live:
		own.seen.doubt = doubt{}
	case protect.Doubtful:
		p.doubt(row, i, v, now)
		patience := protect.Patience(stallAfter, work.Predicted+work.Prompts+work.Outputs)
		e.pulse.endProbes(now, own.seen.doubt.since, patience)
	default:
		p.log.Warn("engine gives no sign of life; what waits for it goes elsewhere", "engine", own.seen.engine, "model", row.Model,
			"state", v.State.String(), "reason", v.Reason, "silent", v.Silent, "in_flight", work.Requests)
		lease := time.Duration(0) // a probe will tell
		if !v.Spare {
			lease = p.passOver(row, i, protect.Stalled, now)
		}
		p.everywhere(e, func(row *rowState, i int) { row.PassOver(i, now, now+int64(lease)) })
		e.life.Found(v, now, lease)
		e.pulse.stall(now, !v.Own)
	}
}

// everywhere calls do for an engine in every row that names it.
func (p *DataPlane) everywhere(e *engineState, do func(row *rowState, target int)) {
	t := p.table.Load()
	if t == nil {
		return
	}
	for _, row := range t.rows {
		for i := range row.targets {
			if row.targets[i].engine == e {
				do(row, i)
			}
		}
	}
}

// doubt is about an engine of which nobody can tell whether it works long or does
// not work. The zero value is none.
type doubt struct {
	since int64 // nanoseconds
	until int64 // when the lease ends, nanoseconds
}

// doubt passes an engine over that finishes nothing. What waited for it goes on
// waiting: it may be at work on just that. What comes goes elsewhere, but for a few
// probes, and as long as none of them is answered the engine is passed over again
// when its lease ends. It is the sweep's to call.
func (p *DataPlane) doubt(row *rowState, i int, v protect.Verdict, now int64) {
	seen := row.targets[i].seen
	if now < seen.doubt.until {
		return
	}
	if seen.doubt.since == 0 {
		seen.doubt.since = now
		p.log.Warn("engine finishes nothing; new requests go elsewhere",
			"engine", seen.engine, "model", row.Model, "silent", v.Silent, "in_flight", seen.flight.Requests())
	}
	lease := p.passOver(row, i, protect.Stalled, now)
	seen.doubt.until = now + int64(lease)
	row.targets[i].engine.life.Found(v, now, lease)
}

// progressed takes what an engine's signals say of its progress.
func (p *DataPlane) progressed(st signals.State) {
	e := p.memory.knownEngine(st.Engine)
	if e == nil {
		return
	}
	e.inBand.learn(st)
	switch now := st.Attempt.UnixNano(); {
	case st.Err == "" && st.Signal != nil:
		now = st.Signal.Time.UnixNano()
		moved, anew := e.life.Read(countsOf(st.Signal), now)
		if moved {
			e.pulse.beat(now)
		}
		if anew {
			p.begunAnew(e, st.Engine, now)
		}
	case st.Status == http.StatusServiceUnavailable:
		e.life.Unready(now)
	case st.Refused:
		e.life.Away(now, awayFor)
	}
}

// awayFor is how long an engine that refuses its reader is called away: the longest
// time between two attempts of a reader, twice.
const awayFor = 10 * time.Second

func countsOf(s *signals.Signal) protect.Counts {
	nan := math.NaN()
	return protect.Counts{
		Incarnation: s.Incarnation, Running: s.Running.Or(nan), Waiting: s.Waiting.Or(nan), KVUsage: s.KVUsage.Or(nan),
		Steps: s.Progress.Or(nan), Tokens: s.Emitted.Or(nan), Preemptions: s.Preemptions.Or(nan),
	}
}

// begunAnew forgets what was held against an engine's last run.
func (p *DataPlane) begunAnew(e *engineState, name string, now int64) {
	p.log.Info("engine began anew", "engine", name)
	e.outlier.Forget()
	p.everywhere(e, func(row *rowState, i int) { row.Targets()[i].Flight.Recovered(now) })
}

// refused takes a 503 to a request: an engine that drains or loads is passed over
// without penalty. It reports whether it was.
func (p *DataPlane) refused(a *attempt, t *targetState, now int64) bool {
	if a.resp == nil || a.resp.StatusCode != http.StatusServiceUnavailable {
		return false
	}
	lease := t.engine.life.Refused(a.first[:min(len(a.first), tellsWhy)], now)
	if lease == 0 {
		return false
	}
	p.everywhere(t.engine, func(row *rowState, i int) { row.PassOver(i, now, now+int64(lease)) })
	return true
}

// watch sweeps, and has the snapshot grow old, until ctx is done.
func (p *DataPlane) watch(ctx context.Context) {
	p.age(time.Now())
	debug.FreeOSMemory() // a start takes several times what it leaves
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			p.sweep(now)
			p.askHealth(ctx, now)
			p.age(now)
		}
	}
}
